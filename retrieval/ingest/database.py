"""A knowledge base in another Postgres database, as a source: four views, read and never written.

    unit    address revision complete title body language active_at thread role words
    thread  address revision complete title aliases description purpose status words
    term    term version revision complete aliases units threads words
    edge    sort source relation target confidence status revision complete

``words`` is an object with the fields that the mapping reads (with ``native``: facets, stage,
compartments, ``inherit``). ``sort`` of an edge is ``edge`` (between units) or ``membership`` (from
a thread to a unit; ``relation`` is its role). ``deploy/knowledge-base`` has them for a database
that Directus manages.

Laws
    * One read-only snapshot of all four; nothing of the source is believed but its words, which
      go through the same mapping and the same quarantine as a file's.
    * ``revision`` grows with every change of a row. Read is what lies above the last mark less
      ``overlap``, and every row that has none; a full run reads everything.
    * Who may read a row whose ``words`` cannot be read is not known: nobody does from then on.
    * What is absent is removed only in a full run, only of this source, and only when every row of
      the view says ``complete``: an empty view removes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import errors, sql

from retrieval.ingest import statements
from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.fields import ADDRESS_MAX, BODY_MAX, LIST_MAX, TEXT_MAX, TITLE_MAX
from retrieval.ingest.identity import thread_id, unit_id
from retrieval.ingest.report import Outcome, Report, Sort, printable
from retrieval.ingest.sources import Raw

SCHEMA: Final = "gateway_export"
OVERLAP: Final = 1_000
"""How far below the mark is read again: rows of transactions that ended out of order."""
_PAGE: Final = 100
_OPTIONS: Final = "-c default_transaction_read_only=on -c statement_timeout=600000"
WORDS_MAX: Final = 100_000
"""Characters of one `words`, as JSON."""


def _text(name: str, most: int = ADDRESS_MAX) -> str:
    """One character more than is stored: a longer text is refused without having come whole."""
    return f"left({name}::text, {most + 1}) as {name}"


def _texts(name: str, most: int = ADDRESS_MAX) -> str:
    """As `_text`, and one entry more. For a list of lists, which is refused, a short one comes."""
    return (
        f"case when {name} is null then null"
        f" when array_ndims({name}::text[]) > 1 then array[array['']]"
        f" else array(select left(one, {most + 1}) from unnest({name}::text[]) one"
        f" limit {LIST_MAX + 1}) end as {name}"
    )


_WORDS: Final = (
    f"case when length(to_jsonb(words)::text) <= {WORDS_MAX} then to_jsonb(words) end as words"
)
_COLUMNS: Final[Mapping[str, str]] = {
    name: ", ".join(columns)
    for name, columns in {
        "thread": (
            *(_text("address"), _text("title", TITLE_MAX), _texts("aliases", TITLE_MAX)),
            *(_text("description", TEXT_MAX), _text("purpose", TEXT_MAX), _text("status"), _WORDS),
        ),
        "unit": (
            *(_text("address"), _text("title", TITLE_MAX), _text("body", BODY_MAX)),
            *(_text("language"), "active_at::timestamptz", _text("thread"), _text("role"), _WORDS),
        ),
        "term": (
            *(_text("term", TITLE_MAX), "version::integer", _texts("aliases", TITLE_MAX)),
            *(_texts("units"), _texts("threads"), _WORDS),
        ),
        "edge": (
            *(_text("sort"), _text("source"), _text("relation"), _text("target")),
            *("confidence::float8", _text("status")),
        ),
    }.items()
}
"""In the order in which they are read: what is linked comes before its links."""
_KEYS: Final = {
    "thread": "address", "unit": "address", "term": "term, version",
    "edge": "sort, source, relation, target",
}  # fmt: skip
_LINK: Final = {
    "edge": {"source": "from", "target": "to", "relation": "relation", "confidence": "confidence"},
    "membership": {"source": "thread", "target": "unit", "relation": "role",
                   "confidence": "confidence", "status": "status"},
}  # fmt: skip

Row = Mapping[str, Any]


@dataclass(slots=True)
class DatabaseSource:
    """The four views of one schema, open in one snapshot until ``knowledge_base`` is left.

    ``total``, ``digest`` and iterating are as for a ``Source`` of files; ``partial`` says that
    it holds what changed only.
    """

    name: str
    digest: str
    total: int
    partial: bool
    _connection: psycopg.Connection[Any]
    _schema: str
    _above: Mapping[str, int]
    _marks: Mapping[str, int]
    _complete: Mapping[str, bool]
    _removes: bool
    _seen: dict[str, set[Any]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Raw]:
        for view in _COLUMNS:
            self._seen[view] = set()
            with _reading(view):
                for row in self._rows(view):
                    yield _raw(view, row, self._seen[view])

    def finish(
        self, target: psycopg.Connection[Any], *, origin: str, mapping: str, report: Report
    ) -> None:
        """Remove what is gone, and remember how far was read: in the run's last transaction."""
        if self._removes:
            for sort, count in self._remove(target, origin, f"ingest:{mapping}"):
                report.count(sort, Outcome.CHANGED, count)
        for view, revision in self._marks.items():
            target.execute(statements.MARK_KEPT, [origin, self.name, view, revision])

    def _remove(
        self, target: psycopg.Connection[Any], origin: str, added_by: str
    ) -> Iterator[tuple[Sort, int]]:
        """What the whole views do not hold any more. A link goes only if all that may say it is
        whole, and only if this mapping made it: an owner's own links stay."""
        whole, seen = self._complete, self._seen
        if whole["unit"] and whole["edge"]:
            pairs = _columns(seen["unit"] | seen["edge"], 2)
            gone = target.execute(statements.MEMBERSHIPS_GONE, [origin, added_by, *pairs])
            yield Sort.MEMBERSHIP, gone.rowcount
        if whole["edge"]:
            gone = target.execute(statements.EDGES_GONE, [origin, *_columns(seen["edge"], 3)])
            yield Sort.EDGE, gone.rowcount
        if whole["term"]:
            gone = target.execute(statements.LABELS_GONE, [origin, *_columns(seen["term"], 2)])
            yield Sort.DELETION, gone.rowcount
        for view, statement in (
            ("unit", statements.UNITS_GONE),
            ("thread", statements.THREADS_GONE),
        ):
            if whole[view]:
                ids = [one for one in seen[view] if isinstance(one, UUID)]
                yield Sort.DELETION, target.execute(statement, [origin, ids]).rowcount

    def _rows(self, view: str) -> Iterator[Row]:
        query = sql.SQL("select {} from {} where {} order by {}").format(
            sql.SQL(_COLUMNS[view]),
            sql.Identifier(self._schema, view),
            _ahead(self._above[view]),
            sql.SQL(_KEYS[view]),
        )
        with self._connection.cursor(f"gw_{view}", row_factory=psycopg.rows.dict_row) as cursor:
            cursor.itersize = _PAGE
            yield from cursor.execute(query)


@contextmanager
def knowledge_base(
    dsn: str,
    *,
    schema: str = SCHEMA,
    marks: Callable[[str], Mapping[str, int]],
    full: bool = False,
    overlap: int = OVERLAP,
) -> Iterator[DatabaseSource]:
    """The views below ``schema`` of the database at ``dsn``.

    ``marks`` gives the last marks of a place (database and schema). Raises ``IngestRefused``
    ``source_unreachable`` or ``source_unfit``.
    """
    try:
        connection = psycopg.connect(  # whatever the base or its login has set
            dsn, connect_timeout=10, client_encoding="utf8", options=_OPTIONS
        )
    except psycopg.Error as error:
        raise IngestRefused(
            "source_unreachable",
            f"the knowledge base does not let us in ({type(error).__name__})",
            "start it, or correct the connection string",
        ) from error
    with connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        place = printable(f"{connection.info.dbname}.{schema}")
        known = {} if full else marks(place)
        above = {view: known[view] - overlap if view in known else -(2**62) for view in _COLUMNS}
        total, highest, complete = 0, {}, {}
        for view in _COLUMNS:
            with _reading(view):
                rows, top, whole = _look(connection, schema, view, above[view])
            total, complete[view] = total + rows, whole
            if top is not None:
                highest[view] = max(top, known.get(view, top))
        told = repr((place, full, sorted(above.items()), sorted(highest.items()), total))
        yield DatabaseSource(
            name=place,
            digest=hashlib.sha256(told.encode()).hexdigest(),
            total=total,
            partial=not full and bool(known),
            _connection=connection,
            _schema=schema,
            _above=above,
            _marks=highest,
            _complete=complete,
            _removes=full,
        )


def _ahead(above: int) -> sql.Composed:
    """Which rows are to be read: who says no revision may have changed."""
    return sql.SQL("coalesce(revision::bigint > {}, true)").format(sql.Literal(above))


def _look(
    connection: psycopg.Connection[Any], schema: str, view: str, above: int
) -> tuple[int, int | None, bool]:
    """How many rows are to be read, the highest revision of them, whether the view is whole."""
    query = sql.SQL(
        "select count(*) filter (where {}), max(revision::bigint),"
        " coalesce(bool_and(coalesce(complete::boolean, false)), false) from {}"
    ).format(_ahead(above), sql.Identifier(schema, view))
    row = connection.execute(query).fetchone()
    return (row[0], row[1], row[2]) if row is not None else (0, None, False)


@contextmanager
def _reading(view: str) -> Iterator[None]:
    """What goes wrong while a view is read, in words that hold no value of it."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise IngestRefused(
            "source_unreachable",
            f"the knowledge base went away while `{view}` was read ({type(error).__name__})",
            "start it, then run again: what was written is kept",
        ) from error
    except psycopg.Error as error:
        what = "may not be read" if isinstance(error, errors.InsufficientPrivilege) else "is unfit"
        raise IngestRefused(
            "source_unfit",
            f"the view `{view}` of the knowledge base {what} ({error.sqlstate})",
            "make it as deploy/knowledge-base/views.sql does, and grant select on it",
        ) from error


# --- rows as records ----------------------------------------------------------------------------


def _raw(view: str, row: Row, seen: set[Any]) -> Raw:
    """A row as a native record, and remembered by what it would be stored as."""
    if view == "edge":
        return _link(row, seen)
    key = row["term"] if view == "term" else row["address"]
    place = f"{view}:{str(key)[:200]}"
    words, names = row["words"], _named(view, row)
    if not isinstance(words, dict):
        fault = f"`words` is not an object, or longer than {WORDS_MAX} characters"
        return Raw(place, {}, fault=fault, names=names)
    content = {name: _plain(value) for name, value in row.items() if name != "words"}
    said = {name: value for name, value in content.items() if value is not None}
    doubled = sorted(words.keys() & {*content, "sort"})
    if doubled:
        fault = f"`words` holds `{printable(doubled[0][:60])}`, a column's name"
        return Raw(place, {}, fault=fault, names=names)
    _remember(view, row, seen)
    sort = Sort.LABEL if view == "term" else Sort(view)
    return Raw(place, {"sort": sort.value, **said, **words})


def _named(view: str, row: Row) -> tuple[Sort, UUID] | None:
    """The unit or thread that a row is about; which term it is, its words would say."""
    if view == "term" or row["address"] is None:
        return None
    make = unit_id if view == "unit" else thread_id
    return Sort(view), make(row["address"])


def _remember(view: str, row: Row, seen: set[Any]) -> None:
    if view == "term":
        seen.add((row["term"], row["version"] or 1))
    elif (named := _named(view, row)) is not None:
        seen.add(named[1])
        if view == "unit" and row["thread"] is not None:
            seen.add((thread_id(row["thread"]), unit_id(row["address"])))


def _link(row: Row, seen: set[Any]) -> Raw:
    place = f"edge:{row['source']} {row['relation']} {row['target']}"[:200]
    names = _LINK.get(row["sort"] or "")
    if names is None:
        return Raw(place, {}, fault="`sort` is neither `edge` nor `membership`")
    said = {ours: row[theirs] for theirs, ours in names.items() if row[theirs] is not None}
    if row["source"] is not None and row["target"] is not None:
        if row["sort"] == "membership":
            seen.add((thread_id(row["source"]), unit_id(row["target"])))
        else:
            seen.add((unit_id(row["source"]), row["relation"], unit_id(row["target"])))
    return Raw(place, {"sort": row["sort"], **said})


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


# --- what is gone ---------------------------------------------------------------------------------


def _columns(rows: set[Any], width: int) -> list[list[Any]]:
    """The tuples of this width, column by column."""
    chosen = [row for row in rows if isinstance(row, tuple) and len(row) == width]
    return [list(column) for column in zip(*chosen, strict=True)] or [[] for _ in range(width)]
