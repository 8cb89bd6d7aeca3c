"""Label changes that waited are decided: approved once, as they were shown, or rejected."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from retrieval.stores.roles import INGEST, LABEL, POLICY
from tests.retrieval.database.test_widening import (
    APPROVE,
    REJECT,
    RELABEL,
    STAFF,
    approve,
    changes,
    code_of,
    open_change,
    profiles,
    readers,
)
from tests.retrieval.database.world import OPEN, World

# --- deciding ------------------------------------------------------------------------------------


def test_an_approval_applies_the_wish_and_journals_it_at_once(common: World) -> None:
    unit = common.unit(STAFF)
    common.run(RELABEL, ["public", unit])
    change = open_change(common, unit)
    event = approve(common, change)
    assert common.class_of(unit) == common.class_id(OPEN)
    assert common.ask(
        "select kind, severity, action, layer, route, unit_ids, unit_count, class_ids,"
        " policy_digest, profile from gate.security_event where id = %s",
        [event],
    ) == [
        ("label_widened", "warning", "approved", "label_approval", "labels.approve", [unit], 1,
         [common.class_id(OPEN)], common.snapshot.digest,
         "+".join(readers(common, OPEN, before=STAFF)))
    ]  # fmt: skip
    assert common.ask(
        "select state, approver, approver_role, reason, event_id from gate.label_change"
        " where id = %s",
        [change],
    ) == [("approved", "ann", "role:risk_officer", "checked", event)]
    outbox = "select count(*) from brain.outbox where unit_id = %s and op = 'label'"
    assert common.one(outbox, [unit]) == 1
    with pytest.raises(psycopg.DatabaseError) as caught:
        approve(common, change)
    assert code_of(caught) == "GW409"


@pytest.mark.parametrize("wrong", ["digest", "profiles", "unknown"])
def test_an_approval_that_was_decided_on_something_else_changes_nothing(
    common: World, wrong: str
) -> None:
    unit = common.unit(STAFF)
    common.run(RELABEL, ["public", unit])
    change = open_change(common, unit) if wrong != "unknown" else uuid4()
    digest = "0" * 64 if wrong == "digest" else ""
    decided = readers(common, OPEN, before=STAFF)[1:] if wrong == "profiles" else None
    with pytest.raises(psycopg.DatabaseError) as caught:
        approve(common, change, digest=digest, decided=decided)
    assert code_of(caught) == {"unknown": "GW404"}.get(wrong, "GW412")
    assert common.class_of(unit) == common.class_id(STAFF)
    assert [state for state, _, _ in changes(common, unit)] == ["pending"]


def test_an_approval_that_leaves_out_for_whom_or_by_whom_changes_nothing(common: World) -> None:
    unit = common.unit(STAFF)
    common.run(RELABEL, ["public", unit])
    change, digest = open_change(common, unit), common.snapshot.digest
    with common.login(LABEL) as connection:
        for statement, decided in (
            (APPROVE, None),
            (APPROVE.replace("'ann'", "null"), profiles(common)),
        ):
            found = connection.execute(statement.encode(), [change, digest, decided]).fetchone()
            assert found == (None,)
    assert common.class_of(unit) == common.class_id(STAFF)
    assert [state for state, _, _ in changes(common, unit)] == ["pending"]


def test_an_approval_waits_for_a_policy_that_is_being_activated(world: World) -> None:
    """And then it was decided under another one: nothing is applied."""
    unit = world.unit(STAFF)
    world.run(RELABEL, ["public", unit])
    change = open_change(world, unit)
    values = [change, world.snapshot.digest, profiles(world)]
    with world.login(POLICY) as activating, world.login(LABEL) as approving:
        activating.execute("begin")
        activating.execute("update gate.active_revision set digest = %s", ["0" * 64])
        approving.execute("set lock_timeout = '100ms'")
        with pytest.raises(errors.LockNotAvailable):
            approving.execute(APPROVE, values)
        activating.execute("commit")
        with pytest.raises(psycopg.DatabaseError) as caught:
            approving.execute(APPROVE, values)
    assert code_of(caught) == "GW412"
    assert world.class_of(unit) == world.class_id(STAFF)


def test_a_source_that_narrows_while_it_is_approved_is_heard(world: World) -> None:
    """Two transactions at once: the approver waits for the source, and finds no wish any more."""
    unit = world.unit(STAFF)
    world.run(RELABEL, ["public", unit])
    change = open_change(world, unit)
    values = [change, world.snapshot.digest, profiles(world)]
    with world.login(INGEST) as narrowing, world.login(LABEL) as approving:
        narrowing.execute("begin")
        narrowing.execute(RELABEL, ["restricted", unit])
        approving.execute("set lock_timeout = '100ms'")
        with pytest.raises(errors.LockNotAvailable):
            approving.execute(APPROVE, values)
        narrowing.execute("commit")
        with pytest.raises(psycopg.DatabaseError) as caught:
            approving.execute(APPROVE, values)
    assert code_of(caught) == "GW409"
    assert world.class_of(unit) == world.class_id(("restricted", *OPEN[1:]))


def test_a_journal_that_cannot_be_written_approves_nothing(world: World) -> None:
    """Fault injection: the event's row is refused, and with it everything."""
    unit = world.unit(STAFF)
    world.run(RELABEL, ["public", unit])
    change = open_change(world, unit)
    world.as_superuser(
        "alter table gate.security_event add constraint broken check (kind <> 'label_widened')"
    )
    with pytest.raises(errors.CheckViolation):
        approve(world, change)
    assert world.class_of(unit) == world.class_id(STAFF)
    world.as_superuser("alter table gate.security_event drop constraint broken")
    approve(world, change)
    assert world.class_of(unit) == world.class_id(OPEN)


def test_a_rejected_wish_asks_nobody_again(common: World) -> None:
    """And may still be approved, while the source wishes it."""
    unit = common.unit(STAFF)
    common.run(RELABEL, ["public", unit])
    change = open_change(common, unit)
    with common.login(LABEL) as connection:
        connection.execute(REJECT, [change])
    common.run(RELABEL, ["public", unit])
    common.run("update brain.unit set title = 'x' where id = %s", [unit])
    assert [state for state, _, _ in changes(common, unit)] == ["rejected"]
    assert common.class_of(unit) == common.class_id(STAFF)
    approve(common, change)
    assert common.class_of(unit) == common.class_id(OPEN)
