"""Activation is a change of rows: atomic, idempotent, and undone by activating again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest

from policies.decision import PolicyDigest
from policies.snapshot import Snapshot
from retrieval.errors import PolicyMismatch
from retrieval.stores.activation import CHANNEL, ActivationRefused, activate
from retrieval.stores.roles import POLICY
from tests.retrieval.database.world import World
from tests.services import Database


def another(snapshot: Snapshot, digest: str) -> Snapshot:
    return replace(snapshot, digest=PolicyDigest(digest * 64))


def switch(world: World, snapshot: Snapshot) -> tuple[int, bool]:
    with world.login(POLICY) as connection:
        done = activate(connection, snapshot, activated_by="reviewer")
    return done.generation, done.changed


def test_the_same_digest_again_changes_nothing(world: World) -> None:
    before = world.ask("select * from gate.audience_filter_policy")
    assert switch(world, world.snapshot) == (1, False)
    assert world.ask("select * from gate.audience_filter_policy") == before


def test_generations_count_and_grants_of_one_earlier_digest_stay(world: World) -> None:
    """Going back is an activation like any other."""
    first, second, third = (
        world.snapshot,
        another(world.snapshot, "b"),
        another(world.snapshot, "c"),
    )
    assert switch(world, second) == (2, True)
    assert switch(world, first) == (3, True)
    assert switch(world, third) == (4, True)
    assert {d for (d,) in world.ask("select distinct digest from gate.profile_grant")} == {
        first.digest,
        third.digest,
    }
    assert world.ask(
        "select generation, digest from gate.audience_filter_policy order by generation"
    ) == [(1, first.digest), (2, second.digest), (3, first.digest), (4, third.digest)]


def test_masks_are_the_grants_bit_by_bit(world: World) -> None:
    """Bit i of a mask is class i, for every profile and both values of consent."""
    for profile, plain, consented in world.ask(
        "select profile, plain::text, consented::text from gate.profile_grant"
    ):
        grant = world.snapshot.grant([profile])
        assert tuple(i for i, bit in enumerate(plain) if bit == "1") == grant.plain
        assert tuple(i for i, bit in enumerate(consented) if bit == "1") == grant.consented


def test_listeners_hear_of_an_activation_when_it_holds(world: World) -> None:
    with psycopg.connect(world.database.url, autocommit=True) as listening:
        listening.execute(f"listen {CHANNEL}")
        switch(world, another(world.snapshot, "b"))
        (heard,) = listening.notifies(timeout=10, stop_after=1)
    assert heard.payload == f"active {'b' * 64} 2"


def test_an_activation_does_not_wait_for_readers_nor_disturb_them(world: World) -> None:
    """A reader of the old revision finishes under it; the next one is told."""
    unit = world.unit()

    async def main() -> bool:
        async with world.truth("customer") as truth:
            async with truth.reading(world.subject("customer"), world.snapshot) as reader:
                await asyncio.to_thread(switch, world, another(world.snapshot, "b"))
                seen = unit in (await reader.hydrate([unit])).units
            with pytest.raises(PolicyMismatch):
                async with truth.reading(world.subject("customer"), world.snapshot):
                    raise AssertionError("the old revision must not be served")
        return seen

    assert asyncio.run(main())


def test_a_revision_that_the_database_does_not_know_is_refused(
    database: Database, snapshot: Snapshot
) -> None:
    """Classes and profiles come with the migration; the text says so."""
    world = World(database, snapshot)
    world.as_superuser("delete from gate.profile_role where profile = 'agent:reader'")
    with pytest.raises(ActivationRefused, match=r"agent:reader`; migrate it first"):
        switch(world, snapshot)
    world.as_superuser("delete from gate.unit_class where class_id = 5")
    with pytest.raises(ActivationRefused, match="migrate it first"):
        switch(world, snapshot)
    assert world.ask("select * from gate.active_revision") == []
