"""What joins objects: memberships, edges, artifacts and label links, written once all are there.

A link that a record names itself and whose end does not exist is quarantined. A pointer of a
document that leads outside of what was ever ingested is a note: sources are excerpts. A link
that would join what another source brought is quarantined; only an edge may point to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from retrieval.ingest import statements
from retrieval.ingest.identity import artifact_id, edge_id, label_id, thread_id, unit_id
from retrieval.ingest.items import (
    ArtifactItem,
    DocumentItem,
    EdgeItem,
    LabelItem,
    MembershipItem,
)
from retrieval.ingest.ownership import FOREIGN
from retrieval.ingest.report import Note, Outcome, Reason, Report, Sort
from retrieval.ingest.rows import Row
from retrieval.ingest.writer import Writer

Pair = tuple[UUID, UUID]
Origins = Mapping[UUID, str]
"""What is stored, and whose it is."""

ABSENT: Final = "there is no such object"


@dataclass(slots=True)
class Pending:
    """The links of one source, gathered while its objects are written."""

    memberships: list[MembershipItem] = field(default_factory=list)
    edges: list[EdgeItem] = field(default_factory=list)
    artifacts: list[ArtifactItem] = field(default_factory=list)
    labels: list[LabelItem] = field(default_factory=list)
    documents: list[DocumentItem] = field(default_factory=list)


@dataclass(slots=True)
class LinkWriter:
    """Writes ``pending`` in the caller's transaction. ``mapping`` is the mapping's name."""

    connection: psycopg.Connection[Any]
    writer: Writer
    report: Report
    mapping: str
    origin: str

    def write(self, pending: Pending) -> None:
        units = self._there(statements.UNITS_THERE, _unit_ids(pending))
        threads = self._there(statements.THREADS_THERE, _thread_ids(pending))
        self._memberships(pending.memberships, units, threads)
        self._absorb(pending.documents, threads)
        self._edges([*pending.edges, *self._document_edges(pending.documents)], units)
        self._artifacts(pending.artifacts, threads)
        labels = self._there(statements.LABELS_HELD, map(_label_id, pending.labels))
        own = [one for one in pending.labels if labels.get(_label_id(one)) == self.origin]
        self._label_links(own, units, threads)
        self._note_superseded(pending.documents)

    def _there(self, statement: str, ids: Iterable[UUID]) -> Origins:
        return dict(self.connection.execute(statement.encode(), [list(ids)]).fetchall())

    def _faults(self, place: str, *ends: tuple[str, str, str | None]) -> list[Reason]:
        """What is wrong with these ends of a link: (field, address, origin or None if absent)."""
        return [
            Reason(place, Sort.RECORD, "", name, address, ABSENT if origin is None else FOREIGN)
            for name, address, origin in ends
            if origin != self.origin
        ]

    # --- memberships ----------------------------------------------------------------------

    def _memberships(
        self,
        items: Iterable[MembershipItem],
        units: Origins,
        threads: Origins,
    ) -> None:
        chosen: dict[Pair, MembershipItem] = {}
        for item in items:
            pair = (thread_id(item.thread), unit_id(item.unit))
            faults = self._faults(
                item.place,
                ("thread", item.thread, threads.get(pair[0])),
                ("unit", item.unit, units.get(pair[1])),
            )
            before = chosen.get(pair)
            if before is not None and _said(before) != _said(item):
                faults.append(_contradiction(item.place, before.place))
            if faults:
                self.writer.refuse(faults)
            else:
                chosen[pair] = item
        for judged in (False, True):
            made = [
                _membership_row(pair, item)
                for pair, item in chosen.items()
                if (item.status is not None) is judged
            ]
            self._upsert(Sort.MEMBERSHIP, statements.memberships(judged=judged), made)

    def _absorb(self, documents: Collection[DocumentItem], threads: Origins) -> None:
        """Bring the units of what a document replaces into its thread, and let go of others."""
        pairs = []
        of_own = [one for one in documents if threads.get(thread_id(one.thread)) == self.origin]
        for one in of_own:
            for address in one.absorbs:
                if thread_id(address) in threads:
                    faults = self._faults(
                        one.place, ("links", address, threads[thread_id(address)])
                    )
                    if faults:
                        self.writer.refuse(faults)
                        continue
                    pairs.append(
                        {
                            "thread_id": str(thread_id(one.thread)),
                            "absorbed": str(thread_id(address)),
                        }
                    )
                else:
                    self.report.notes.append(Note("absorbs_unknown", one.address, address))
        added_by = f"ingest:{self.mapping}:absorbed"
        found = self.connection.execute(statements.ABSORBED, [Jsonb(pairs), self.origin]).fetchall()
        wanted: set[Pair] = {(thread, unit) for thread, unit in found}
        own = [thread_id(one.thread) for one in of_own]
        self.connection.execute(
            statements.ABSORBED_GONE,
            [
                *(added_by, own, self.origin),
                [thread for thread, _ in wanted],
                [unit for _, unit in wanted],
            ],
        )
        made = [
            {
                "thread_id": str(thread),
                "unit_id": str(unit),
                "role": "supporting",
                "confidence": 1.0,
                "status": None,
                "added_by": added_by,
            }
            for thread, unit in wanted
        ]
        self._upsert(Sort.MEMBERSHIP, statements.memberships(judged=False), made)

    # --- edges, artifacts, labels ---------------------------------------------------------

    def _document_edges(self, documents: Collection[DocumentItem]) -> list[EdgeItem]:
        """A pointer between documents, as an edge between their first units."""
        anchors = {one.address: one.anchor for one in documents if one.anchor}
        made = []
        for one in documents:
            for relation, targets in one.links.items():
                for target in targets:
                    if target not in anchors:
                        detail = f"{relation} {target}"
                        self.report.notes.append(Note("points_outside", one.address, detail))
                    elif one.anchor and target != one.address:
                        made.append(EdgeItem(one.place, one.anchor, anchors[target], relation, 1.0))
        return made

    def _edges(self, items: Iterable[EdgeItem], units: Origins) -> None:
        made: dict[UUID, Row] = {}
        for item in items:
            src, dst = unit_id(item.source), unit_id(item.target)
            there = self.origin if dst in units else None  # whoever's it is
            faults = self._faults(
                item.place, ("from", item.source, units.get(src)), ("to", item.target, there)
            )
            row = {
                "id": str(edge_id(src, item.relation, dst)),
                "src": str(src),
                "dst": str(dst),
                "relation": item.relation,
                "confidence": item.confidence,
            }
            ident = edge_id(src, item.relation, dst)
            if made.get(ident, row) != row:
                faults.append(_contradiction(item.place, ""))
            if faults:
                self.writer.refuse(faults)
            else:
                made[ident] = row
        self._upsert(Sort.EDGE, statements.EDGES, list(made.values()))

    def _artifacts(self, items: Iterable[ArtifactItem], threads: Origins) -> None:
        made: dict[UUID, ArtifactItem] = {}
        for item in items:
            thread = thread_id(item.thread)
            faults = self._faults(item.place, ("thread", item.thread, threads.get(thread)))
            if faults:
                self.writer.refuse(faults)
                continue
            ident = artifact_id(thread, item.label.lifecycle_stage, item.title)
            if ident in made:
                self.writer.refuse([_contradiction(item.place, made[ident].place)])
                continue
            made[ident] = item
        self.writer.governed(
            Sort.ARTIFACT,
            {ident: item.label for ident, item in made.items()},
            places={ident: (item.place, item.thread) for ident, item in made.items()},
            held=statements.ARTIFACTS_HELD,
            insert=statements.ARTIFACTS_NEW,
            content=statements.ARTIFACTS_CONTENT,
            update=statements.ARTIFACTS_LABEL,
            more=lambda ident: {
                "thread_id": str(thread_id(made[ident].thread)),
                "title": made[ident].title,
            },
        )

    def _label_links(self, items: Iterable[LabelItem], units: Origins, threads: Origins) -> None:
        of_units: list[Pair] = []
        of_threads: list[Pair] = []
        for item in items:
            ident = _label_id(item)
            ends = [("units", a, units.get(unit_id(a))) for a in item.units]
            ends += [("threads", a, threads.get(thread_id(a))) for a in item.threads]
            faults = self._faults(item.place, *ends)
            if faults:
                self.writer.refuse(faults)
            of_units += [
                (ident, unit_id(a)) for a in item.units if units.get(unit_id(a)) == self.origin
            ]
            of_threads += [
                (ident, thread_id(a))
                for a in item.threads
                if threads.get(thread_id(a)) == self.origin
            ]
        for statement, pairs in (
            (statements.UNIT_LABELS, of_units),
            (statements.THREAD_LABELS, of_threads),
        ):
            if pairs:
                self.connection.execute(statement, [[p[0] for p in pairs], [p[1] for p in pairs]])

    def _note_superseded(self, documents: Collection[DocumentItem]) -> None:
        """What a reader of the source would stumble over: superseded by nothing, or not at all."""
        for one in documents:
            successors = one.links.get("superseded_by", ())
            if one.superseded and not successors:
                self.report.notes.append(Note("superseded_by_nothing", one.address, ""))
            if successors and not one.superseded:
                self.report.notes.append(
                    Note("has_successor_but_is_current", one.address, " ".join(successors))
                )

    def _upsert(self, sort: Sort, statement: str, made: list[Row]) -> None:
        """Write links and count them; what the statement does not return was there already."""
        if not made:
            return
        returned = self.connection.execute(statement.encode(), [Jsonb(made)]).fetchall()
        inserted = sum(1 for (new,) in returned if new)
        self.report.count(sort, Outcome.ACCEPTED, inserted)
        self.report.count(sort, Outcome.CHANGED, len(returned) - inserted)
        self.report.count(sort, Outcome.UNCHANGED, len(made) - len(returned))


def _membership_row(pair: Pair, item: MembershipItem) -> Row:
    return {
        "thread_id": str(pair[0]),
        "unit_id": str(pair[1]),
        "role": item.role,
        "confidence": item.confidence,
        "status": item.status,
        "added_by": item.added_by,
    }


def _said(item: MembershipItem) -> tuple[object, ...]:
    return (item.role, item.confidence, item.status)


def _label_id(item: LabelItem) -> UUID:
    return label_id(item.term, item.version, item.label.tenant)


def _contradiction(place: str, other: str) -> Reason:
    where = f" at {other}" if other else ""
    return Reason(place, Sort.RECORD, "", "", "", f"the same was said differently{where}")


def _unit_ids(pending: Pending) -> set[UUID]:
    return {
        *(unit_id(one.unit) for one in pending.memberships),
        *(unit_id(end) for one in pending.edges for end in (one.source, one.target)),
        *(unit_id(one.anchor) for one in pending.documents if one.anchor),
        *(unit_id(address) for one in pending.labels for address in one.units),
    }


def _thread_ids(pending: Pending) -> set[UUID]:
    return {
        *(thread_id(one.thread) for one in pending.memberships),
        *(thread_id(one.thread) for one in pending.artifacts),
        *(thread_id(one.thread) for one in pending.documents if one.thread),
        *(thread_id(address) for one in pending.documents for address in one.absorbs),
        *(thread_id(address) for one in pending.labels for address in one.threads),
    }
