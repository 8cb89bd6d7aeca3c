"""Threads of one source as they stand, and what became of them.

Law: every statement names the source; what belongs to another one is told like what is absent.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg

from policies.vocabulary import FACETS
from retrieval.ingest.identity import thread_id
from retrieval.owners.errors import OwnersRefused, Why
from retrieval.owners.wire import (
    Artifact,
    Changed,
    Edge,
    History,
    Listed,
    Member,
    Page,
    Part,
    Revision,
    Shown,
    Term,
)

Connection = psycopg.Connection[Any]
W = TypeVar("W", Member, Edge, Part)
LABEL: Final = (*FACETS, "tenant", "jurisdiction")
_LABEL: Final = ", ".join(f"t.{name}" for name in LABEL)
_REVISION: Final = (
    "(select coalesce(max(r.revision), 0) from brain.thread_revision r where r.thread_id = t.id)"
)

_LIST: Final = f"""
    select t.id, t.canonical_address, t.title, t.status, {_REVISION}, t.class_id,
        (select count(*) from brain.thread_membership m where m.thread_id = t.id),
        t.deleted_at is not null
    from brain.thread t
    where t.origin = %(source)s and t.canonical_address > %(after)s
    order by t.canonical_address limit %(limit)s"""
_HEAD: Final = f"""
    select t.id, {_REVISION}, t.title, t.aliases, t.description, t.purpose, t.status, {_LABEL},
        t.wish, t.class_id, t.deleted_at is not null
    from brain.thread t where t.id = %(id)s and t.origin = %(source)s"""
_MEMBERS: Final = """
    select u.canonical_address, m.role, m.confidence, m.status
    from brain.thread_membership m join brain.unit u on u.id = m.unit_id
    where m.thread_id = %(id)s order by m.role, u.canonical_address"""
_ARTIFACTS: Final = f"""
    select t.title, t.lifecycle_stage, {_LABEL} from brain.expected_artifact t
    where t.thread_id = %(id)s and t.deleted_at is null order by t.lifecycle_stage, t.title"""
_TERMS: Final = """
    select l.term, l.version, l.aliases from brain.thread_label t
    join brain.label l on l.id = t.label_id
    where t.thread_id = %(id)s order by l.term, l.version"""
_EDGES: Final = """
    select s.canonical_address, e.relation, d.canonical_address, e.confidence
    from brain.thread_membership m join brain.edge e on e.src = m.unit_id
    join brain.unit s on s.id = e.src join brain.unit d on d.id = e.dst
    where m.thread_id = %(id)s order by 1, 2, 3"""
_PARTS: Final = """
    select p.class_id, p.tenant, p.jurisdiction, p.unit_count, p.last_activity, p.health
    from brain.thread_partial p where p.thread_id = %(id)s order by 1, 2, 3"""
_HISTORY: Final = """
    select r.revision, r.made_at, r.author, r.reason, r.changes
    from brain.thread_revision r
    where r.thread_id = %(id)s and r.origin = %(source)s and r.revision < %(before)s
    order by r.revision desc limit %(limit)s"""
_UNITS_NAMED: Final = "select id::text, canonical_address from brain.unit where id = any (%s)"
_TERMS_NAMED: Final = "select id::text, term || '@' || version from brain.label where id = any (%s)"


def unknown(address: str) -> OwnersRefused:
    """There is no such thread of this source, whatever else there is."""
    reason = f"this source has no thread `{address}`"
    return OwnersRefused(Why.UNKNOWN_THREAD, reason, "see `gateway threads list`")


def listed(connection: Connection, source: str, *, after: str, limit: int) -> Page:
    """Threads of a source by address, those buried included."""
    rows = connection.execute(
        _LIST, {"source": source, "after": after, "limit": limit + 1}
    ).fetchall()
    names = tuple(Listed.model_fields)
    found = tuple(Listed(**dict(zip(names, row, strict=True))) for row in rows[:limit])
    return Page(threads=found, after=found[-1].thread if len(rows) > limit else None)


def shown(connection: Connection, source: str, address: str) -> Shown:
    """A thread with its members, artifacts, terms, edges and parts. Raises: OwnersRefused."""
    asked = {"id": thread_id(address), "source": source}
    row = connection.execute(_HEAD.encode(), asked).fetchone()
    if row is None:
        raise unknown(address)
    ident, revision, title, aliases, description, purpose, status, *rest = row
    words, (wish, class_id, buried) = rest[: len(LABEL)], rest[len(LABEL) :]
    return Shown(
        thread_id=ident,
        thread=address,
        source=source,
        revision=revision,
        title=title,
        aliases=tuple(aliases),
        description=description,
        purpose=purpose,
        status=status,
        label=dict(zip(LABEL, words, strict=True)),
        wished=dict(zip(LABEL, wish, strict=True)) if wish is not None else None,
        class_id=class_id,
        buried=buried,
        members=tuple(_made(Member, row) for row in connection.execute(_MEMBERS, asked)),
        artifacts=tuple(
            Artifact(title=t, lifecycle_stage=stage, label=dict(zip(LABEL, label, strict=True)))
            for t, stage, *label in connection.execute(_ARTIFACTS.encode(), asked)
        ),
        terms=tuple(
            Term(term=term, version=version, aliases=tuple(others))
            for term, version, others in connection.execute(_TERMS, asked)
        ),
        edges=tuple(_made(Edge, row) for row in connection.execute(_EDGES, asked)),
        parts=tuple(_made(Part, row) for row in connection.execute(_PARTS, asked)),
    )


def history(
    connection: Connection, source: str, address: str, *, before: int, limit: int
) -> History:
    """Revisions of a thread older than ``before``, the newest first. Raises: OwnersRefused."""
    ident = thread_id(address)
    asked = {"id": ident, "source": source, "before": before, "limit": limit + 1}
    if connection.execute(_HEAD.encode(), asked).fetchone() is None:
        raise unknown(address)
    rows = connection.execute(_HISTORY, asked).fetchall()
    names = _names(connection, [change for row in rows[:limit] for change in row[4]])
    return History(
        thread_id=ident,
        thread=address,
        revisions=tuple(
            Revision(
                revision=revision,
                made_at=made_at,
                author=author,
                reason=reason,
                changes=tuple(_changed(change, names) for change in changes),
            )
            for revision, made_at, author, reason, changes in rows[:limit]
        ),
        before=rows[limit - 1][0] if len(rows) > limit else None,
    )


def _names(connection: Connection, changes: list[dict[str, Any]]) -> dict[str, str]:
    """What ids in keys of changes are called: addresses of units, terms of labels."""
    keys = [change["key"] for change in changes]
    units = [key[name] for key in keys for name in ("unit_id", "src", "dst") if name in key]
    labels = [key["label_id"] for key in keys if "label_id" in key]
    found: dict[str, str] = {}
    for statement, ids in ((_UNITS_NAMED, units), (_TERMS_NAMED, labels)):
        if ids:
            asked = [UUID(one) for one in set(ids)]
            found |= dict(connection.execute(statement.encode(), [asked]).fetchall())
    return found


_SPOKEN: Final = {"unit_id": "unit", "src": "source", "dst": "target", "label_id": "term"}


def _changed(change: dict[str, Any], names: dict[str, str]) -> Changed:
    key = {_SPOKEN.get(name, name): names.get(str(v), v) for name, v in change["key"].items()}
    return Changed(what=change["what"], key=key, before=change["before"], after=change["after"])


def _made(model: type[W], row: tuple[Any, ...]) -> W:
    return model(**dict(zip(model.model_fields, row, strict=True)))
