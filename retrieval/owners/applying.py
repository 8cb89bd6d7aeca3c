"""One change of a thread after the other, through ingest's own writers.

So an owner's change goes through the same statements and triggers as a source's record: what
belongs to another source is refused, wider labels wait, postings and classes follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, assert_never
from uuid import UUID

import psycopg

from policies.bindings import COMPARTMENT
from policies.decision import SHARED
from policies.vocabulary import FACETS, Vocabulary
from retrieval.ingest.identity import artifact_id, edge_id, label_id, thread_id, unit_id
from retrieval.ingest.items import (
    ArtifactItem,
    EdgeItem,
    MembershipItem,
    StoredLabel,
    ThreadItem,
)
from retrieval.ingest.links import ABSENT, LinkWriter, Pending
from retrieval.ingest.ownership import FOREIGN, Owner
from retrieval.ingest.report import Report
from retrieval.ingest.writer import Writer
from retrieval.owners.errors import bad_edit
from retrieval.owners.reading import LABEL
from retrieval.owners.wire import (
    AddEdge,
    AddMember,
    AddTerm,
    Bury,
    Change,
    DropEdge,
    DropMember,
    DropTerm,
    Expect,
    Label,
    SetThread,
    Unexpect,
)

_WISHED: Final = f"coalesce(t.wish, array[{', '.join(f't.{name}' for name in LABEL)}])"
_THREAD: Final = f"""
    select t.title, t.aliases, t.description, t.purpose, t.status, {_WISHED}
    from brain.thread t where t.id = %s"""
_ARTIFACT: Final = f"select {_WISHED} from brain.expected_artifact t where t.id = %s"
_IS_MEMBER: Final = "select from brain.thread_membership where thread_id = %s and unit_id = %s"
_TERM: Final = "select from brain.label where id = %s and origin = %s and deleted_at is null"
_DROPS: Final = {
    "member": "delete from brain.thread_membership where thread_id = %s and unit_id = %s",
    "term": "delete from brain.thread_label where thread_id = %s and label_id = %s",
    "edge": "delete from brain.edge where id = %s",
    "artifact": "update brain.expected_artifact set deleted_at = now()"
    " where id = %s and deleted_at is null",
    "thread": "update brain.thread set deleted_at = now() where id = %s and deleted_at is null",
}
_TERM_ADDED: Final = (
    "insert into brain.thread_label (label_id, thread_id) values (%s, %s) on conflict do nothing"
)


@dataclass(frozen=True, slots=True)
class Applier:
    """Applies changes to one thread in the caller's transaction, which names source and author."""

    connection: psycopg.Connection[Any]
    vocabulary: Vocabulary
    source: str
    address: str
    author: str

    @property
    def thread(self) -> UUID:
        return thread_id(self.address)

    def apply(self, change: Change, place: str) -> None:
        """Raises: OwnersRefused for what cannot be stored; the transaction is then of no use."""
        match change:
            case SetThread():
                self._set(change, place)
            case AddMember():
                self._links(Pending(memberships=[self._membership(change, place)]))
            case DropMember():
                self._drop("member", place, change.unit, self.thread, unit_id(change.unit))
            case Expect():
                self._expect(change, place)
            case Unexpect():
                ident = artifact_id(self.thread, change.lifecycle_stage, change.title)
                self._drop("artifact", place, change.title, ident)
            case AddTerm():
                self._add_term(change, place)
            case DropTerm():
                ident = label_id(change.term, change.version, change.tenant)
                self._drop("term", place, change.term, self.thread, ident)
            case AddEdge():
                self._of_member(change.source, place)
                edge = EdgeItem(
                    place, change.source, change.target, change.relation, change.confidence
                )
                self._links(Pending(edges=[edge]))
            case DropEdge():
                self._of_member(change.source, place)
                ends = unit_id(change.source), unit_id(change.target)
                name = f"{change.source} {change.relation} {change.target}"
                self._drop("edge", place, name, edge_id(ends[0], change.relation, ends[1]))
            case Bury():
                self._drop("thread", place, self.address, self.thread)
            case _:
                assert_never(change)

    # --- the thread itself ----------------------------------------------------------------

    def _set(self, change: SetThread, place: str) -> None:
        row = self.connection.execute(_THREAD.encode(), [self.thread]).fetchone()
        if row is None and change.title is None:
            raise bad_edit(f"{place}: a new thread needs a title")
        words: list[str | None] = [None] * len(LABEL)
        title, aliases, description, purpose, status = "", [], "", "", "active"
        if row is not None:
            title, aliases, description, purpose, status, words = row
        item = ThreadItem(
            place=place,
            address=self.address,
            title=change.title if change.title is not None else title,
            aliases=tuple(dict.fromkeys(change.aliases if change.aliases is not None else aliases)),
            description=change.description if change.description is not None else description,
            purpose=change.purpose if change.purpose is not None else purpose,
            status=change.status or status,
            label=self._label(change.label, words, place, kind="thread"),
        )
        report = Report()
        self._writer(report).threads([item])
        _accepted(report)

    def _label(
        self, said: Label, words: list[str | None], place: str, *, kind: str = "", stage: str = ""
    ) -> StoredLabel:
        """The whole label: what is said over what is wished. Raises: OwnersRefused."""
        held = dict(zip(LABEL, words, strict=True))
        whole = {name: getattr(said, name) or held[name] for name in LABEL}
        if kind:
            whole["kind"] = said.kind or kind
        for facet in FACETS:
            known = (kind,) if facet == "kind" and kind else self.vocabulary.live(facet)
            if whole[facet] not in known:
                given = f"`{whole[facet]}` is" if whole[facet] else "it is absent, not"
                wanted = ", ".join(known)
                raise bad_edit(f"{place}: label.{facet}: {given} none of {wanted}")
        for name in ("tenant", "jurisdiction"):
            value = whole[name] or ""
            if value != SHARED and not COMPARTMENT.fullmatch(value):
                raise bad_edit(f"{place}: label.{name}: neither `{SHARED}` nor a compartment")
        facets = {facet: whole[facet] for facet in FACETS}
        return StoredLabel(
            facets, stage or "other", whole["tenant"] or "", whole["jurisdiction"] or "", ()
        )

    # --- what belongs to it -----------------------------------------------------------------

    def _membership(self, change: AddMember, place: str) -> MembershipItem:
        return MembershipItem(
            place=place,
            thread=self.address,
            unit=change.unit,
            role=change.role,
            confidence=change.confidence,
            status=change.status,
            added_by=f"owner:{self.author}"[:200],
        )

    def _expect(self, change: Expect, place: str) -> None:
        ident = artifact_id(self.thread, change.lifecycle_stage, change.title)
        row = self.connection.execute(_ARTIFACT.encode(), [ident]).fetchone()
        words: list[str | None] = row[0] if row is not None else [None] * len(LABEL)
        label = self._label(change.label, words, place, stage=change.lifecycle_stage)
        self._links(Pending(artifacts=[ArtifactItem(place, self.address, change.title, label)]))

    def _add_term(self, change: AddTerm, place: str) -> None:
        ident = label_id(change.term, change.version, change.tenant)
        if self.connection.execute(_TERM, [ident, self.source]).fetchone() is None:
            raise bad_edit(f"{place}: this source has no term `{change.term}@{change.version}`")
        self.connection.execute(_TERM_ADDED, [ident, self.thread])

    def _of_member(self, unit: str, place: str) -> None:
        if self.connection.execute(_IS_MEMBER, [self.thread, unit_id(unit)]).fetchone() is None:
            raise bad_edit(f"{place}: `{unit}` is no member of this thread")

    def _links(self, pending: Pending) -> None:
        report = Report()
        LinkWriter(
            self.connection,
            self._writer(report),
            report,
            mapping="",
            origin=self.source,
        ).write(pending)
        _accepted(report)

    def _drop(self, what: str, place: str, name: str, *idents: UUID) -> None:
        if self.connection.execute(_DROPS[what].encode(), idents).rowcount == 0:
            raise bad_edit(f"{place}: there is no such {what} here: `{name}`")

    def _writer(self, report: Report) -> Writer:
        owner = Owner(self.source, adopts=False)
        return Writer(
            self.connection, report, source=f"owner:{self.source}", owner=owner, embedder=None
        )


def _accepted(report: Report) -> None:
    """Return when the writers took everything; an owner's mistake is refused, not quarantined.

    What another source has is like what nobody has: its owner is not told that it exists.
    """
    if report.reasons:
        first = report.reasons[0]
        raise bad_edit(str(replace(first, reason=ABSENT) if first.reason == FOREIGN else first))
