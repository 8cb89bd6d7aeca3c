"""What owners see: rates, gaps with their evidence, and whether enrichment helped.

All of it under the login ``gw_steward``, which reads signals and closes them, and reads no corpus,
no delivery and no subject.

Source: seed sections 4.8, 4.9 and 4.14.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

ROLE: Final = "gw_steward"

TABLES: Final = {
    "backlog": "brain.decision_backlog",
    "health": "brain.segmentation_health",
    "governance": "gate.governance_queue",
    "proposals": "brain.thread_proposal",
    "capability": "brain.capability_intake",
}
"""Where an item may stand, by the word that operators use."""
_ROUTED: Final = frozenset({"backlog", "health", "governance"})

Row = dict[str, Any]
Connection = psycopg.Connection[Any]

_RATES: Final = """
select day, audience, metric, numerator, denominator,
       round(numerator::numeric / denominator, 4)::float8 as rate
from brain.retrieval_metric_aggregate
where day > (now() at time zone 'utc')::date - %(days)s
  and (%(audience)s::text is null or audience = %(audience)s)
order by day desc, audience, metric
"""

_OVERFLOW: Final = """
select day, audience, gaps from brain.signal_overflow
where day > (now() at time zone 'utc')::date - %(days)s
  and (%(audience)s::text is null or audience = %(audience)s)
order by day desc, audience
"""

_PROPOSALS: Final = """
select p.*, coalesce(w.labels, '{}') as labels, coalesce(w.words, '{}') as words,
       b.occurrences, b.subjects, b.days, b.first_at, b.last_at
from brain.thread_proposal p
join brain.decision_backlog b using (dedup_key)
left join brain.proposal_words w using (dedup_key)
"""

_EVIDENCE: Final = """
select id, day, kind, audience, classification, thread_id, artifact_id, occurrences, subjects,
       first_at, last_at, state
from brain.search_gap_signal where dedup_key = %(dedup_key)s order by day desc limit 50
"""

_SIGNALS: Final = """
select id, day, kind, audience, classification, occurrences, subjects, state, thread_id,
       artifact_id, first_at, last_at
from brain.search_gap_signal
where (%(state)s::text is null or state = %(state)s)
order by last_at desc, id limit %(limit)s
"""

# One line per gap that was routed. `before` and `after` are answers to the same question, up to
# the moment it was closed and since; `threads` answered it since.
_LOOPS: Final = """
select b.id, b.kind, b.audience, b.state, b.occurrences, b.subjects, b.first_at, b.opened_at,
       b.closed_at, b.close_reason, b.returned, a.asked_before, a.hit_before, a.asked_after,
       a.hit_after, a.threads,
       (select coalesce(sum(s.occurrences), 0) from brain.search_gap_signal s
        where s.dedup_key = b.dedup_key and s.first_at > b.closed_at)::integer as met_after
from brain.decision_backlog b
cross join lateral (
    select count(*) filter (where not q.since) as asked_before,
           count(*) filter (where not q.since and q.hit) as hit_before,
           count(*) filter (where q.since) as asked_after,
           count(*) filter (where q.since and q.hit) as hit_after,
           array(select distinct p.thread_id from brain.retrieval_answered p
                 where p.kind = 'pack' and p.thread_id is not null and p.noted_at > b.closed_at
                   and p.query_hmac = b.query_hmac and p.audience = b.audience) as threads
    from (select e.noted_at > coalesce(b.closed_at, 'infinity') as since,
                 e.mode in ('single', 'multi') as hit
          from brain.retrieval_answered e
          where e.kind = 'query' and e.asked = 'auto' and e.query_hmac = b.query_hmac
            and e.audience = b.audience) q
) a
order by b.closed_at desc nulls last, b.last_at desc, b.id limit %(limit)s
"""


def rates(connection: Connection, *, days: int, audience: str | None = None) -> list[Row]:
    """The rates of the last ``days`` days, the newest first. Cost: one read of the rollup."""
    return _rows(connection, _RATES, {"days": days, "audience": audience})


def overflow(connection: Connection, *, days: int, audience: str | None = None) -> list[Row]:
    """How many repeated gaps found no room in the destinations, by day and audience."""
    return _rows(connection, _OVERFLOW, {"days": days, "audience": audience})


def items(connection: Connection, where: str, *, state: str | None, limit: int) -> list[Row]:
    """The items of one of ``TABLES``, the newest first; proposals with their words."""
    base = _PROPOSALS if where == "proposals" else f"select * from {TABLES[where]} p"
    at = "p.proposed_at" if where == "proposals" else "p.opened_at"
    query = (
        f"{base} where (%(state)s::text is null or p.state = %(state)s)"
        f" order by {at} desc, p.id limit %(limit)s"
    )
    return _rows(connection, query, {"state": state, "limit": limit})


def signals(connection: Connection, *, state: str | None, limit: int) -> list[Row]:
    """The signals themselves, those that were not routed included; the newest first."""
    return _rows(connection, _SIGNALS, {"state": state, "limit": limit})


def item(connection: Connection, item_id: UUID) -> Row | None:
    """One item, ``where`` it stands and its ``evidence``: the signals of each day."""
    for where, table in TABLES.items():
        query = (_PROPOSALS if where == "proposals" else f"select * from {table} p") + (
            " where p.id = %(id)s"
        )
        for found in _rows(connection, query, {"id": item_id}):
            evidence = _rows(connection, _EVIDENCE, {"dedup_key": found["dedup_key"]})
            return {"where": where, **found, "evidence": evidence}
    return None


def close(connection: Connection, item_id: UUID, *, outcome: str, by: str, reason: str) -> bool:
    """Closes an open item as ``done`` or ``rejected``; false when none is open under that id."""
    values = {"id": item_id, "outcome": outcome, "by": by, "reason": reason}
    for where, table in TABLES.items():
        done = ", done_at = clock_timestamp()" if outcome == "done" and where in _ROUTED else ""
        closed = connection.execute(
            f"update {table} set state = %(outcome)s, closed_at = clock_timestamp(),"
            f" closed_by = %(by)s, close_reason = %(reason)s{done}"
            " where id = %(id)s and state = 'open'".encode(),
            values,
        )
        if closed.rowcount:
            return True
    return False


def twins(connection: Connection, item_id: UUID) -> list[tuple[str, UUID]]:
    """The open items of the same gap in the other tables: where each stands, and its id."""
    of_gap = " union all ".join(
        f"select '{where}', id, dedup_key, state from {table}" for where, table in TABLES.items()
    )
    query = (
        f"with item (place, id, dedup_key, state) as ({of_gap})"
        " select t.place, t.id from item i join item t using (dedup_key)"
        " where i.id = %(id)s and t.id <> i.id and t.state = 'open' order by t.place"
    )
    return connection.execute(query.encode(), {"id": item_id}).fetchall()


def loops(connection: Connection, *, limit: int) -> list[Row]:
    """Usage, gap, enrichment, better retrieval: one row per gap that was routed.

    ``asked_*`` and ``hit_*`` count the same question of the same audience before and after it
    was closed; ``met_after`` says how often the gap itself was met since.
    """
    return _rows(connection, _LOOPS, {"limit": limit})


def _rows(connection: Connection, query: str, values: dict[str, object]) -> list[Row]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), values).fetchall()
