"""Writes batches of objects: what is new, what changed, and nothing where nothing did.

One batch is one transaction of the caller's. The second run over the same source writes no
revision, no outbox row and no quarantine row: every statement is told only what differs.

What another source brought is refused, whatever the record says of it; the session's origin
makes the database refuse it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from policies.vocabulary import FACETS
from retrieval.embed.ports import Embedder, unit_text
from retrieval.embed.quantise import pack
from retrieval.ingest import rows, statements
from retrieval.ingest.identity import label_id, thread_id, unit_id
from retrieval.ingest.items import (
    DeletionItem,
    LabelItem,
    RefusedItem,
    StoredLabel,
    ThreadItem,
    UnitItem,
)
from retrieval.ingest.ownership import FOREIGN, UNCLAIMED, Owner
from retrieval.ingest.report import Outcome, Reason, Report, Sort
from retrieval.threads.keyword import thread_form

Connection = psycopg.Connection[Any]


class Writer:
    """Writes under one connection, and counts what became of every object in ``report``."""

    def __init__(
        self,
        connection: Connection,
        report: Report,
        *,
        source: str,
        owner: Owner,
        embedder: Embedder | None,
    ) -> None:
        self._connection = connection
        self._report = report
        self._source = source
        self._owner = owner
        self._embedder = embedder

    def units(self, items: Sequence[UnitItem]) -> None:
        """Write units: new ones whole, changed content as a new revision, labels apart."""
        named = {unit_id(item.address): item for item in items}
        held, foreign = self._held(Sort.UNIT, statements.UNITS_HELD, named)
        outcomes: dict[UUID, Outcome] = {}
        known, new, changed = {}, [], []
        for ident, item in named.items():
            if ident in foreign:
                self._refuse_foreign(item.place, item.address)
                continue
            if ident not in held and item.label is None:
                self._refuse_keeping(item)
                continue
            known[ident] = item
            if ident not in held:
                new.append((ident, item, 1))
                outcomes[ident] = Outcome.ACCEPTED
            elif held[ident][0] != rows.unit_hash(item) or held[ident][2]:
                changed.append((ident, item, held[ident][1] + 1))
                outcomes[ident] = Outcome.CHANGED
        self._new_units(new)
        self._content(changed)
        labelled = {i: item.label for i, item in known.items() if item.label and i in held}
        for ident in self._relabel(statements.UNITS_LABEL, labelled):
            outcomes.setdefault(ident, Outcome.CHANGED)
        self._conclude(Sort.UNIT, {ident: item.label for ident, item in known.items()}, outcomes)
        good = {i: item for i, item in known.items() if not (item.label and item.label.reasons)}
        self._embed(good)

    def _held(
        self, sort: Sort, statement: str, named: Collection[UUID]
    ) -> tuple[dict[UUID, tuple[Any, ...]], frozenset[UUID]]:
        """What is stored already, adopted if it may be, and which of it is another source's."""
        rows = self._connection.execute(statement.encode(), [list(named)]).fetchall()
        unclaimed = [row[0] for row in rows if row[1] == UNCLAIMED]
        if self._owner.adopts and unclaimed:
            self._connection.execute(
                statements.ADOPTED[sort], [self._owner.origin, unclaimed, UNCLAIMED]
            )
        mine = {self._owner.origin, *([UNCLAIMED] if self._owner.adopts else [])}
        foreign = frozenset(row[0] for row in rows if row[1] not in mine)
        return {row[0]: row[2:] for row in rows}, foreign

    def _refuse_foreign(self, place: str, address: str) -> None:
        self.refuse([Reason(place, Sort.RECORD, address, "", "", FOREIGN)])

    def _refuse_keeping(self, item: UnitItem) -> None:
        reason = "there is no stored label to keep"
        self.refuse([Reason(item.place, Sort.RECORD, item.address, "keep_label", "true", reason)])

    def _new_units(self, new: Sequence[tuple[UUID, UnitItem, int]]) -> None:
        if not new:
            return
        made = [
            {**rows.unit_row(*one), **rows.label_row(one[0], one[1].label)}
            for one in new
            if one[1].label is not None
        ]
        self._execute(statements.UNITS_NEW, made)
        self._execute(statements.REVISIONS_NEW, [rows.revision_row(*one) for one in new])

    def _content(self, changed: Sequence[tuple[UUID, UnitItem, int]]) -> None:
        if not changed:
            return
        self._execute(statements.REVISIONS_NEW, [rows.revision_row(*one) for one in changed])
        self._execute(statements.UNITS_CONTENT, [rows.unit_row(*one) for one in changed])

    def _embed(self, items: Mapping[UUID, UnitItem]) -> None:
        """Vectors for what has none of this model yet (a kill may have come in between)."""
        if self._embedder is None or not items:
            return
        lacking = self._connection.execute(
            statements.UNITS_WITHOUT_VECTOR, [list(items), self._embedder.name]
        ).fetchall()
        if not lacking:
            return
        texts = [unit_text(items[ident].title, items[ident].body) for ident, _ in lacking]
        vectors = [pack(vector) for vector in self._embedder.embed(texts)]
        self._connection.execute(
            statements.VECTORS_NEW,
            [
                self._embedder.name,
                [ident for ident, _ in lacking],
                [revision for _, revision in lacking],
                vectors,
            ],
        )
        self._report.embedded += len(lacking)

    def threads(self, items: Sequence[ThreadItem]) -> None:
        """Write threads; their keyword postings follow the title, aliases and description."""
        named = {thread_id(item.address): item for item in items}
        held, foreign = self._held(Sort.THREAD, statements.THREADS_HELD, named)
        for ident in named:
            if ident in foreign:
                self._refuse_foreign(named[ident].place, named[ident].address)
        known = {ident: item for ident, item in named.items() if ident not in foreign}
        new = {ident: item for ident, item in known.items() if ident not in held}
        changed = {
            ident: item
            for ident, item in known.items()
            if ident in held and (held[ident][0] != rows.thread_hash(item) or held[ident][1])
        }
        self._execute(
            statements.THREADS_NEW,
            [
                {**rows.thread_row(ident, item), **rows.label_row(ident, item.label)}
                for ident, item in new.items()
            ],
        )
        self._execute(
            statements.THREADS_CONTENT, [rows.thread_row(*one) for one in changed.items()]
        )
        self._postings({**new, **changed})
        outcomes = dict.fromkeys(new, Outcome.ACCEPTED) | dict.fromkeys(changed, Outcome.CHANGED)
        labelled = {ident: item.label for ident, item in known.items() if ident in held}
        for ident in self._relabel(statements.THREADS_LABEL, labelled):
            outcomes.setdefault(ident, Outcome.CHANGED)
        self._conclude(Sort.THREAD, {ident: item.label for ident, item in known.items()}, outcomes)

    def _postings(self, items: Mapping[UUID, ThreadItem]) -> None:
        if not items:
            return
        self._connection.execute(statements.POSTINGS_GONE, [list(items)])
        postings = []
        for ident, item in items.items():
            terms, weights = thread_form(item.title, item.aliases, item.description)
            postings.append({"id": str(ident), "terms": terms, "weights": weights})
        self._execute(statements.POSTINGS_NEW, postings)

    def labels(self, items: Sequence[LabelItem]) -> None:
        """Write terms of the vocabulary. What carries them is linked later."""
        made = {label_id(item.term, item.version, item.label.tenant): item for item in items}
        self.governed(
            Sort.LABEL,
            {ident: item.label for ident, item in made.items()},
            places={ident: (item.place, item.term) for ident, item in made.items()},
            held=statements.LABELS_HELD,
            insert=statements.LABELS_NEW,
            content=statements.LABELS_CONTENT,
            update=statements.LABELS_LABEL,
            more=lambda ident: {
                "term": made[ident].term,
                "version": made[ident].version,
                "aliases": list(made[ident].aliases),
            },
        )

    def governed(
        self,
        sort: Sort,
        named: Mapping[UUID, StoredLabel],
        *,
        places: Mapping[UUID, tuple[str, str]],
        held: str,
        insert: str,
        content: str,
        update: str,
        more: Callable[[UUID], Mapping[str, Any]],
    ) -> None:
        """Write objects that are hardly more than their label. ``places``: and addresses."""
        _, foreign = self._held(sort, held, named)
        for ident in named:
            if ident in foreign:
                self._refuse_foreign(*places[ident])
        labels = {ident: label for ident, label in named.items() if ident not in foreign}
        made = [{**rows.label_row(*one), **more(one[0])} for one in labels.items()]
        outcomes = dict.fromkeys(self._execute(insert, made), Outcome.ACCEPTED)
        for ident in (*self._execute(content, made), *self._relabel(update, labels)):
            outcomes.setdefault(ident, Outcome.CHANGED)
        self._conclude(sort, labels, outcomes)

    def deletions(self, items: Sequence[DeletionItem]) -> None:
        """Set tombstones. The index drops the unit, its address stays taken."""
        idents = {unit_id(item.address): item for item in items}
        there, foreign = self._held(Sort.UNIT, statements.UNITS_HELD, idents)
        own = [ident for ident in there if ident not in foreign]
        buried = {r[0] for r in self._connection.execute(statements.UNITS_BURIED, [own])}
        for ident, item in idents.items():
            if ident not in there:
                self.refuse([_absent(item.place, "address", item.address, "unit")])
            elif ident in foreign:
                self._refuse_foreign(item.place, item.address)
            else:
                outcome = Outcome.CHANGED if ident in buried else Outcome.UNCHANGED
                self._report.count(Sort.DELETION, outcome)

    def relabel(self, items: Sequence[RefusedItem]) -> None:
        """State the labels of what is stored and was refused now. Whatever is not there, or another
        source's, stays as it is; the last one of several counts."""
        for sort, held, update in (
            (Sort.THREAD, statements.THREADS_HELD, statements.THREADS_LABEL),
            (Sort.LABEL, statements.LABELS_HELD, statements.LABELS_LABEL),
            (Sort.UNIT, statements.UNITS_HELD, statements.UNITS_LABEL),
        ):
            labels = {item.ident: item.label for item in items if item.sort is sort}
            if labels:
                there, foreign = self._held(sort, held, labels)
                own = {one: labels[one] for one in labels if one in there and one not in foreign}
                self._relabel(update, own)

    def refuse(self, reasons: Sequence[Reason]) -> None:
        """Count and list a record of which nothing is stored."""
        self._report.refuse(reasons)
        self._execute(
            statements.QUARANTINE_NEW,
            [rows.quarantine_row(reason, None, self._source) for reason in reasons],
        )

    def _conclude(
        self,
        sort: Sort,
        labels: Mapping[UUID, StoredLabel | None],
        outcomes: Mapping[UUID, Outcome],
    ) -> None:
        """Count the objects, and bring the quarantine rows of ingest's own up to date."""
        open_rows = []
        for ident, label in labels.items():
            if label is None or not label.reasons:
                self._report.count(sort, outcomes.get(ident, Outcome.UNCHANGED))
                continue
            self._report.refuse(label.reasons)
            open_rows += [
                rows.quarantine_row(reason, ident, self._source)
                for reason in label.reasons
                # a word that stands in its column is listed by the database itself
                if not (reason.field in FACETS and label.facets[reason.field] is not None)
            ]
        judged = [ident for ident, label in labels.items() if label is not None]
        self._connection.execute(statements.QUARANTINE_CLOSED, [sort, judged, Jsonb(open_rows)])
        self._execute(statements.QUARANTINE_NEW, open_rows)

    def _relabel(self, statement: str, labels: Mapping[UUID, StoredLabel]) -> list[UUID]:
        """State labels; which objects changed by it (a wish that waits changes none)."""
        if not labels:
            return []
        made = [rows.label_row(*one) for one in labels.items()]
        cursor = self._connection.execute(statement.encode(), [Jsonb(made)])
        return [ident for ident, noticed in cursor if noticed]

    def _execute(self, statement: str, made: Iterable[rows.Row]) -> list[UUID]:
        """Run a statement over rows; the ids that it returns, if it does."""
        listed = list(made)
        if not listed:
            return []
        cursor = self._connection.execute(statement.encode(), [Jsonb(listed)])
        return [row[0] for row in cursor] if cursor.description else []


def _absent(place: str, field: str, address: str, what: str) -> Reason:
    return Reason(place, Sort.RECORD, "", field, address, f"there is no such {what}")
