"""The native record format: one object a record, in our own words and with full addresses.

    unit        address title body [language source active_at inherit keep_label thread role]
    thread      address title [aliases description purpose status]
    label       term [version aliases units threads]
    artifact    thread title
    membership  thread unit role [confidence status]
    edge        from to relation [confidence]
    deletion    address

Units, threads, labels and artifacts also carry their label: the fields that the mapping
reads (with ``native``: the six facets, ``lifecycle_stage``, ``tenant``, ``jurisdiction``).
``inherit`` lists facets to be filled from threads; ``keep_label`` leaves the stored label
alone and updates the content only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from policies.mapping import IngestMapping
from retrieval.ingest.fields import ADDRESS_MAX, BODY_MAX, TEXT_MAX, TITLE_MAX, Fields
from retrieval.ingest.identity import label_id, thread_id, unit_id
from retrieval.ingest.items import (
    ArtifactItem,
    DeletionItem,
    EdgeItem,
    Item,
    LabelItem,
    MembershipItem,
    RefusedItem,
    StoredLabel,
    ThreadItem,
    UnitItem,
)
from retrieval.ingest.labels import closed_label, shown, stored_label
from retrieval.ingest.report import Reason, Sort

ROLES: Final = ("canonical", "supporting", "report")
LINK_STATUS: Final = ("active", "needs_human", "wrong_link")
THREAD_STATUS: Final = ("active", "retired")
IDENTITY: Final = frozenset({"address", "term", "version"})
"""Fields that tell which object a unit, a thread, a term or a removal is about."""
RELATION: Final = re.compile(r"[a-z_]{1,40}")

Record = Mapping[str, Any]


def native_items(
    mapping: IngestMapping, place: str, record: Record, *, lenient: bool = False
) -> Iterator[Item]:
    """The object of one native record, or the reasons why it is none.

    ``lenient``: further fields are ignored (front matter often holds more than is ours).
    """
    sort = record.get("sort")
    build = BUILDERS.get(sort) if isinstance(sort, str) else None
    if build is None:
        known = ", ".join(sorted(BUILDERS))
        yield Reason(place, Sort.RECORD, "", "sort", shown(sort), f"not one of {known}")
        return
    fields = Fields(record)
    if not lenient:
        fields.only({"sort", *CONTENT[str(sort)], *mapping.fields})
    items = list(build(mapping, place, record, fields))
    if not fields.faults:
        yield from items
    elif not fields.wrong & IDENTITY:
        yield from refused_labels(mapping, items)
    for name, value, reason in fields.faults:
        address = record.get("address")
        shown_address = shown(address) if isinstance(address, str) else ""
        yield Reason(place, Sort.RECORD, shown_address, name, value, reason)


CONTENT: Final[Mapping[str, tuple[str, ...]]] = {
    Sort.UNIT: (
        *("address", "title", "body", "language", "source", "active_at"),
        *("inherit", "keep_label", "thread", "role"),
    ),
    Sort.THREAD: ("address", "title", "aliases", "description", "purpose", "status"),
    Sort.LABEL: ("term", "version", "aliases", "units", "threads"),
    Sort.ARTIFACT: ("thread", "title"),
    Sort.MEMBERSHIP: ("thread", "unit", "role", "confidence", "status"),
    Sort.EDGE: ("from", "to", "relation", "confidence"),
    Sort.DELETION: ("address",),
}


def refused_labels(mapping: IngestMapping, items: Iterable[Item]) -> Iterator[RefusedItem]:
    """The labels of what cannot be stored. A removal that cannot be believed closes."""
    for item in items:
        match item:
            case RefusedItem():
                yield item
            case UnitItem(address=address, label=StoredLabel() as label):
                yield RefusedItem(Sort.UNIT, unit_id(address), label)
            case ThreadItem(address=address, label=label):
                yield RefusedItem(Sort.THREAD, thread_id(address), label)
            case LabelItem(term=term, version=version, label=label):
                yield RefusedItem(Sort.LABEL, label_id(term, version, label.tenant), label)
            case DeletionItem(address=address):
                yield RefusedItem(Sort.UNIT, unit_id(address), closed_label(mapping))


def _unit(mapping: IngestMapping, place: str, record: Record, fields: Fields) -> Iterator[Item]:
    address = fields.address("address")
    inherit = fields.texts("inherit", most=40)
    kept = fields.truth("keep_label")
    yield UnitItem(
        place=place,
        address=address,
        title=fields.text("title", most=TITLE_MAX),
        body=fields.text("body", most=BODY_MAX, blank=True),
        language=fields.text("language", most=40, default=""),
        source=fields.text("source", most=ADDRESS_MAX, default=mapping.name),
        active_at=fields.instant("active_at"),
        label=None
        if kept
        else stored_label(
            mapping, record, place=place, sort=Sort.UNIT, address=address, inherit=inherit
        ),
    )
    thread = fields.address("thread") if record.get("thread") is not None else ""
    role = fields.choice("role", ROLES, default="canonical")
    if thread:
        yield MembershipItem(
            place=place,
            thread=thread,
            unit=address,
            role=role,
            confidence=1.0,
            status=None,
            added_by=f"ingest:{mapping.name}",
        )


def _thread(mapping: IngestMapping, place: str, record: Record, fields: Fields) -> Iterator[Item]:
    address = fields.address("address")
    yield ThreadItem(
        place=place,
        address=address,
        title=fields.text("title", most=TITLE_MAX),
        aliases=fields.texts("aliases", most=TITLE_MAX),
        description=fields.text("description", most=TEXT_MAX, default=""),
        purpose=fields.text("purpose", most=TEXT_MAX, default=""),
        status=fields.choice("status", THREAD_STATUS, default="active"),
        label=stored_label(mapping, record, place=place, sort=Sort.THREAD, address=address),
    )


def _label(mapping: IngestMapping, place: str, record: Record, fields: Fields) -> Iterator[Item]:
    term = fields.text("term", most=TITLE_MAX)
    yield LabelItem(
        place=place,
        term=term,
        version=fields.whole("version", default=1),
        aliases=fields.texts("aliases", most=TITLE_MAX),
        label=stored_label(mapping, record, place=place, sort=Sort.LABEL, address=term),
        units=fields.addresses("units"),
        threads=fields.addresses("threads"),
    )


def _artifact(mapping: IngestMapping, place: str, record: Record, fields: Fields) -> Iterator[Item]:
    thread, title = fields.address("thread"), fields.text("title", most=TITLE_MAX)
    yield ArtifactItem(
        place=place,
        thread=thread,
        title=title,
        label=stored_label(mapping, record, place=place, sort=Sort.ARTIFACT, address=thread),
    )


def _membership(
    mapping: IngestMapping, place: str, record: Record, fields: Fields
) -> Iterator[Item]:
    judged = record.get("status") is not None
    yield MembershipItem(
        place=place,
        thread=fields.address("thread"),
        unit=fields.address("unit"),
        role=fields.choice("role", ROLES, default=None),
        confidence=fields.share("confidence", default=1.0),
        status=fields.choice("status", LINK_STATUS, default=None) if judged else None,
        added_by=f"ingest:{mapping.name}",
    )


def _edge(_mapping: IngestMapping, place: str, _record: Record, fields: Fields) -> Iterator[Item]:
    yield EdgeItem(
        place=place,
        source=fields.address("from"),
        target=fields.address("to"),
        relation=fields.matching("relation", RELATION),
        confidence=fields.share("confidence", default=1.0),
    )


def _deletion(
    _mapping: IngestMapping, place: str, _record: Record, fields: Fields
) -> Iterator[Item]:
    yield DeletionItem(place=place, address=fields.address("address"))


BUILDERS: Final[Mapping[str, Callable[[IngestMapping, str, Record, Fields], Iterator[Item]]]] = {
    Sort.UNIT: _unit,
    Sort.THREAD: _thread,
    Sort.LABEL: _label,
    Sort.ARTIFACT: _artifact,
    Sort.MEMBERSHIP: _membership,
    Sort.EDGE: _edge,
    Sort.DELETION: _deletion,
}
