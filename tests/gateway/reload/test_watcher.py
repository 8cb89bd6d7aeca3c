"""What the database says is a reason to look; what is remembered and what waits is decided here.

Provenance: attacks on issue 3, point 6, with ingest's and activation's own tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from gateway.holder import SnapshotHolder
from gateway.reload.builder import Builder
from gateway.reload.sightings import BYTES_MAX
from gateway.reload.watcher import Watcher
from policies.decision import PolicyDigest
from policies.files import digest_of
from policies.release import Artefact
from policies.snapshot import Snapshot
from retrieval.stores.activation import Draft, flip, stage
from retrieval.stores.roles import POLICY, WATCH, dsn_for
from tests import large_policy
from tests.policies.release.made import ANCHOR, ANN, DEFAULT, narrower, release
from tests.services import Database

FIRST = release(DEFAULT, 1, change="widening")
SECOND = release(narrower(), 2, by=[ANN], base=FIRST, change="narrowing")
pytestmark = pytest.mark.timeout(300)


class Kept:
    """A memory that a test reads."""

    def __init__(self) -> None:
        self.found: tuple[int, PolicyDigest] | None = (1, FIRST.digest)

    def highest(self) -> tuple[int, PolicyDigest] | None:
        return self.found

    def remember(self, generation: int, digest: PolicyDigest) -> None:
        if self.found is None or generation > self.found[0]:
            self.found = generation, digest


@dataclass(frozen=True)
class Site:
    """A database that serves the first release, and somebody who watches it."""

    database: Database
    snapshot: Snapshot
    memory: Kept

    def policy(self) -> psycopg.Connection[Any]:
        dsn = dsn_for(POLICY, self.database.url, self.database.secret)
        return psycopg.connect(dsn, autocommit=True)

    def stage(self, made: Artefact) -> None:
        with self.policy() as connection:
            stage(connection, draft(made, base=None if made is FIRST else FIRST))

    def flip(self, made: Artefact) -> None:
        with self.policy() as connection:
            flip(connection, self.snapshot, made.generation)

    def run(self, statement: str, *values: object) -> None:
        """As activation's own login, past its program."""
        with self.policy() as connection:
            connection.execute(statement.encode(), values)

    def play(self, scene: Callable[[Watcher, SnapshotHolder], Awaitable[None]]) -> None:
        async def main() -> None:
            holder, builder = SnapshotHolder(self.snapshot), Builder()
            dsn = dsn_for(WATCH, self.database.url, self.database.secret)
            watcher = Watcher(holder, builder, dsn, anchor=ANCHOR, memory=self.memory, look_s=0.05)
            await builder.start()
            watcher.start()
            try:
                async with asyncio.timeout(120):
                    await scene(watcher, holder)
            finally:
                await watcher.stop()
                await builder.stop()

        asyncio.run(main())


def draft(made: Artefact, *, base: Artefact | None) -> Draft:
    return Draft(
        environment="production",
        digest=made.digest,
        contents=made.contents,
        change="none",
        generation=made.generation,
        base=(base.generation, base.digest) if base else None,
        jws=made.jws,
    )


@pytest.fixture
def site(database: Database, snapshot: Snapshot) -> Site:
    site = Site(database, snapshot, Kept())
    site.stage(FIRST)
    site.flip(FIRST)
    return site


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - of another task, and of the database
        await asyncio.sleep(0.02)


def test_a_number_that_nobody_signed_is_not_remembered(site: Site) -> None:
    """Whoever writes the active revision could else number the policy in force out of reach, so
    that every later release is an older one, after a restart and a mended database, too."""

    async def scene(watcher: Watcher, holder: SnapshotHolder) -> None:
        await until(lambda: watcher.generation == 1)
        site.run("update gate.active_revision set generation = 9007199254740992")
        await until(lambda: bool(watcher.counts.builds))
        assert site.memory.highest() == (1, FIRST.digest)
        assert watcher.generation == 1
        assert holder.current.digest == FIRST.digest
        site.run("update gate.active_revision set generation = 1")
        site.stage(SECOND)
        await until(lambda: SECOND.digest in holder.prepared)

    site.play(scene)


def test_the_same_policy_under_a_new_number_is_remembered_once_it_was_verified(
    site: Site,
) -> None:
    again = release(DEFAULT, 2, base=FIRST)

    async def scene(watcher: Watcher, holder: SnapshotHolder) -> None:
        await until(lambda: watcher.generation == 1)
        site.stage(again)
        site.flip(again)
        await until(lambda: site.memory.highest() == (2, again.digest))
        assert watcher.generation == 2

    site.play(scene)


def test_a_candidate_that_takes_for_ever_keeps_no_release_waiting(site: Site) -> None:
    """Nobody signs a candidate: it must not stand between a staged release and its activation."""
    slow = large_policy.contents(profiles=120, rules=6_000)
    files = {path: content.decode() for path, content in slow.items()}

    async def scene(watcher: Watcher, holder: SnapshotHolder) -> None:
        await until(lambda: watcher.generation == 1)
        site.run(
            "insert into gate.policy_candidate (digest, files, sample, started_by, reason)"
            " values (%s, %s, 0, 'x', 'x')",
            digest_of(slow),
            Jsonb(files),
        )
        await until(lambda: watcher.building == "candidate")
        site.stage(SECOND)
        await until(lambda: SECOND.digest in holder.prepared)
        assert watcher.counts.builds == {("staged", "ok"): 1}
        await until(lambda: watcher.building == "candidate")  # then it has its turn again

    site.play(scene)


def test_what_is_too_large_is_refused_before_it_is_read(site: Site) -> None:
    """60 MB of files held the event loop for 0.8 s; 200 MB ended the builder, again and again."""
    big = "jsonb_build_object('rules/units.csv', repeat('x', %s))"

    async def scene(watcher: Watcher, _: SnapshotHolder) -> None:
        site.run(
            "insert into gate.policy_release (generation, environment, digest, change, jws, files)"
            f" values (2, 'production', %s, 'none', '{{}}', {big})",
            "a" * 64,
            BYTES_MAX,
        )
        site.run(
            "insert into gate.policy_candidate (digest, files, sample, started_by, reason)"
            f" values (%s, {big}, 0, 'x', 'x')",
            "b" * 64,
            BYTES_MAX,
        )
        await until(lambda: len(watcher.counts.builds) == 2)
        refused = "release_too_large"
        assert watcher.counts.builds == {("staged", refused): 1, ("candidate", refused): 1}

    site.play(scene)
