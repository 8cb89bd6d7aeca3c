"""Makes one policy revision the one that the database enforces.

Laws
    * One transaction of row changes, no DDL: readers of the old revision finish under it,
      because each reads in one snapshot; the next transaction sees the new one whole.
    * The same digest again changes nothing. The grants of one earlier digest stay, so that
      going back is a row change too; older ones are removed.
    * A revision whose classes or profiles the database does not know is refused: migrate first.

Runs as ``gw_policy``. Listeners of channel ``gw_policy`` get ``digest generation``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from policies.emit.postgres import ProfileMask, masks
from policies.snapshot import Snapshot

CHANNEL: Final = "gw_policy"


class ActivationRefused(Exception):  # noqa: N818 - reads as what it is
    """The database cannot enforce this revision yet; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Activated:
    """The revision that is now enforced; ``changed`` is False when it already was."""

    digest: str
    generation: int
    changed: bool


def activate(
    connection: psycopg.Connection[Any], snapshot: Snapshot, *, activated_by: str = ""
) -> Activated:
    """Enforces ``snapshot`` from its commit on.

    Cost: two rows per profile, a few milliseconds; it waits for nobody but another activation.
    Raises ActivationRefused when the schema lacks a class or a profile of the snapshot.
    """
    wanted = masks(snapshot.table)
    with connection.transaction():
        # held to the end: activations follow one another
        connection.execute("lock table gate.active_revision in share row exclusive mode")
        _check_known(connection, snapshot, wanted)
        row = connection.execute("select digest, generation from gate.active_revision").fetchone()
        before, generation = (None, 0) if row is None else row
        if before == snapshot.digest:
            return Activated(snapshot.digest, generation, changed=False)
        generation += 1
        _write_grants(connection, snapshot.digest, wanted)
        connection.execute(
            "insert into gate.active_revision (digest, generation) values (%s, %s)"
            " on conflict (one) do update set digest = excluded.digest,"
            " generation = excluded.generation, activated_at = now()",
            [snapshot.digest, generation],
        )
        connection.execute(
            "insert into gate.audience_filter_policy (digest, generation, allowed, activated_by)"
            " values (%s, %s, %s::jsonb, %s)",
            [snapshot.digest, generation, _allowed(snapshot), activated_by],
        )
        connection.execute(
            "delete from gate.profile_grant where digest <> all (%s)",
            [[snapshot.digest, before or ""]],
        )
        connection.execute("select pg_notify(%s, %s)", [CHANNEL, f"{snapshot.digest} {generation}"])
    return Activated(snapshot.digest, generation, changed=True)


def _check_known(
    connection: psycopg.Connection[Any], snapshot: Snapshot, wanted: Sequence[ProfileMask]
) -> None:
    count = snapshot.vocabulary.class_count
    row = connection.execute(
        "select count(*) from gate.unit_class where class_id < %s", [count]
    ).fetchone()
    if row is None or row[0] != count:
        raise ActivationRefused(
            f"the database does not have all {count} classes of policy"
            f" `{snapshot.digest[:12]}`; run `gateway migrate` first"
        )
    known = {
        (profile, role)
        for profile, role in connection.execute("select profile, role from gate.profile_role")
    }
    missing = sorted(mask.profile for mask in wanted if (mask.profile, mask.role) not in known)
    if missing:
        raise ActivationRefused(
            f"the database has no role for profile `{'`, `'.join(missing)}`;"
            " run `gateway migrate` first"
        )


def _write_grants(
    connection: psycopg.Connection[Any], digest: str, wanted: Sequence[ProfileMask]
) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into gate.profile_grant (digest, role, profile, plain, consented)"
            " values (%s, %s, %s, %s::bit varying, %s::bit varying)"
            " on conflict (digest, role) do update set profile = excluded.profile,"
            " plain = excluded.plain, consented = excluded.consented",
            [(digest, mask.role, mask.profile, mask.plain, mask.consented) for mask in wanted],
        )


def _allowed(snapshot: Snapshot) -> str:
    """The compiled form that history keeps: per profile, the class ids without and with consent."""
    grants = {profile: snapshot.grant([profile]) for profile in snapshot.vocabulary.profiles}
    return json.dumps(
        {
            profile: {"none": grant.plain, "granted": grant.consented}
            for profile, grant in grants.items()
        },
        separators=(",", ":"),
    )
