"""Makes one policy revision the one that the database enforces.

Laws
    * One transaction of row changes, no DDL: readers of the old revision finish under it,
      because each reads in one snapshot; the next transaction sees the new one whole.
    * Generations only grow, over releases and activations alike. The grants of one earlier
      digest stay, so that readers in flight finish; older ones are removed.
    * A revision whose classes or profiles the database does not know is refused: migrate first.
    * A release is staged first and takes effect when it is flipped. It takes effect only on the
      release that it was compared with, and an unsigned one never follows a signed one.

Runs as ``gw_policy``. Listeners of channel ``gw_policy`` get ``staged GENERATION`` and
``active DIGEST GENERATION``: a reason to look again, never the truth itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from policies.decision import PolicyDigest
from policies.emit.postgres import ProfileMask, masks
from policies.snapshot import Snapshot
from retrieval.stores.releases import StoredRelease, release_in
from retrieval.stores.trusted_mappings import write_trusted

CHANNEL: Final = "gw_policy"
UNFIT: Final = "database_unfit"
"""The code of a refusal that is about the schema; all others are about the release."""


class ActivationRefused(Exception):
    """The database cannot enforce this revision; the text says why and what to do."""

    def __init__(self, text: str, *, code: str = UNFIT) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Activated:
    """The revision that is now enforced; ``changed`` is False when it already was."""

    digest: str
    generation: int
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A release that is to be stored. ``generation`` None is the next one (unsigned only).

    ``contents`` is path -> bytes of every covered file; ``change`` is a word of
    ``policies.release.manifest.CHANGES``.
    """

    environment: str
    digest: PolicyDigest
    contents: Mapping[str, bytes]
    change: str
    generation: int | None = None
    base: tuple[int, PolicyDigest] | None = None
    jws: Mapping[str, Any] | None = None
    reason: str = ""
    overlaid: frozenset[str] = frozenset()


def activate(
    connection: psycopg.Connection[Any],
    snapshot: Snapshot,
    *,
    activated_by: str = "",
    draft: Draft | None = None,
) -> Activated:
    """Enforces ``snapshot`` from its commit on, without asking any replica.

    ``draft`` is recorded as the release that it is (an unsigned one); its generation and base
    are filled in. Without one the revision is enforced and nothing is known of its files.
    Cost: two rows per profile, a few milliseconds; it waits for nobody but another activation.
    Raises ActivationRefused when the schema lacks a class or a profile of the snapshot.
    """
    wanted = masks(snapshot.table)
    with connection.transaction():
        before = _locked(connection)
        _check_known(connection, snapshot, wanted)
        active = release_in(connection, "active")
        if before is not None and before[1] == snapshot.digest:
            generation, changed = before[0], False
            if active is not None or draft is None or _taken(connection, generation):
                return Activated(snapshot.digest, generation, changed)
        else:
            generation, changed = next_generation(connection), True
        if draft is not None:
            _check_follows(draft, active)
            _retire(connection)
            base = base_for(active, draft.environment, signed=False)
            draft = replace(draft, base=base)
            _insert(connection, draft, generation, state="active", activated_by=activated_by)
        elif active is not None:
            _check_unsigned(active)
            _retire(connection)
        if changed:
            _enforce(connection, snapshot, wanted, generation, before, activated_by)
    return Activated(snapshot.digest, generation, changed)


def stage(connection: psycopg.Connection[Any], draft: Draft) -> int:
    """Stores a release and tells the replicas to prepare it; its generation.

    Whatever was staged before is abandoned. Raises ActivationRefused: ``older_generation``,
    ``base_moved``, ``environment_differs``, ``unsigned``.
    """
    with connection.transaction():
        before = _locked(connection)
        active = release_in(connection, "active")
        _check_follows(draft, active)
        least = next_generation(connection)
        generation = least if draft.generation is None else draft.generation
        if generation < least:
            raise ActivationRefused(
                f"generation {generation} is not newer than {least - 1};"
                f" approve the folder anew, as generation {least}",
                code="older_generation",
            )
        expected = base_for(active, draft.environment, signed=draft.jws is not None)
        if draft.jws is None:
            draft = replace(draft, base=expected)
        elif before is not None and draft.base != expected:
            raise ActivationRefused(
                f"it was compared with {_told(draft.base)}, and {_told(before)} is active;"
                " approve the folder anew",
                code="base_moved",
            )
        connection.execute(
            "update gate.policy_release set state = 'abandoned' where state = 'staged'"
        )
        _insert(connection, draft, generation, state="staged")
        connection.execute("select pg_notify(%s, %s)", [CHANNEL, f"staged {generation}"])
    return generation


def flip(
    connection: psycopg.Connection[Any],
    snapshot: Snapshot,
    generation: int,
    *,
    activated_by: str = "",
) -> Activated:
    """Enforces the release that is staged as ``generation``; ``snapshot`` is its policy.

    Cost: as :func:`activate`. Raises ActivationRefused when it is not staged any more
    (``not_staged``), or when the schema lacks a class or a profile (``database_unfit``).
    """
    wanted = masks(snapshot.table)
    with connection.transaction():
        before = _locked(connection)
        staged = release_in(connection, "staged")
        if staged is None or (staged.generation, staged.digest) != (generation, snapshot.digest):
            raise ActivationRefused(
                f"generation {generation} is not staged any more; activate it again",
                code="not_staged",
            )
        _check_known(connection, snapshot, wanted)
        _retire(connection)
        connection.execute(
            "update gate.policy_release set state = 'active', activated_at = now(),"
            " activated_by = %s where generation = %s",
            [activated_by, generation],
        )
        _enforce(connection, snapshot, wanted, generation, before, activated_by)
    return Activated(snapshot.digest, generation, changed=True)


def abandon(connection: psycopg.Connection[Any], generation: int) -> bool:
    """Gives a staged release up and tells the replicas; False when it was not staged."""
    with connection.transaction():
        given_up = connection.execute(
            "update gate.policy_release set state = 'abandoned'"
            " where generation = %s and state = 'staged'",
            [generation],
        ).rowcount
        connection.execute("select pg_notify(%s, %s)", [CHANNEL, f"staged {generation}"])
    return given_up == 1


def next_generation(connection: psycopg.Connection[Any]) -> int:
    """The number after all that were ever given."""
    row = connection.execute(
        "select greatest((select max(generation) from gate.policy_release),"
        " (select max(generation) from gate.audience_filter_policy),"
        " (select generation from gate.active_revision), 0) + 1"
    ).fetchone()
    return 1 if row is None else int(row[0])


def base_for(
    active: StoredRelease | None, environment: str, *, signed: bool
) -> tuple[int, PolicyDigest] | None:
    """What a new release is compared with: the active one, if it has the same standing.

    A first signed release stands on nothing that was active unsigned, nor elsewhere.
    """
    if active is None or active.environment != environment:
        return None
    if signed and active.jws is None:
        return None
    return active.generation, active.digest


def grants_differ(connection: psycopg.Connection[Any], snapshot: Snapshot) -> bool:
    """Whether the stored grants of this digest are others than the snapshot's own."""
    stored = connection.execute(
        "select role::text, profile, plain::text, consented::text from gate.profile_grant"
        " where digest = %s",
        [snapshot.digest],
    ).fetchall()
    own = [(one.role, one.profile, one.plain, one.consented) for one in masks(snapshot.table)]
    return sorted(stored) != sorted(own)


# --- what the database believes of a release before anybody verified it ------------------------


def _locked(connection: psycopg.Connection[Any]) -> tuple[int, str] | None:
    """Generation and digest in force; activations follow one another until this commits."""
    connection.execute("lock table gate.active_revision in share row exclusive mode")
    row = connection.execute("select generation, digest from gate.active_revision").fetchone()
    return None if row is None else (row[0], row[1])


def _check_follows(draft: Draft, active: StoredRelease | None) -> None:
    """Refuse what would undo the signatures of the active release."""
    if active is None or active.jws is None:
        return
    if draft.environment != active.environment:
        raise ActivationRefused(
            f"this database serves `{active.environment}`, not `{draft.environment}`;"
            " set `release.environment`, or name another database",
            code="environment_differs",
        )
    if draft.jws is None:
        _check_unsigned(active)


def _check_unsigned(active: StoredRelease) -> None:
    if active.jws is not None:
        raise ActivationRefused(
            f"generation {active.generation} of `{active.environment}` is signed and active;"
            " set `release.keys_file` and activate a signed release",
            code="unsigned",
        )


def _told(base: tuple[int, str] | None) -> str:
    return "nothing" if base is None else f"generation {base[0]}"


def _taken(connection: psycopg.Connection[Any], generation: int) -> bool:
    row = connection.execute(
        "select exists (select from gate.policy_release where generation = %s)", [generation]
    ).fetchone()
    return row is None or bool(row[0])


def _retire(connection: psycopg.Connection[Any]) -> None:
    connection.execute("update gate.policy_release set state = 'past' where state = 'active'")


def _insert(
    connection: psycopg.Connection[Any],
    draft: Draft,
    generation: int,
    *,
    state: str,
    activated_by: str = "",
) -> None:
    base = draft.base or (None, None)
    files = {path: content.decode("utf-8") for path, content in draft.contents.items()}
    connection.execute(
        "insert into gate.policy_release (generation, environment, digest, base_generation,"
        " base_digest, change, jws, files, overlaid, state, activated_at, activated_by, reason)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
        " case when %s = 'active' then now() end, %s, %s)",
        [
            generation,
            draft.environment,
            draft.digest,
            *base,
            draft.change,
            None if draft.jws is None else Jsonb(dict(draft.jws)),
            Jsonb(files),
            sorted(draft.overlaid),
            state,
            state,
            activated_by,
            draft.reason,
        ],
    )


# --- what the database enforces -----------------------------------------------------------------


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
            f" `{snapshot.digest[:12]}`; migrate it first (`gateway policy activate` does)"
        )
    known = {
        (profile, role)
        for profile, role in connection.execute("select profile, role from gate.profile_role")
    }
    missing = sorted(mask.profile for mask in wanted if (mask.profile, mask.role) not in known)
    if missing:
        raise ActivationRefused(
            f"the database has no role for profile `{'`, `'.join(missing)}`;"
            " migrate it first (`gateway policy activate` does)"
        )


def _enforce(
    connection: psycopg.Connection[Any],
    snapshot: Snapshot,
    wanted: Sequence[ProfileMask],
    generation: int,
    before: tuple[int, str] | None,
    activated_by: str,
) -> None:
    """The rows that readers are held to, and word of them to the listeners."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into gate.profile_grant (digest, role, profile, plain, consented)"
            " values (%s, %s, %s, %s::bit varying, %s::bit varying)"
            " on conflict (digest, role) do update set profile = excluded.profile,"
            " plain = excluded.plain, consented = excluded.consented",
            [(snapshot.digest, one.role, one.profile, one.plain, one.consented) for one in wanted],
        )
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
    kept = [snapshot.digest, before[1] if before else ""]
    connection.execute("delete from gate.profile_grant where digest <> all (%s)", [kept])
    write_trusted(connection, snapshot, kept=kept)
    connection.execute(
        "select pg_notify(%s, %s)", [CHANNEL, f"active {snapshot.digest} {generation}"]
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
