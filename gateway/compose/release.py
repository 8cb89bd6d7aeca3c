"""Which policy this process starts with: the folder as it stands, or a release that is believed.

Laws
    * Where releases are signed nothing is read from a folder: the active release of the
      database is verified, compiled and proven here, and without one nothing is served.
    * What the database enforces is what the release says, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from gateway.compose.database import no_release, policy_login, prepare, prove, station_dsn
from gateway.compose.failure import CannotStart, first_line, no_database
from gateway.compose.stores import Stores
from gateway.compose.trust import ReleaseMemory, trust_anchor
from gateway.settings import Settings
from policies.decision import PolicyDigest
from policies.faults import Faults
from policies.loader import Parsed, parse_files
from policies.release import Artefact, ReleaseRefused, accept, contents_of, direction_of
from policies.release.artefact import parsed_of
from policies.release.manifest import CHANGES
from policies.review.change import Direction
from policies.snapshot import Snapshot, proven
from retrieval.stores.activation import Draft, grants_differ
from retrieval.stores.releases import artefact, release_in
from retrieval.stores.roles import WATCH


@dataclass(frozen=True, slots=True)
class FolderPolicy:
    """A policy with the very files that it was compiled from."""

    snapshot: Snapshot
    parsed: Parsed
    contents: Mapping[str, bytes]
    overlaid: frozenset[str]


def folder_policy(folder: Path, overlay: Path | None = None) -> FolderPolicy:
    """The policy of a folder, proven. Raises what ``policies.snapshot.load`` raises."""
    found = contents_of(folder, overlay)
    parsed = parse_files(found, Faults())
    return FolderPolicy(proven(parsed), parsed, found.contents, found.overlaid)


def enforced_policy(settings: Settings, stores: Stores, own: FolderPolicy | None) -> Snapshot:
    """The policy that the database enforces from here on: ``own``, or without it the release.

    Raises: CannotStart; ReleaseRefused and any other PolicyError. Cost: as starting; blocks.
    """
    if own is None:
        return _released(settings, stores)
    draft = Draft(
        environment=settings.release.environment,
        digest=own.snapshot.digest,
        contents=own.contents,
        change=CHANGES[_change(stores, own.parsed)],
        overlaid=own.overlaid,
    )
    prepare(stores, own.snapshot, draft)
    return own.snapshot


def active_policy(settings: Settings, stores: Stores) -> Snapshot:
    """The policy that is active, for one of several workers: it never changes which that is.

    Raises: CannotStart; ReleaseRefused and any other PolicyError. Cost: as starting; blocks.
    """
    if settings.release.signed:
        return _released(settings, stores)
    try:
        with psycopg.connect(station_dsn(stores, WATCH), autocommit=True) as connection:
            found = _active(connection, settings.release.environment)
    except psycopg.Error as error:
        raise no_database(first_line(error)) from error
    snapshot = proven(parsed_of(found.contents, found.overlaid))
    prove(stores, snapshot)
    return snapshot


def has_releases(stores: Stores) -> bool:
    """Whether the database is new enough to hold releases. Raises: CannotStart."""
    try:
        with psycopg.connect(stores.database_url, autocommit=True) as admin:
            row = admin.execute("select to_regclass('gate.policy_release') is not null").fetchone()
    except psycopg.Error as error:
        raise no_database(first_line(error)) from error
    return row is not None and bool(row[0])


def base_of(connection: psycopg.Connection[Any]) -> Parsed | None:
    """The policy of the active release, if it has files that can still be read."""
    active = release_in(connection, "active")
    stored = artefact(connection, active.generation) if active is not None else None
    if stored is None:
        return None
    try:
        return parsed_of(stored.contents, stored.overlaid)
    except ReleaseRefused:  # files of an older version: nothing can be shown of the change
        return None


def _change(stores: Stores, parsed: Parsed) -> Direction:
    """What starting with this folder changes, for the history."""
    if not has_releases(stores):
        return Direction.WIDENING
    try:
        with psycopg.connect(station_dsn(stores, WATCH), autocommit=True) as connection:
            base = base_of(connection)
    except psycopg.Error as error:
        raise no_database(first_line(error)) from error
    if base is None:
        return Direction.WIDENING
    return Direction.NEUTRAL if base.digest == parsed.digest else direction_of(base, parsed)


def _released(settings: Settings, stores: Stores) -> Snapshot:
    anchor = trust_anchor(settings)
    memory = ReleaseMemory(settings)
    environment = settings.release.environment
    if not has_releases(stores):
        raise no_release(f"the database holds no release of `{environment}`")
    try:
        with psycopg.connect(station_dsn(stores, WATCH), autocommit=True) as connection:
            found = _active(connection, environment)
            parsed = accept(
                found,
                anchor,
                newer_than=_floor(memory, found),
                fetch=lambda generation: artefact(connection, generation),
                accepted=_accepted(memory),
            )
    except psycopg.Error as error:
        raise no_database(first_line(error)) from error
    snapshot = proven(parsed)
    with policy_login(stores, snapshot) as connection:
        prove(stores, snapshot)
        if grants_differ(connection, snapshot):
            reason = "the grants in the database are not those of the active release"
            raise CannotStart("grants_differ", reason, "activate the release anew")
    memory.write(found.generation, found.digest)
    return snapshot


def _active(connection: psycopg.Connection[Any], environment: str) -> Artefact:
    """The active release, which is also what the database says that it enforces."""
    row = connection.execute("select generation, digest from gate.active_revision").fetchone()
    active = release_in(connection, "active")
    if row is None or active is None:
        raise no_release(f"the database has no active release of `{environment}`")
    if (active.generation, active.digest) != row:
        reason = f"generation {active.generation} is the active release, {row[0]} is enforced"
        raise CannotStart("revision_differs", reason, "activate the release anew")
    found = artefact(connection, active.generation)
    if found is None:
        raise no_release(f"the files of generation {active.generation} are not here")
    return found


def _accepted(memory: ReleaseMemory) -> dict[int, PolicyDigest]:
    """The release where a chain may end, and that no other of its number can stand in for."""
    before = memory.read()
    return {} if before is None else {before.generation: before.digest}


def _floor(memory: ReleaseMemory, found: Artefact) -> int:
    """What the active release must be newer than. Raises: CannotStart."""
    before = memory.read()
    if before is None:
        return 0
    if found.generation != before.generation:
        return before.generation  # an older one is refused by it
    if found.digest != before.digest:
        reason = f"generation {found.generation} was accepted here with other files"
        raise CannotStart("generation_reused", reason, "release it under a new number")
    return 0  # accepted before: everything it stands on is walked and proven once more
