"""Releases move forward only, take effect on what they were compared with, and are not lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from policies.decision import PolicyDigest
from policies.snapshot import Snapshot
from retrieval.stores.activation import (
    CHANNEL,
    ActivationRefused,
    Draft,
    abandon,
    activate,
    flip,
    grants_differ,
    next_generation,
    stage,
)
from retrieval.stores.releases import answers, artefact, release_in, releases, replicas
from retrieval.stores.roles import POLICY, WATCH
from tests.retrieval.database.world import World
from tests.services import Database

JWS = {"payload": "e30", "signatures": [{"protected": "e30", "signature": "AA"}]}


def another(snapshot: Snapshot, letter: str) -> Snapshot:
    return replace(snapshot, digest=PolicyDigest(letter * 64))


def draft(letter: str, **changes: Any) -> Draft:
    made = Draft(
        environment="development",
        digest=PolicyDigest(letter * 64),
        contents={"rules/units.csv": "# Không\n".encode()},
        change="narrowing",
        reason="a test",
    )
    return replace(made, **changes)


def signed(letter: str, generation: int, base: tuple[int, str] | None) -> Draft:
    return draft(letter, environment="production", generation=generation, jws=JWS, base=base)


def test_a_signed_release_has_no_overlay(database: Database, snapshot: Snapshot) -> None:
    """An unsigned one keeps the names of its overlaid files, and nobody changes them."""
    world = World(database, snapshot)
    laid = frozenset({"rules/issuers.yaml"})
    with world.login(POLICY) as connection:
        with pytest.raises(errors.CheckViolation):
            stage(connection, replace(signed("b", 1, None), overlaid=laid))
        generation = stage(connection, draft("c", overlaid=laid))
        kept = artefact(connection, generation)
        assert kept is not None
        assert kept.overlaid == laid
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("update gate.policy_release set overlaid = '{}'")


def test_a_release_is_read_before_its_database_is_migrated(
    database: Database, snapshot: Snapshot
) -> None:
    """Its column of overlaid files came later than the table (0090)."""
    world = World(database, snapshot)
    with world.login(POLICY) as connection:
        generation = stage(connection, draft("c"))
        before = artefact(connection, generation)
        world.as_superuser("alter table gate.policy_release drop column overlaid cascade")
        assert artefact(connection, generation) == before


def released(world: World, made: Draft) -> int:
    """Staged and flipped, as one activation does it."""
    with world.login(POLICY) as connection:
        generation = stage(connection, made)
        flip(connection, replace(world.snapshot, digest=made.digest), generation)
    return generation


def test_a_staged_release_changes_nothing_until_it_is_flipped(world: World) -> None:
    """And the files come back byte by byte."""
    made = draft("b")
    with world.login(POLICY) as connection:
        generation = stage(connection, made)
        assert generation == 2
        assert world.one("select digest from gate.active_revision") == world.snapshot.digest
        found = artefact(connection, generation)
        assert found is not None
        assert (found.digest, found.contents, found.jws) == (made.digest, made.contents, None)
        flip(connection, another(world.snapshot, "b"), generation, activated_by="reviewer")
        assert world.ask("select digest, generation from gate.active_revision") == [("b" * 64, 2)]
        active = release_in(connection, "active")
    assert active is not None
    assert (active.generation, active.activated_by, active.reason) == (2, "reviewer", "a test")


def test_listeners_hear_of_both_phases(world: World) -> None:
    with psycopg.connect(world.dsn(WATCH), autocommit=True) as listening:
        listening.execute(f"listen {CHANNEL}")
        released(world, draft("b"))
        heard = [one.payload for one in listening.notifies(timeout=10, stop_after=2)]
    assert heard == ["staged 2", f"active {'b' * 64} 2"]


def test_an_abandoned_release_is_never_flipped_and_its_number_is_not_used_again(
    world: World,
) -> None:
    with world.login(POLICY) as connection:
        generation = stage(connection, draft("b"))
        assert abandon(connection, generation)
        assert not abandon(connection, generation)
        with pytest.raises(ActivationRefused) as caught:
            flip(connection, another(world.snapshot, "b"), generation)
        assert caught.value.code == "not_staged"
        assert next_generation(connection) == generation + 1


def test_staging_gives_up_what_another_activation_left_behind(world: World) -> None:
    with world.login(POLICY) as connection:
        stage(connection, draft("b"))
        stage(connection, draft("c"))
        assert [(one.generation, one.state) for one in releases(connection)] == [
            (3, "staged"),
            (2, "abandoned"),
        ]


def test_a_signed_release_takes_effect_on_its_base_only(world: World) -> None:
    """What reviewers saw was the difference to that base."""
    first = released(world, signed("b", 2, None))
    assert released(world, signed("c", 3, (first, "b" * 64))) == 3
    for base in (None, (2, "b" * 64), (3, "b" * 64)):
        with world.login(POLICY) as connection, pytest.raises(ActivationRefused) as caught:
            stage(connection, signed("d", 4, base))
        assert caught.value.code == "base_moved"


def test_numbers_only_grow(world: World) -> None:
    released(world, signed("b", 7, None))
    with world.login(POLICY) as connection, pytest.raises(ActivationRefused) as caught:
        stage(connection, signed("c", 7, (7, "b" * 64)))
    assert caught.value.code == "older_generation"
    assert "as generation " in str(caught.value)


def test_nothing_unsigned_and_nothing_of_elsewhere_follows_a_signed_release(world: World) -> None:
    """A gateway in development mode at the wrong database must not change what it serves."""
    released(world, signed("b", 2, None))
    elsewhere = replace(signed("c", 3, (2, "b" * 64)), environment="staging")
    attempts = {
        "environment_differs": (draft("c"), elsewhere),
        "unsigned": (draft("c", environment="production"),),
    }
    for code, drafts in attempts.items():
        for made in drafts:
            with world.login(POLICY) as connection:
                with pytest.raises(ActivationRefused) as caught:
                    stage(connection, made)
                assert caught.value.code == code
    with world.login(POLICY) as connection:
        with pytest.raises(ActivationRefused) as caught:
            activate(connection, another(world.snapshot, "c"), draft=draft("c"))
        assert caught.value.code == "environment_differs"
        with pytest.raises(ActivationRefused) as caught:
            activate(connection, another(world.snapshot, "c"))
        assert caught.value.code == "unsigned"
    assert world.one("select generation from gate.active_revision") == 2


def test_a_start_in_development_records_its_folder_once(world: World) -> None:
    """A revision that was active before there were releases gets its files recorded."""
    own = draft("a", digest=world.snapshot.digest)
    with world.login(POLICY) as connection:
        for _ in range(2):
            assert not activate(connection, world.snapshot, draft=own).changed
        assert [(one.generation, one.state) for one in releases(connection)] == [(1, "active")]
        assert activate(connection, another(world.snapshot, "b"), draft=draft("b")).generation == 2
        assert [
            (one.generation, one.base_generation, one.state) for one in releases(connection)
        ] == [(2, 1, "active"), (1, None, "past")]


def test_a_release_cannot_be_rewritten_even_by_the_superuser(world: World) -> None:
    released(world, draft("b"))
    for statement in (
        "update gate.policy_release set files = '{}'",
        "update gate.policy_release set jws = '{}'",
        "update gate.policy_release set generation = 9",
        "update gate.policy_release set state = 'staged'",
        "update gate.policy_release set state = 'abandoned'",
        "update gate.policy_release set activated_by = 'x'",
        "delete from gate.policy_release",
        "truncate gate.policy_release",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            world.as_superuser(statement)


def test_grants_that_somebody_changed_are_found(world: World) -> None:
    with world.login(POLICY) as connection:
        assert not grants_differ(connection, world.snapshot)
        connection.execute(
            "update gate.profile_grant set plain = plain # plain where profile = 'partner'"
        )
        assert grants_differ(connection, world.snapshot)


def test_replicas_are_counted_while_they_live(database: Database, snapshot: Snapshot) -> None:
    """One that was not seen for 15 seconds has no say."""
    world = World(database, snapshot)
    insert = (
        "insert into gate.replica (id, digest, generation, staged_generation, staged_state,"
        " staged_code, seen_at) values (%s, 'd', 1, %s, %s, %s, now() - %s * interval '1 second')"
    )
    with world.login(WATCH) as connection:
        for generation, state, code, age in (
            (4, "prepared", None, 0),
            (4, "preparing", None, 1),
            (4, "refused", "policy_invalid", 0),
            (3, "prepared", None, 0),
            (None, None, None, 0),
            (4, "prepared", None, 16),
        ):
            connection.execute(insert.encode(), [uuid4(), generation, state, code, age])
        living = replicas(connection)
    found = answers(living, 4)
    assert (found.prepared, found.pending, found.refused) == (1, 3, ("policy_invalid",))
