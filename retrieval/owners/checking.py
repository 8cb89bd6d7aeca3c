"""Checks the health of threads and writes a verdict into each of their parts, and that it did.

Law: every part gets the time of the run, so that no time tells when another part changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, Literal

import psycopg
from psycopg.types.json import Jsonb

from retrieval.owners.checks import DEFAULT, Limits, judge
from retrieval.owners.errors import OwnersRefused, Why

_BATCH: Final = 1_000
_PARTS: Final = """
    select p.thread_id::text, p.class_id, p.tenant, p.jurisdiction, p.unit_count, p.last_activity
    from brain.thread_partial p join brain.thread t on t.id = p.thread_id
    where t.deleted_at is null and (%(source)s::text is null or t.origin = %(source)s)
    order by 1, 2, 3, 4"""
_JUDGED: Final = """
    update brain.thread_partial p set health = r.health
    from jsonb_to_recordset(%s) r (thread_id uuid, class_id smallint, tenant text,
        jurisdiction text, health jsonb)
    where p.thread_id = r.thread_id and p.class_id = r.class_id and p.tenant = r.tenant
      and p.jurisdiction = r.jurisdiction"""

_RECORDED: Final = """
    insert into brain.thread_check (checked_at, made_by, source, limits, found)
    values (%s, %s, %s, %s, %s)"""


def check_health(
    dsn: str,
    *,
    source: str | None = None,
    limits: Limits = DEFAULT,
    now: datetime | None = None,
    made_by: Literal["schedule", "command"] = "command",
) -> Mapping[str, int]:
    """Parts by verdict, written as of ``now`` (the clock's if None), of one source or of all.

    ``dsn`` logs in as ``gw_curate``. Raises: OwnersRefused ``store_unavailable``.
    Cost: one look at every part and one statement for each thousand of them.
    """
    moment = now or datetime.now(UTC)
    found: Counter[str] = Counter()
    try:
        with psycopg.connect(dsn, connect_timeout=10) as connection:
            parts = iter(connection.execute(_PARTS, {"source": source}).fetchall())
            while batch := list(islice(parts, _BATCH)):
                made = [_verdict(part, moment, limits) for part in batch]
                connection.execute(_JUDGED, [Jsonb(made)])
                found.update(one["health"]["status"] for one in made)
            told = [Jsonb(limits.told()), Jsonb(found)]
            connection.execute(_RECORDED, [moment, made_by, source, *told])
    except psycopg.Error as error:
        reason = f"the record of truth refused it ({error.sqlstate or type(error).__name__})"
        raise OwnersRefused(Why.STORE_UNAVAILABLE, reason, "try again later") from error
    return found


def _verdict(part: tuple[Any, ...], now: datetime, limits: Limits) -> dict[str, Any]:
    thread_id, class_id, tenant, jurisdiction, units, last_activity = part
    finding = judge(units, last_activity, now=now, limits=limits)
    return {
        "thread_id": thread_id,
        "class_id": class_id,
        "tenant": tenant,
        "jurisdiction": jurisdiction,
        "health": {
            "status": finding.status.value,
            "checked_at": now.isoformat(),
            "reason": finding.reason,
        },
    }
