"""An override loosens a label for a time, once somebody else approved it, and for no longer.

Provenance: architecture, section 5; data model 5.1; issue 5, "What to build" 5.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from psycopg import errors

from retrieval.stores.roles import GUARD, INGEST, LABEL
from tests.retrieval.database.test_widening import (
    BLANK,
    PARTNER,
    RELABEL,
    STAFF,
    approve,
    changes,
    code_of,
    open_change,
    profiles,
    readers,
)
from tests.retrieval.database.world import OPEN, OPEN_THREAD, SECRET, World

ASK = "select gate.ask_override(%s, %s, 'carol', 'for the fair', %s)"
APPROVE = "select gate.approve_override(%s, 'ann', 'role:risk_officer', 'checked', %s, %s)"
CLOSE = "select gate.close_override(%s, %s, 'ben', 'role:risk_officer', 'not any more')"
PUBLIC = ["public", None, None, None, None]
LAPSE = """
    update gate.label_override set asked_at = asked_at - interval '2 days',
        expires_at = now() - interval '1 second' where id = %s"""


def call(world: World, statement: str, *values: object, role: str = LABEL) -> Any:
    with world.login(role) as connection:
        row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]


def ask(
    world: World,
    unit: UUID,
    words: Sequence[str | None] = PUBLIC,
    lasting: timedelta = timedelta(hours=1),
) -> UUID:
    ident: UUID = call(world, ASK, unit, list(words), lasting)
    return ident


def allow(world: World, override: UUID, decided: list[str] | None = None) -> Any:
    chosen = profiles(world) if decided is None else decided
    return call(world, APPROVE, override, world.snapshot.digest, chosen)


def loosened(world: World, words: Sequence[str | None] = STAFF) -> tuple[UUID, UUID]:
    unit = world.unit(words)
    override = ask(world, unit)
    allow(world, override)
    return unit, override


def state(world: World, override: UUID) -> str:
    return str(world.one("select state from gate.label_override where id = %s", [override]))


def lapse(world: World, override: UUID) -> None:
    """Let its time be over, as the clock would: nothing else notices."""
    world.as_superuser("alter table gate.label_override disable trigger keep_override")
    world.as_superuser(LAPSE, [override])
    world.as_superuser("alter table gate.label_override enable trigger keep_override")
    with psycopg.connect(world.database.url) as admin:  # without the triggers that follow writes
        admin.execute("set session_replication_role = replica")
        admin.execute(
            "update brain.unit set override_until = now() - interval '1 second'"
            " where override_id is not null"
        )


def read(world: World, unit: UUID, profile: str = "customer") -> bool:
    async def main() -> bool:
        async with world.reading(world.subject(profile)) as reader:
            return unit in (await reader.hydrate([unit])).units

    return asyncio.run(main())


def guarded(world: World, unit: UUID) -> list[Any]:
    with world.login(GUARD) as connection:
        return connection.execute(
            "select class_id from brain.unit where id = %s", [unit]
        ).fetchall()


# --- loosening -------------------------------------------------------------------------------


def test_nothing_opens_before_somebody_approved(world: World) -> None:
    """Asking changes no class, whatever the one who asks does besides."""
    unit = world.unit(STAFF)
    override = ask(world, unit)
    for statement in (
        "update brain.unit set title = 'x'",
        "update brain.unit set override_id = %s, override_until = 'infinity'",
        "update brain.unit set class_id = 0",
    ):
        world.run(statement, [override] if "%s" in statement else [])
        assert world.class_of(unit) == world.class_id(STAFF)
    assert not read(world, unit)
    for role in (INGEST, GUARD):
        for statement in (
            "update gate.label_override set state = 'approved'",
            "insert into gate.label_override (author) values ('x')",
            "select gate.approve_override(gen_random_uuid(), '', '', '', '', '{}')",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                world.run(statement, role=role)


def test_an_approved_override_opens_and_is_one_event(world: World) -> None:
    unit, override = loosened(world)
    assert world.class_of(unit) == world.class_id(OPEN)
    assert read(world, unit)
    assert guarded(world, unit) == [(world.class_id(OPEN),)]
    assert world.ask("select kind, layer, action, unit_ids from gate.security_event") == [
        ("label_widened", "label_override", "approved", [unit])
    ]
    stored = world.ask("select state, gained, approver from gate.label_override")
    assert stored == [("approved", readers(world, OPEN, before=STAFF), "ann")]
    assert world.one("select visibility from brain.unit") == "employee"
    assert state(world, override) == "approved"


def test_one_that_opens_to_nobody_yet_is_an_event_about_nobody(world: World) -> None:
    """What is approved and not published is read by none but employees, who had it before."""
    loosened(world, (STAFF[0], "approved", *STAFF[2:]))
    assert world.ask("select audience, profile, unit_count from gate.security_event") == [
        ("nobody", "nobody", 1)
    ]


def test_an_approval_that_leaves_out_for_whom_or_by_whom_changes_nothing(world: World) -> None:
    unit = world.unit(STAFF)
    override, digest = ask(world, unit), world.snapshot.digest
    assert call(world, APPROVE, override, digest, None) is None
    unnamed = APPROVE.replace("'ann'", "null")
    assert call(world, unnamed, override, digest, profiles(world)) is None
    assert (state(world, override), world.class_of(unit)) == ("pending", world.class_id(STAFF))


def test_it_loosens_what_several_threads_make_strict(world: World) -> None:
    """The case that overrides are for: the stricter of two threads wins, but for this unit."""
    strict, lax = world.thread(("employee", *OPEN_THREAD[1:])), world.thread(OPEN_THREAD)
    unit = world.unit(BLANK, thread=strict)
    world.link(lax, unit)
    assert world.class_of(unit) == world.class_id(STAFF)
    allow(world, ask(world, unit))
    assert world.class_of(unit) == world.class_id(OPEN)


def test_an_override_that_closes_anything_is_refused(common: World) -> None:
    for words in (["restricted", *PUBLIC[1:]], ["public", None, "withdrawn", None, None]):
        with pytest.raises(psycopg.DatabaseError) as caught:
            ask(common, common.unit(STAFF), words)
        assert code_of(caught) == "GW422"


@pytest.mark.parametrize("words", [["everyone", None, None, None, None], ["", *PUBLIC[1:]]])
def test_a_word_that_is_not_ours_is_refused(common: World, words: list[str | None]) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        ask(common, common.unit(STAFF), words)
    assert code_of(caught) == "GW422"


def test_it_is_approved_for_exactly_whom_the_policy_decided_on(world: World) -> None:
    unit = world.unit(STAFF)
    override = ask(world, unit)
    with pytest.raises(psycopg.DatabaseError) as caught:
        allow(world, override, decided=["partner"])
    assert code_of(caught) == "GW412"
    with pytest.raises(psycopg.DatabaseError) as caught:
        call(world, APPROVE, override, "another", profiles(world))
    assert code_of(caught) == "GW412"
    assert world.class_of(unit) == world.class_id(STAFF)


def test_a_unit_has_one_override_at_a_time(common: World) -> None:
    unit = common.unit(STAFF)
    ask(common, unit)
    with pytest.raises(psycopg.DatabaseError) as caught:
        ask(common, unit)
    assert code_of(caught) == "GW409"


def test_what_is_asked_for_a_label_that_changed_meanwhile_is_not_approved(common: World) -> None:
    unit = common.unit(STAFF)
    override = ask(common, unit)
    common.run(RELABEL, ["restricted", unit])
    with pytest.raises(psycopg.DatabaseError) as caught:
        allow(common, override)
    assert code_of(caught) == "GW409"
    assert common.class_of(unit) == common.class_id(SECRET)


def test_other_texts_leave_an_override_in_effect(common: World) -> None:
    unit, override = loosened(common)
    common.run("update brain.unit set title = 'new', active_at = now() where id = %s", [unit])
    assert common.class_of(unit) == common.class_id(OPEN)
    assert state(common, override) == "approved"


# --- the end ---------------------------------------------------------------------------------


def test_it_ends_at_once_when_it_is_revoked(world: World) -> None:
    unit, override = loosened(world)
    call(world, CLOSE, override, "revoked")
    assert world.class_of(unit) == world.class_id(STAFF)
    assert not read(world, unit)
    assert read(world, unit, "employee")
    assert state(world, override) == "revoked"


def test_a_rejected_one_never_comes_into_effect(common: World) -> None:
    unit = common.unit(STAFF)
    override = ask(common, unit)
    call(common, CLOSE, override, "rejected")
    with pytest.raises(psycopg.DatabaseError) as caught:
        allow(common, override)
    assert code_of(caught) == "GW409"


def test_it_ends_at_once_when_its_time_is_over(world: World) -> None:
    """Nobody reads the unit from that moment, on either check; a second later, who may again."""
    unit, override = loosened(world)
    lapse(world, override)
    assert world.class_of(unit) == world.class_id(OPEN)  # not computed anew yet
    assert not read(world, unit)
    assert not read(world, unit, "employee")
    assert guarded(world, unit) == []
    pending = world.one(
        "select pending_seconds from brain.refused_units(array[%s]::uuid[])", [unit]
    )
    assert 0 < pending < 60
    assert call(world, "select gate.end_overrides()") == 1
    assert world.class_of(unit) == world.class_id(STAFF)
    assert not read(world, unit)
    assert read(world, unit, "employee")
    assert state(world, override) == "ended"
    assert call(world, "select gate.end_overrides()") == 0


def test_any_other_write_after_its_time_ends_it_too(world: World) -> None:
    unit, override = loosened(world)
    lapse(world, override)
    world.run("update brain.unit set title = 'x' where id = %s", [unit])
    assert world.class_of(unit) == world.class_id(STAFF)
    assert state(world, override) == "ended"


def test_a_narrower_label_ends_it_at_once(world: World) -> None:
    """A withdrawal or a stricter thread is never outweighed by an older override."""
    unit, override = loosened(world)
    world.run(RELABEL, ["restricted", unit])
    assert world.class_of(unit) == world.class_id(SECRET)
    assert state(world, override) == "ended"
    thread = world.thread(("employee", *OPEN_THREAD[1:]))
    below = world.unit(BLANK, thread=thread)
    allow(world, ask(world, below))
    world.run("update brain.thread set visibility = 'restricted' where id = %s", [thread])
    assert world.class_of(below) == world.class_id(SECRET)


def test_what_is_said_while_it_lasts_is_measured_without_it(world: World) -> None:
    """Otherwise a word that opens for good would hide behind one that opens for an hour."""
    unit, override = loosened(world)
    world.run(RELABEL, ["public", unit])
    assert world.class_of(unit) == world.class_id(STAFF)
    assert [(row[0], row[1]) for row in changes(world, unit) if row[0] == "pending"] == [
        ("pending", list(OPEN))
    ]
    assert state(world, override) == "ended"
    approve(world, open_change(world, unit))
    assert world.class_of(unit) == world.class_id(OPEN)


def test_a_thread_that_opens_meanwhile_opens_nothing_below_an_override(world: World) -> None:
    """The same through a blank: the unit's own widening waits like any other."""
    thread = world.thread(("employee", *OPEN_THREAD[1:]))
    unit = world.unit(BLANK, thread=thread)
    allow(world, ask(world, unit, ["partner", *PUBLIC[1:]]))
    assert world.class_of(unit) == world.class_id(PARTNER)
    world.run("update brain.thread set visibility = 'partner' where id = %s", [thread])
    approve(world, open_change(world, thread))
    assert world.class_of(unit) == world.class_id(STAFF)
    assert [row[0] for row in changes(world, unit)].count("pending") == 1


def test_going_to_and_fro_in_one_transaction_opens_nothing(world: World) -> None:
    unit, _ = loosened(world)
    with world.login(INGEST) as connection, connection.transaction():
        for word in ("restricted", "public", "employee", "public"):
            connection.execute(RELABEL, [word, unit])
    assert world.class_of(unit) in (-1, world.class_id(STAFF), world.class_id(SECRET))
    assert not read(world, unit)


def test_an_override_that_was_asked_for_too_long_ago_is_not_approved(world: World) -> None:
    unit = world.unit(STAFF)
    override = ask(world, unit)
    lapse(world, override)
    with pytest.raises(psycopg.DatabaseError) as caught:
        allow(world, override)
    assert code_of(caught) == "GW409"
    call(world, "select gate.end_overrides()")
    assert state(world, override) == "ended"


def test_what_was_asked_and_decided_is_not_rewritten(world: World) -> None:
    _, override = loosened(world)
    for statement in (
        "update gate.label_override set expires_at = 'infinity'",
        "update gate.label_override set to_class = 0",
        "update gate.label_override set state = 'pending', decided_at = null",
        "delete from gate.label_override",
        "truncate gate.label_override",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            world.as_superuser(statement)
    assert state(world, override) == "approved"


# --- the law ---------------------------------------------------------------------------------

WORD = st.sampled_from(["public", "partner", "employee", "restricted"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("unit"), st.none() | WORD),
        st.tuples(st.just("thread"), WORD),
        st.tuples(st.just("override"), WORD),
        st.tuples(st.just("end"), st.sampled_from(["revoked", "by the clock"])),
        st.tuples(st.just("text"), st.just("")),
    ),
    max_size=8,
)


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])
@given(start=st.sampled_from(["partner", "employee", "restricted"]), steps=STEPS)
@example(start="employee", steps=[("override", "public"), ("unit", "public")])
@example(start="employee", steps=[("override", "public"), ("thread", "public"), ("text", "")])
def test_once_overrides_are_over_nothing_is_open_that_was_not(
    start: str, steps: list[tuple[str, str | None]], common: World
) -> None:
    """Whatever was said and loosened meanwhile: nobody approved a label for good, so no profile
    reads in the end what it could not read in the beginning."""
    thread = common.thread((start, *OPEN_THREAD[1:]))
    unit = common.unit(BLANK, thread=thread)
    first = common.class_of(unit)
    for what, word in [*steps, ("end", "by the clock")]:
        match what:
            case "unit":
                common.run(RELABEL, [word, unit])
            case "thread":
                common.run("update brain.thread set visibility = %s where id = %s", [word, thread])
            case "override":
                with contextlib.suppress(psycopg.DatabaseError):
                    allow(common, ask(common, unit, [word, None, None, None, None]))
            case "text":
                common.run("update brain.unit set title = 'x' where id = %s", [unit])
            case "end":
                end(common, unit, word)
    last = common.class_of(unit)
    gained = common.one("select gate.gains(%s::smallint, '*', '*', %s::smallint, '*', '*')",
                        [first, last])  # fmt: skip
    assert gained == []


def end(world: World, unit: UUID, how: str | None) -> None:
    """End what is open for a unit."""
    open_ones = world.ask(
        "select id, state from gate.label_override where unit_id = %s"
        " and state in ('pending', 'approved')",
        [unit],
    )
    for override, _ in open_ones:
        if how == "revoked":
            call(world, CLOSE, override, "revoked")
        else:
            lapse(world, override)
            call(world, "select gate.end_overrides()")
