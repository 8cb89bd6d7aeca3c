"""A release becomes the one that is enforced: verified here, prepared everywhere, then flipped.

Theory
    A change must refuse nobody. So every living replica compiles and proves the release while
    the old one is served, and only then one transaction makes the new one true; the replicas
    swap within the same moment. One replica that cannot serve it keeps it from all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from gateway.compose.database import policy_login, station_dsn
from gateway.compose.failure import CannotStart, first_line, no_database
from gateway.compose.release import base_of, has_releases
from gateway.compose.stores import Stores
from gateway.compose.trust import trust_anchor
from gateway.errors import GatewayError
from gateway.settings import Settings
from policies.decision import PolicyDigest
from policies.files import digest_of
from policies.loader import Parsed
from policies.release import Artefact, ReleaseRefused, accept, direction_of, manifest_of
from policies.release.artefact import parsed_of
from policies.release.manifest import CHANGES
from policies.review.change import Direction
from policies.snapshot import Snapshot, compiled, proven
from retrieval.schema.migrate import migrate
from retrieval.stores.activation import Draft, abandon, base_for, flip, next_generation, stage
from retrieval.stores.releases import (
    Answers,
    Replica,
    answers,
    artefact,
    release_in,
    releases,
    replicas,
)
from retrieval.stores.releases import (
    StoredRelease as StoredRelease,
)
from retrieval.stores.roles import POLICY

_PAUSE_S: Final = 0.1
_SWAP_S: Final = 10.0


class NotPrepared(GatewayError):
    """A release was abandoned, because not every living replica can serve it."""

    def __init__(self, generation: int, told: Answers) -> None:
        self.generation = generation
        self.told = told
        super().__init__(f"generation {generation} was abandoned: {told}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is enforced now, and how many of the living replicas serve it already."""

    generation: int
    digest: PolicyDigest
    change: str
    replicas: int
    serving: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a new release is compared with, and the number that it gets.

    ``base`` is None where nothing of the same standing is active: a first release.
    """

    base: tuple[int, PolicyDigest] | None
    parsed: Parsed | None
    generation: int


def standing(stores: Stores, environment: str, *, signed: bool) -> Standing:
    """How things stand in the database. Raises: CannotStart; ReleaseRefused."""
    with _reading(stores) as connection:
        if connection is None:
            return Standing(None, None, 1)
        base = base_for(release_in(connection, "active"), environment, signed=signed)
        stored = artefact(connection, base[0]) if base is not None else None
        parsed = parsed_of(stored.contents, stored.overlaid) if stored is not None else None
        return Standing(base, parsed, next_generation(connection))


def overlaid_now(stores: Stores) -> frozenset[str]:
    """The files of the active policy that came from an overlay. Raises: CannotStart."""
    with _reading(stores) as connection:
        active = release_in(connection, "active") if connection is not None else None
        if connection is None or active is None:
            return frozenset()
        stored = artefact(connection, active.generation)
        return stored.overlaid if stored is not None else frozenset()


def stored_release(stores: Stores, generation: int) -> Artefact | None:
    """A release with its files, not believed. Raises: CannotStart."""
    with _reading(stores) as connection:
        return None if connection is None else artefact(connection, generation)


def release_history(stores: Stores) -> tuple[tuple[StoredRelease, ...], tuple[Replica, ...]]:
    """All releases, the newest first, and the living replicas. Raises: CannotStart."""
    with _reading(stores) as connection:
        return ((), ()) if connection is None else (releases(connection), replicas(connection))


def activated(
    settings: Settings,
    stores: Stores,
    contents: Mapping[str, bytes],
    jws: Mapping[str, Any] | None,
    *,
    wait_s: float,
    overlaid: frozenset[str] = frozenset(),
    reason: str = "",
    activated_by: str = "",
    force: bool = False,
) -> Outcome:
    """Verify a release, let every living replica prepare it, and make it the enforced one.

    In development ``jws`` is not looked at; elsewhere ``overlaid``, the files that came from an
    overlay, is not. ``force`` flips although replicas refuse or do not
    answer within ``wait_s``; it skips no verification.

    Raises: ReleaseRefused, PolicyError, CannotStart, NotPrepared; then everything is as before.
    """
    draft, parsed = _verified(settings, stores, contents, jws, overlaid, reason)
    snapshot = proven(parsed)
    with _restoring(stores), policy_login(stores, snapshot) as connection:
        generation = stage(connection, draft)
        try:
            told = _answered(connection, generation, wait_s)
            if (told.pending or told.refused) and not force:
                raise NotPrepared(generation, told)
            flip(connection, snapshot, generation, activated_by=activated_by)
        except BaseException:
            abandon(connection, generation)
            raise
        # a gateway that started meanwhile wrote the words of the old policy
        migrate(stores.database_url, stores.database_secret, snapshot)
        living = _swapped(connection, snapshot)
    serving = sum(one.digest == snapshot.digest for one in living)
    return Outcome(generation, snapshot.digest, draft.change, len(living), serving)


def _verified(
    settings: Settings,
    stores: Stores,
    contents: Mapping[str, bytes],
    jws: Mapping[str, Any] | None,
    overlaid: frozenset[str],
    reason: str,
) -> tuple[Draft, Parsed]:
    """The release as it is to be stored, and its policy, believed."""
    anchor = trust_anchor(settings)
    digest = digest_of(contents)
    if not anchor.signed:
        now = standing(stores, anchor.environment, signed=False)
        parsed = parsed_of(contents, overlaid)
        change = direction_of(now.parsed, parsed) if now.parsed is not None else Direction.WIDENING
        draft = Draft(
            environment=anchor.environment,
            digest=digest,
            contents=contents,
            change=CHANGES[change],
            reason=reason,
            overlaid=overlaid,
        )
        return draft, parsed
    if jws is None:
        remedy = "sign it with `gateway policy approve`"
        raise ReleaseRefused("unsigned", "the folder has no release beside it", remedy)
    manifest = manifest_of(jws)
    offered = Artefact(manifest.generation, manifest.digest, jws, contents)
    with _reading(stores) as connection:
        active = release_in(connection, "active") if connection is not None else None
        signed = active is not None and active.jws is not None
        parsed = accept(
            offered,
            anchor,
            newer_than=active.generation if active is not None and signed else 0,
            fetch=lambda number: artefact(connection, number) if connection is not None else None,
        )
        old = base_of(connection) if connection is not None and signed else None
    change = direction_of(old, parsed) if old is not None else Direction.WIDENING
    if change is Direction.WIDENING and manifest.change != CHANGES[change]:
        reason = f"it opens something, and its signers were told `{manifest.change}`"
        raise ReleaseRefused("change_understated", reason, "approve the folder anew")
    base = manifest.base_generation, manifest.base_digest
    draft = Draft(
        environment=manifest.environment,
        digest=manifest.digest,
        contents=contents,
        change=CHANGES[change],
        generation=manifest.generation,
        base=(base[0], base[1]) if base[0] is not None and base[1] is not None else None,
        jws=jws,
        reason=manifest.reason,
    )
    return draft, parsed


@contextmanager
def _reading(stores: Stores) -> Iterator[psycopg.Connection[Any] | None]:
    """A session that reads releases; None where the database is too new or too old for them."""
    if not has_releases(stores):
        yield None
        return
    try:
        with psycopg.connect(station_dsn(stores, POLICY), autocommit=True) as connection:
            yield connection
    except psycopg.OperationalError as error:
        raise no_database(first_line(error)) from error
    except psycopg.Error as error:
        remedy = "compare the database with this version's migrations"
        raise CannotStart("database_unfit", first_line(error), remedy) from error


@contextmanager
def _restoring(stores: Stores) -> Iterator[None]:
    """Give the database the words of the active policy back when the new one did not make it.

    Of the one that is active by then: another activation may have overtaken this one.
    """
    try:
        yield
    except BaseException:
        written = None
        while (active := _active(stores)) is not None and active.digest != written:
            migrate(stores.database_url, stores.database_secret, compiled(active)[0])
            written = active.digest
        raise


def _active(stores: Stores) -> Parsed | None:
    with _reading(stores) as connection:
        return base_of(connection) if connection is not None else None


def _answered(connection: psycopg.Connection[Any], generation: int, wait_s: float) -> Answers:
    """What the living replicas say, once none is pending, one refuses or the time is over."""
    end = time.monotonic() + wait_s
    while True:
        told = answers(replicas(connection), generation)
        if not told.pending or told.refused or time.monotonic() >= end:
            return told
        time.sleep(_PAUSE_S)


def _swapped(connection: psycopg.Connection[Any], snapshot: Snapshot) -> tuple[Replica, ...]:
    """The living replicas, once all serve the snapshot or have had the time to."""
    end = time.monotonic() + _SWAP_S
    while True:
        living = replicas(connection)
        if all(one.digest == snapshot.digest for one in living) or time.monotonic() >= end:
            return living
        time.sleep(_PAUSE_S)
