"""The run: read, convert, write in batches with a checkpoint, then link, then report.

Laws
    * A batch and its checkpoint are one transaction. A run that was killed goes on behind the
      last one, when the source, the mapping and the embedder are the same; else from the
      beginning, which comes to the same and only takes longer.
    * Links are one transaction at the end, together with the removal of the checkpoint.
    * Nothing that one record holds stops the others.
    * One run at a time per database, for one source: what it brings is its own, and it touches
      nothing of another's (``ownership``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from policies.mapping import IngestMapping
from retrieval.embed.ports import Embedder
from retrieval.ingest import statements
from retrieval.ingest.convert import Converter
from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.identity import label_id, thread_id, unit_id
from retrieval.ingest.items import (
    ArtifactItem,
    DeletionItem,
    DocumentItem,
    EdgeItem,
    Item,
    LabelItem,
    MembershipItem,
    RefusedItem,
    ThreadItem,
    UnitItem,
)
from retrieval.ingest.links import LinkWriter, Pending
from retrieval.ingest.ownership import Owner, owner_named
from retrieval.ingest.report import Reason, Report, Sort, Waiting
from retrieval.ingest.rows import quarantine_row, thread_hash
from retrieval.ingest.sources import Raw, open_source
from retrieval.ingest.writer import Writer

LOCK_KEY: Final = 0x67_77_5F_69_6E_67
BATCH: Final = 200
"""Objects a transaction. With vectors made on the way, about two seconds of work."""

OnProgress = Callable[[int, int], None]
"""Called with (records done, records in all) after each batch."""


class Records(Protocol):
    """What a run reads. ``partial``: what stands in it is not all that the source has."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def total(self) -> int: ...

    @property
    def partial(self) -> bool: ...

    def __iter__(self) -> Iterator[Raw]: ...

    def finish(
        self, target: psycopg.Connection[Any], *, origin: str, mapping: str, report: Report
    ) -> None:
        """The source's last word, in the transaction that ends the run."""
        ...


def marks_of(dsn: str, origin: str, place: str) -> dict[str, int]:
    """How far the views of ``place`` were read for this source. Raises ``IngestRefused``."""
    try:
        with psycopg.connect(dsn) as connection:
            connection.execute("select set_config('gw.origin', %s, true)", [origin])
            return dict(connection.execute(statements.MARKS, [place]).fetchall())
    except psycopg.Error as error:
        raise _refusal(error) from error


def run(
    source: Path | Records,
    mapping: IngestMapping,
    *,
    dsn: str,
    origin: str | None = None,
    adopt: bool = False,
    author: str = "",
    embedder: Embedder | None = None,
    on_progress: OnProgress | None = None,
    batch: int = BATCH,
) -> Report:
    """Bring everything that ``source`` holds into the record of truth, labelled by ``mapping``.

    ``origin`` is the name under which the source owns what it brings (its mapping's name if
    None); ``adopt`` also takes what it names and no source has claimed yet. ``author`` is who
    answers for labels that widen and therefore wait for somebody else's approval (the source's
    name if empty).
    ``dsn`` logs in as ``gw_ingest``. Without an embedder the index worker makes the vectors.
    Returns what became of every record (``Report.exit_code`` is the command's).
    Raises ``IngestRefused`` when the name is none, or the source or the database cannot be had;
    what was written until then stays and is not written again.
    """
    owner = owner_named(mapping.name if origin is None else origin, adopts=adopt)
    opened = open_source(source) if isinstance(source, Path) else source
    key = _run_key(opened, mapping, embedder, owner)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection, _alone(connection):
            connection.execute(
                statements.AT_WORK,
                {
                    "origin": owner.origin,
                    "adopt": "on" if adopt else "off",
                    "author": author or f"source:{owner.origin}",
                    "mapping": mapping.name,
                    "fingerprint": mapping.fingerprint,
                    "reason": f"ingest of {opened.name}",
                },
            )
            return _Run(connection, opened, mapping, owner, embedder, key, batch).go(on_progress)
    except psycopg.Error as error:
        raise _refusal(error) from error


@dataclass(slots=True)
class _Run:
    connection: psycopg.Connection[Any]
    source: Records
    mapping: IngestMapping
    owner: Owner
    embedder: Embedder | None
    key: str
    batch: int
    report: Report = field(default_factory=Report)
    pending: Pending = field(default_factory=Pending)
    units: list[UnitItem] = field(default_factory=list)
    threads: list[ThreadItem] = field(default_factory=list)
    labels: list[LabelItem] = field(default_factory=list)
    deletions: list[DeletionItem] = field(default_factory=list)
    refusals: list[list[Reason]] = field(default_factory=list)
    refused: list[RefusedItem] = field(default_factory=list)
    seen: dict[UUID, tuple[str, str]] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)

    def go(self, on_progress: OnProgress | None) -> Report:
        done = self._resume()
        convert = Converter(self.mapping)
        for number, raw in enumerate(self.source, start=1):
            if self.source.partial:
                self.places.add(raw.place)
            self._take(convert.items(raw))
            if number <= done:
                self._forget()  # written by the run that was killed; links are still to come
            elif self._waiting() >= self.batch:
                self._flush(number)
                if on_progress is not None:
                    on_progress(number, self.source.total)
        self._flush(self.source.total)
        with self.connection.transaction():
            LinkWriter(
                self.connection,
                self._writer(),
                self.report,
                mapping=self.mapping.name,
                origin=self.owner.origin,
            ).write(self.pending)
            self.source.finish(
                self.connection,
                origin=self.owner.origin,
                mapping=self.mapping.name,
                report=self.report,
            )
            self._list_unclassed()
            self._list_waiting()
            self._close_records()
            self.connection.execute(statements.CHECKPOINT_GONE, [self.key])
        self.report.reasons.sort()
        self.report.notes.sort()
        if on_progress is not None:
            on_progress(self.source.total, self.source.total)
        return self.report

    # --- gathering ------------------------------------------------------------------------

    def _take(self, items: Iterable[Item]) -> None:
        """Sort the items of one record; refuse what is named twice."""
        refused: list[Reason] = []
        for item in items:
            match item:
                case Reason():
                    refused.append(item)
                case UnitItem():
                    if self._first(unit_id(item.address), item.address, item.place, ""):
                        self.units.append(item)
                case ThreadItem():
                    content = f"{thread_hash(item)} {item.label.facets}"
                    if self._first(thread_id(item.address), item.address, item.place, content):
                        self.threads.append(item)
                case LabelItem():
                    ident = label_id(item.term, item.version, item.label.tenant)
                    if self._first(ident, item.term, item.place, ""):
                        self.labels.append(item)
                        self.pending.labels.append(item)
                case DeletionItem():
                    if self._first(unit_id(item.address), item.address, item.place, ""):
                        self.deletions.append(item)
                case RefusedItem():
                    self.refused.append(item)
                case MembershipItem():
                    self.pending.memberships.append(item)
                case EdgeItem():
                    self.pending.edges.append(item)
                case ArtifactItem():
                    self.pending.artifacts.append(item)
                case DocumentItem():
                    self.pending.documents.append(item)
        if refused:
            self.refusals.append(refused)

    def _first(self, ident: UUID, address: str, place: str, content: str) -> bool:
        """Whether this is the first time; a second telling that differs is refused.

        ``content`` is empty where even an equal second telling is a mistake.
        """
        before = self.seen.setdefault(ident, (place, content))
        if before[0] == place and before == (place, content):
            return True
        if not content or before[1] != content:
            reason = f"named twice, first at {before[0]}"
            self.refusals.append([Reason(place, Sort.RECORD, address, "", "", reason)])
        return False

    def _waiting(self) -> int:
        waiting = len(self.units) + len(self.threads) + len(self.labels) + len(self.deletions)
        return waiting + len(self.refused)

    def _forget(self) -> None:
        for waiting in (self.units, self.threads, self.labels, self.deletions):
            waiting.clear()
        self.refusals.clear()
        self.refused.clear()

    # --- writing --------------------------------------------------------------------------

    def _writer(self) -> Writer:
        return Writer(
            self.connection,
            self.report,
            source=self.source.name,
            owner=self.owner,
            embedder=self.embedder,
        )

    def _flush(self, done: int) -> None:
        """One batch and its checkpoint. Threads first: units may be waiting for their facets."""
        with self.connection.transaction():
            writer = self._writer()
            for refused in self.refusals:
                writer.refuse(refused)
            for write, items in (
                (writer.threads, self.threads),
                (writer.labels, self.labels),
                (writer.units, self.units),
                (writer.deletions, self.deletions),
            ):
                if items:
                    write(items)  # type: ignore[arg-type]
            # of what is named twice, the record that can be stored has spoken
            writer.relabel([one for one in self.refused if one.ident not in self.seen])
            self.connection.execute(
                statements.CHECKPOINT_KEPT, [self.key, done, Jsonb(self.report.as_json())]
            )
        self._forget()

    def _resume(self) -> int:
        row = self.connection.execute(statements.CHECKPOINT, [self.key]).fetchone()
        if row is None:
            return 0
        self.report = Report.from_json(row[1])
        self.report.resumed_at = row[0]
        return int(row[0])

    def _list_unclassed(self) -> None:
        """List what only the database could know: blanks that no thread filled, and the like."""
        listed = {(reason.sort, reason.place) for reason in self.report.reasons}
        found = self.connection.execute(
            statements.UNCLASSED, {"ids": list(self.seen), "origin": self.owner.origin}
        )
        for sort, ident, address, facet, value, reason in found:
            place = self.seen[ident][0]
            if (sort, place) not in listed:
                self.report.reasons.append(Reason(place, Sort(sort), address, facet, value, reason))

    def _list_waiting(self) -> None:
        """List what this source wished to open, in this run or an earlier one."""
        for row in self.connection.execute(statements.WAITING, [self.owner.origin]):
            sort, address, rejected, closed, gained = row
            self.report.waiting.append(
                Waiting(Sort(sort), address, rejected, closed, tuple(gained))
            )

    def _close_records(self) -> None:
        """Close the rows of records of this source that are not refused any more."""
        still = [
            quarantine_row(reason, None, self.source.name)
            for reason in self.report.reasons
            if reason.sort is Sort.RECORD
        ]
        places = sorted(self.places) if self.source.partial else None
        self.connection.execute(
            statements.RECORDS_CLOSED, [self.source.name, places, places, Jsonb(still)]
        )


@contextmanager
def _alone(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """One ingest at a time. Let go by a word of ours: a server notices a closed connection some
    time after whoever closed it, and the next run may already be there."""
    row = connection.execute(statements.LOCK, [LOCK_KEY]).fetchone()
    if row is None or not row[0]:
        raise IngestRefused(
            "ingest_running", "another ingest is at work on this database", "wait until it is done"
        )
    try:
        yield
    finally:
        if connection.info.transaction_status is TransactionStatus.IDLE:
            connection.execute(statements.UNLOCK, [LOCK_KEY])


def _run_key(
    source: Records, mapping: IngestMapping, embedder: Embedder | None, owner: Owner
) -> str:
    """What must be equal for a run to go on where another one stopped."""
    parts = [source.name, source.digest, embedder.name if embedder else ""]
    parts += [owner.origin, "adopts" if owner.adopts else ""]
    canonical = json.dumps([*parts, mapping.canonical])
    return hashlib.sha256(canonical.encode()).hexdigest()


def _refusal(error: psycopg.Error) -> IngestRefused:
    """What the operator is told of a database error: its kind, never a statement's values."""
    match error:
        case errors.DiskFull():
            return IngestRefused(
                "disk_full", "the database's disk is full", "free some space, then run again"
            )
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.InvalidSchemaName():
            return IngestRefused(
                "not_migrated", "the database has another schema", "run the migrations first"
            )
        case errors.InsufficientPrivilege():
            return IngestRefused(
                "not_permitted", "the login may not write", "use the login of the ingest station"
            )
        case psycopg.OperationalError():
            return IngestRefused(
                "database_unavailable",
                "the database does not answer",
                "start it, or correct GATEWAY_DATABASE_URL, then run again",
            )
    return IngestRefused(
        "database_error",
        f"the database refused a batch ({error.sqlstate or type(error).__name__})",
        "report it; what was written before is kept",
    )
