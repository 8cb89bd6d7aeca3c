"""A source's own documents: a unit a section, a thread a document, links as edges.

    {"id": "A-1", "title": "...", "sections": [{"id": "A-1#why", "heading": "...", "text": "..."}],
     "links": {"replaces": ["A-0"], "mentions": []}, ...words of the source...}

The mapping sees the document's fields with its links beside them; for a section also its
``heading``. What the mapping's ``thread`` rule absorbs (``replaces``) brings the units of
those documents into this one's thread, as supporting ones. Nothing else does: a pointer from
a superseded document to its successor makes an edge and no membership.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policies.mapping import IngestMapping, ThreadRule
from retrieval.ingest.fields import BODY_MAX, TITLE_MAX, Fields
from retrieval.ingest.items import (
    DocumentItem,
    Item,
    MembershipItem,
    StoredLabel,
    ThreadItem,
    UnitItem,
)
from retrieval.ingest.labels import shown, stored_label
from retrieval.ingest.native import RELATION, refused_labels
from retrieval.ingest.report import Reason, Sort

SECTIONS_MAX: Final = 10_000

Record = Mapping[str, Any]


def document_items(mapping: IngestMapping, place: str, record: Record) -> Iterator[Item]:
    """The units, the thread and the pointers of one document.

    A section that cannot be read is refused alone; the others are taken.
    """
    fields = Fields(record)
    prefix = f"{mapping.name}/"
    address = fields.address("id", prefix=prefix)
    title = fields.text("title", most=TITLE_MAX)
    links = _links(record, fields, prefix)
    view = {name: value for name, value in record.items() if name not in ("sections", "links")}
    pointers = record.get("links")
    view |= pointers if isinstance(pointers, dict) else {}
    sections = _sections(record, fields)
    thread = mapping.thread and _thread(mapping.thread, mapping, place, view, fields, prefix)
    if fields.faults:
        if "id" not in fields.wrong:
            made: list[Item] = [thread] if thread else []
            for section in sections:
                made += _section(mapping, place, view, section, title, prefix)
            yield from refused_labels(mapping, made)
        for name, value, reason in fields.faults:
            yield Reason(place, Sort.RECORD, address, name, value, reason)
        return
    if thread:
        yield thread
    anchor, superseded = "", False
    for number, section in enumerate(sections, start=1):
        where = f"{place} section {number}" if "sections" in record else place
        for item in _section(mapping, where, view, section, title, prefix):
            yield item
            if isinstance(item, UnitItem):
                anchor = anchor or item.address
                superseded |= _readiness(item.label) == "superseded"
                if thread:
                    yield _own(mapping, where, thread.address, item.address)
    yield DocumentItem(
        place=place,
        address=address,
        thread=thread.address if thread else "",
        anchor=anchor,
        absorbs=links.get(mapping.thread.absorbs, ()) if mapping.thread else (),
        links=links,
        superseded=superseded,
    )


def _thread(
    rule: ThreadRule,
    mapping: IngestMapping,
    place: str,
    view: Record,
    document: Fields,
    prefix: str,
) -> ThreadItem:
    fields = Fields(view)
    address = fields.address(rule.id, prefix=prefix)
    made = ThreadItem(
        place=place,
        address=address,
        title=fields.text(rule.title, most=TITLE_MAX),
        aliases=fields.texts(rule.aliases, most=TITLE_MAX) if rule.aliases else (),
        description="",
        purpose="",
        status="active",
        label=stored_label(mapping, view, place=place, sort=Sort.THREAD, address=address),
    )
    document.faults += [fault for fault in fields.faults if fault not in document.faults]
    return made


def _section(
    mapping: IngestMapping, place: str, view: Record, section: Any, title: str, prefix: str
) -> Iterator[Item]:
    if not isinstance(section, dict):
        yield Reason(place, Sort.RECORD, "", "sections", type(section).__name__, "not an object")
        return
    fields = Fields(section)
    address = fields.address("id", prefix=prefix)
    heading = fields.text("heading", most=TITLE_MAX, default=title)
    body = fields.text("text", most=BODY_MAX, blank=True)
    language = view.get("language")
    unit = UnitItem(
        place=place,
        address=address,
        title=heading,
        body=body,
        language=language if isinstance(language, str) else "",
        source=mapping.name,
        active_at=None,
        label=stored_label(
            mapping,
            {**view, "heading": heading},
            place=place,
            sort=Sort.UNIT,
            address=address,
        ),
    )
    if not fields.faults:
        yield unit
    elif "id" not in fields.wrong:
        yield from refused_labels(mapping, [unit])
    for name, value, reason in fields.faults:
        yield Reason(place, Sort.RECORD, address, name, value, reason)


def _sections(record: Record, fields: Fields) -> list[Any]:
    """The sections; a document with its own ``text`` has exactly one, itself."""
    if "text" in record and "sections" not in record:
        return [{"id": record.get("id"), "text": record["text"]}]
    sections = record.get("sections")
    if not isinstance(sections, list) or not 0 < len(sections) <= SECTIONS_MAX:
        fields.faults.append(("sections", "", "neither a list of sections nor a `text`"))
        return []
    return sections


def _links(record: Record, fields: Fields, prefix: str) -> dict[str, tuple[str, ...]]:
    links = record.get("links") or {}
    if not isinstance(links, dict):
        fields.faults.append(("links", type(links).__name__, "not an object"))
        return {}
    inner = Fields(links)
    for relation in links:
        if not RELATION.fullmatch(relation) or relation in record:
            inner.faults.append((shown(relation), "", "no name for a relation"))
    found = {relation: inner.addresses(relation, prefix=prefix) for relation in sorted(links)}
    fields.faults += inner.faults
    return found


def _own(mapping: IngestMapping, place: str, thread: str, unit: str) -> MembershipItem:
    return MembershipItem(
        place=place,
        thread=thread,
        unit=unit,
        role="canonical",
        confidence=1.0,
        status=None,
        added_by=f"ingest:{mapping.name}",
    )


def _readiness(label: StoredLabel | None) -> str | None:
    return label.facets["readiness"] if label is not None else None
