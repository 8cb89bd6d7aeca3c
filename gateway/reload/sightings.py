"""What the database says of policies and replicas, and what this replica says of itself.

Everything runs as ``gw_watch``. Nothing read here is believed: releases are accepted by whoever
builds them, and which digest is in force every request asks for itself.

Source of the tables: migrations 0050 and 0080.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg

from gateway.reload.job import BuildRefused, RawRelease
from policies.release.accepting import CHAIN_MAX

CHANNEL: Final = "gw_policy"
ALIVE_S: Final = 15
"""A replica that was not seen for longer is a dead one."""
BYTES_MAX: Final = 16 * 1024 * 1024
"""All files and signatures of one chain: ten times the largest policy that was measured. What is
longer would hold up whoever serves while it is read."""
FORGET_S: Final = 86_400

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

_LOOK: Final = f"""
with told as (
    insert into gate.replica as r (id, host, digest, generation, staged_generation, staged_state,
                                   staged_code, candidate_digest)
    values (%(id)s, %(host)s, %(digest)s, %(generation)s, %(staged)s, %(state)s, %(code)s,
            %(candidate)s)
    on conflict (id) do update set seen_at = now(), digest = excluded.digest,
        generation = excluded.generation, staged_generation = excluded.staged_generation,
        staged_state = excluded.staged_state, staged_code = excluded.staged_code,
        candidate_digest = excluded.candidate_digest
)
select 'active', generation, digest from gate.active_revision
union all
select 'staged', generation, digest from gate.policy_release where state = 'staged'
union all
select 'candidate', run, digest from gate.policy_candidate where ended_at is null
union all
select 'other', count(*), digest from gate.replica
where id <> %(id)s and seen_at > now() - interval '{ALIVE_S} seconds' group by digest
"""
_RELEASES: Final = """
with recursive chain as (
    select generation, digest, base_generation, jws, files, overlaid, 1 as link
    from gate.policy_release where generation = %(generation)s
    union all
    select r.generation, r.digest, r.base_generation, r.jws, r.files, r.overlaid, c.link + 1
    from chain c join gate.policy_release r on r.generation = c.base_generation
    where c.generation <> all (%(accepted)s) and c.link < %(most)s
      and case when jsonb_typeof(c.jws -> 'signatures') = 'array'
          then jsonb_array_length(c.jws -> 'signatures') else 0 end < %(signers)s
)
select generation, digest, case when fits then convert_to(jws::text, 'UTF8') end,
       case when fits then convert_to(files::text, 'UTF8') end, overlaid
from (select c.*, sum(octet_length(files::text) + coalesce(octet_length(jws::text), 0))
          over (order by link) <= %(bytes)s as fits from chain c) c
order by link
"""
_CANDIDATE: Final = """
select run, digest, null,
       case when octet_length(files::text) <= %(bytes)s then convert_to(files::text, 'UTF8') end,
       overlaid
from gate.policy_candidate where run = %(generation)s
"""


@dataclass(frozen=True, slots=True)
class Told:
    """A replica's word about itself. ``staged`` None: it says nothing of a staged release."""

    digest: str
    generation: int
    staged: int | None = None
    state: str | None = None
    code: str | None = None
    candidate: str | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look: numbers and digests of what is active, staged and tried; digests of others.

    The number of a candidate is its run, of everything else its generation.
    """

    active: tuple[int, str] | None
    staged: tuple[int, str] | None
    candidate: tuple[int, str] | None
    others: frozenset[str]


async def look(connection: Connection, replica: UUID, host: str, told: Told) -> Sighting:
    """Say what this replica is, and see how things stand. Raises psycopg.Error."""
    values = {
        "id": replica,
        "host": host,
        "digest": told.digest,
        "generation": told.generation,
        "staged": told.staged,
        "state": told.state,
        "code": told.code,
        "candidate": told.candidate,
    }
    rows = await (await connection.execute(_LOOK, values)).fetchall()
    found = {sort: (number, digest) for sort, number, digest in rows}
    return Sighting(
        found.get("active"),
        found.get("staged"),
        found.get("candidate"),
        frozenset(digest for sort, _, digest in rows if sort == "other"),
    )


async def leave(connection: Connection, replica: UUID) -> None:
    """Take this replica's row away, and those that nobody renewed for a day."""
    await connection.execute(
        "delete from gate.replica where id = %s or seen_at < now() - make_interval(secs => %s)",
        [replica, FORGET_S],
    )


async def release_of(
    connection: Connection, generation: int, *, signers: int, accepted: Collection[int]
) -> tuple[RawRelease, ...]:
    """A release and those that it may stand on, as they are stored; empty when it is not there.

    Raises BuildRefused (``release_too_large``) for more than ``BYTES_MAX``, and psycopg.Error.

    The chain ends with one that has ``signers`` signatures or was accepted before.
    """
    values = {
        "generation": generation,
        "signers": signers,
        "accepted": [one for one in accepted if one != generation],
        "most": 1 + CHAIN_MAX,
        "bytes": BYTES_MAX,
    }
    return await _raw(connection, _RELEASES, values)


async def candidate_of(connection: Connection, run: int) -> tuple[RawRelease, ...]:
    """The policy that is tried in this run, in the form of an unsigned release."""
    return await _raw(connection, _CANDIDATE, {"generation": run, "bytes": BYTES_MAX})


async def _raw(
    connection: Connection, statement: str, values: dict[str, Any]
) -> tuple[RawRelease, ...]:
    # binary: a megabyte of JSON is handed on as it is, not decoded where requests wait
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement.encode(), values)
        found = await cursor.fetchall()
    if any(row[3] is None for row in found):
        raise BuildRefused("release_too_large", f"over {BYTES_MAX} bytes with what it stands on")
    return tuple(RawRelease(*row) for row in found)
