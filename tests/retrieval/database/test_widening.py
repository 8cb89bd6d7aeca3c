"""No write opens an object to somebody before it is approved (issue 3, point 4).

The session is ingest's own login; what it may not do is tried by the statements that it has.
"""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from policies.vocabulary import FACETS
from retrieval.stores.roles import INGEST, LABEL, OWNER
from tests.retrieval.database.world import OPEN, OPEN_THREAD, World

STAFF = ("employee", *OPEN[1:])
PARTNER = ("partner", *OPEN[1:])
BLANK = (None, None, None, None, None, "faq")
RELABEL = "update brain.unit set visibility = %s where id = %s"
APPROVE = "select gate.approve_label_change(%s, 'ann', 'role:risk_officer', 'checked', %s, %s)"
REJECT = "select gate.reject_label_change(%s, 'ann', 'role:risk_officer', 'no')"


def profiles(world: World) -> list[str]:
    return sorted(world.snapshot.vocabulary.profiles)


def readers(world: World, words: tuple[str, ...], *, before: tuple[str, ...]) -> list[str]:
    """The profiles that one state opens to and the other does not, by the snapshot."""
    new, old = world.class_id(words), world.class_id(before)
    return [
        profile
        for profile in profiles(world)
        for grant in [world.snapshot.grant([profile])]
        if any(
            grant.permits_class(new, consent=consent)
            and not grant.permits_class(old, consent=consent)
            for consent in (False, True)
        )
    ]


def changes(world: World, of_object: UUID) -> list[tuple[Any, ...]]:
    """State, wished words and who gains, in the order of proposal."""
    return world.ask(
        "select state, to_label[1:6], gained from gate.label_change where object_id = %s"
        " order by proposed_at, state desc",
        [of_object],
    )


def open_change(world: World, of_object: UUID) -> UUID:
    found: UUID = world.one(
        "select id from gate.label_change where object_id = %s and state in ('pending','rejected')",
        [of_object],
    )
    return found


def approve(
    world: World, change: UUID, *, digest: str = "", decided: list[str] | None = None
) -> Any:
    with world.login(LABEL) as connection:
        row = connection.execute(
            APPROVE,
            [
                change,
                digest or world.snapshot.digest,
                profiles(world) if decided is None else decided,
            ],
        ).fetchone()
    assert row is not None
    return row[0]


def code_of(caught: pytest.ExceptionInfo[psycopg.Error]) -> str | None:
    return caught.value.sqlstate


# --- what waits and what does not ----------------------------------------------------------------


def test_a_widening_label_waits_and_the_text_beside_it_goes_through(common: World) -> None:
    unit = common.unit(STAFF)
    common.run(
        "update brain.unit set visibility = 'public', title = 'new title', source = 's'"
        " where id = %s",
        [unit],
    )
    stored = "select visibility, title, class_id from brain.unit where id = %s"
    assert common.ask(stored, [unit]) == [("employee", "new title", common.class_id(STAFF))]
    assert changes(common, unit) == [
        ("pending", list(OPEN), readers(common, OPEN, before=STAFF)),
    ]
    assert common.one("select author from gate.label_change where object_id = %s", [unit]) == INGEST


def test_a_narrowing_label_takes_effect_at_once(common: World) -> None:
    unit = common.unit(OPEN)
    common.run(RELABEL, ["restricted", unit])
    assert common.class_of(unit) == common.class_id(("restricted", *OPEN[1:]))
    assert changes(common, unit) == []


def test_a_label_that_opens_and_closes_closes_at_once(common: World) -> None:
    """Found in the policy: one state that customers read and an agent does not, and one the
    other way round."""
    before, after = crossed(common)
    lost, won = readers(common, before, before=after), readers(common, after, before=before)
    assert lost
    assert won
    unit = common.unit(before)
    assignments = ", ".join(f"{facet} = %s" for facet in FACETS)
    common.run(f"update brain.unit set {assignments} where id = %s", [*after, unit])
    assert common.class_of(unit) == -1
    assert quarantined(common, unit) == [("awaiting_approval",)]
    approve(common, open_change(common, unit))
    assert common.class_of(unit) == common.class_id(after)
    assert quarantined(common, unit) == []


def crossed(world: World) -> tuple[tuple[str, ...], tuple[str, ...]]:
    grants = [frozenset(world.snapshot.grant([profile]).plain) for profile in profiles(world)]
    words = dict(world.snapshot.vocabulary.classes)
    for one, other in itertools.combinations(grants, 2):
        if one - other and other - one:
            return tuple(words[min(one - other)]), tuple(words[min(other - one)])
    raise AssertionError("of any two profiles, one reads all that the other does")


def quarantined(world: World, unit: UUID) -> list[tuple[Any, ...]]:
    return world.ask(
        "select reason from brain.quarantine where object_id = %s and resolved_at is null", [unit]
    )


def test_another_compartment_opens_and_closes_and_one_of_the_shared_only_closes(
    common: World,
) -> None:
    """`*` to a value is a narrowing; a value to another or to `*` is not."""
    shared, moved, widened = (common.unit(tenant=t) for t in ("*", "acme", "acme"))
    move = "update brain.unit set tenant = %s where id = %s"
    common.run(move, ["acme", shared])
    common.run(move, ["globex", moved])
    common.run(move, ["*", widened])
    state = "select tenant, class_id from brain.unit where id = %s"
    assert common.ask(state, [shared]) == [("acme", common.class_id(OPEN))]
    assert common.ask(state, [moved]) == [("acme", -1)]
    assert common.ask(state, [widened]) == [("acme", common.class_id(OPEN))]
    assert [s for s, _, _ in changes(common, moved) + changes(common, widened)] == ["pending"] * 2
    assert changes(common, shared) == []


def test_the_same_wish_is_one_row_and_another_one_supersedes_it(common: World) -> None:
    unit = common.unit(STAFF)
    for visibility in ("public", "public", "partner"):
        common.run(RELABEL, [visibility, unit])
    assert [(s, words[0]) for s, words, _ in changes(common, unit)] == [
        ("superseded", "public"),
        ("pending", "partner"),
    ]
    # what the wish was measured by is the label in effect, not the wish before
    common.run(RELABEL, ["restricted", unit])
    assert [state for state, _, _ in changes(common, unit)] == ["superseded"] * 2
    assert common.class_of(unit) == common.class_id(("restricted", *OPEN[1:]))


def test_a_way_back_within_one_transaction_is_no_change(common: World) -> None:
    """Nobody outside saw the label in between; nor the wish."""
    unit = common.unit(OPEN)
    with common.login(INGEST) as connection, connection.transaction():
        for visibility in ("restricted", "public"):
            connection.execute(RELABEL, [visibility, unit])
    assert common.class_of(unit) == common.class_id(OPEN)
    other = common.unit(STAFF)
    with common.login(INGEST) as connection, connection.transaction():
        for visibility in ("public", "employee"):
            connection.execute(RELABEL, [visibility, other])
        connection.execute("update brain.unit set wish = null where id = %s", [other])
    assert changes(common, unit) == changes(common, other) == []


def test_a_way_back_after_the_commit_waits(common: World) -> None:
    unit = common.unit(OPEN)
    common.run(RELABEL, ["restricted", unit])
    common.run(RELABEL, ["public", unit])
    assert common.class_of(unit) == common.class_id(("restricted", *OPEN[1:]))


@pytest.mark.parametrize("way", ["restore", "loosen", "unlink", "judge", "thread back"])
def test_what_threads_fill_widens_no_unit(common: World, way: str) -> None:
    """Cascades: the thread's own change may be held or not; the unit stays as it is."""
    strict = common.thread(("employee", *OPEN_THREAD[1:]))
    loose = common.thread()
    unit = common.unit(BLANK, thread=strict)
    common.link(loose, unit)
    assert common.class_of(unit) == common.class_id(STAFF)
    match way:
        case "loosen":
            common.run("update brain.thread set visibility = 'public' where id = %s", [strict])
        case "unlink":
            common.run("delete from brain.thread_membership where thread_id = %s", [strict])
        case "judge":
            common.run(
                "update brain.thread_membership set status = 'wrong_link' where thread_id = %s",
                [strict],
            )
        case "thread back":
            common.run("update brain.thread set deleted_at = now() where id = %s", [strict])
        case "restore":
            common.run("delete from brain.thread_membership where unit_id = %s", [unit])
            assert common.class_of(unit) == -1
            common.link(loose, unit)
            assert common.class_of(unit) == -1
    if way == "loosen":  # held where it is, hence nothing follows from it
        assert [state for state, _, _ in changes(common, strict)] == ["pending"]
        approve(common, open_change(common, strict))
    expected = -1 if way == "restore" else common.class_id(STAFF)
    assert common.class_of(unit) == expected
    assert [state for state, _, _ in changes(common, unit)] == ["pending"]
    approve(common, open_change(common, unit))
    assert common.class_of(unit) == common.class_id(OPEN)


def test_a_held_unit_still_narrows_with_its_thread(common: World) -> None:
    """The wish waits; what is in effect goes down at once."""
    thread = common.thread()
    unit = common.unit((None, *OPEN[1:]), thread=thread, tenant="acme")
    common.run("update brain.unit set tenant = '*' where id = %s", [unit])
    common.run("update brain.thread set visibility = 'employee' where id = %s", [thread])
    assert common.class_of(unit) == common.class_id(STAFF)
    approve(common, open_change(common, unit))
    assert common.ask("select tenant, class_id from brain.unit where id = %s", [unit]) == [
        ("*", common.class_id(STAFF))
    ]


def test_a_thread_that_waits_closes_its_units_at_once(common: World) -> None:
    """Its wish narrows what it fills, beside a tenant that makes the wish wait."""
    thread = common.thread(tenant="acme")
    unit = common.unit(BLANK, thread=thread)
    common.run(
        "update brain.thread set visibility = 'employee', tenant = 'globex' where id = %s", [thread]
    )
    assert [state for state, _, _ in changes(common, thread)] == ["pending"]
    assert common.class_of(unit) == common.class_id(STAFF)
    approve(common, open_change(common, thread))
    assert common.class_of(unit) == common.class_id(STAFF)
    assert changes(common, unit) == []


def test_a_wish_in_parts_is_one_wish(common: World) -> None:
    unit = common.unit((*STAFF[:3], "high", *STAFF[4:]))
    for facet, word in (("visibility", "public"), ("risk_class", "low")):
        common.run(f"update brain.unit set {facet} = %s where id = %s", [word, unit])
    approve(common, open_change(common, unit))
    assert common.class_of(unit) == common.class_id(OPEN)


def test_the_first_label_is_the_source_s_own(common: World) -> None:
    """A unit that nobody ever saw with a class is like a new one, however it gets its first."""
    unit = common.unit(("nonsense", *OPEN[1:]))
    common.run(RELABEL, ["public", unit])
    assert common.class_of(unit) == common.class_id(OPEN)


@pytest.mark.parametrize("table", ["thread", "label", "expected_artifact"])
def test_every_governed_table_holds(common: World, table: str) -> None:
    words = (*STAFF[:5], "thread")
    thread = common.thread(words)
    ident = thread
    columns = f"{', '.join(FACETS)}, tenant, jurisdiction"
    values = ", ".join(f"'{word}'" for word in (*words, "*", "*"))
    if table == "label":
        ident = uuid4()
        common.run(f"insert into brain.label (id, term, {columns}) values (%s, %s, {values})",
                   [ident, str(ident)])  # fmt: skip
    elif table == "expected_artifact":
        ident = uuid4()
        common.run(
            "insert into brain.expected_artifact (id, thread_id, title, lifecycle_stage,"
            f" {columns}) values (%s, %s, 'x', 'report', {values})",
            [ident, thread],
        )
    common.run(f"update brain.{table} set visibility = 'public' where id = %s", [ident])
    held = f"select visibility, class_id from brain.{table} where id = %s"
    assert common.ask(held, [ident]) == [("employee", common.class_id(words))]
    approve(common, open_change(common, ident))
    assert common.ask(held, [ident]) == [("public", common.class_id(("public", *words[1:])))]


# --- ways around ---------------------------------------------------------------------------------

FORGED = {
    "a wish": "update brain.unit set wish = null, wish_class = null, class_id = {open}",
    "no label yet": "update brain.unit set labelled_at = null, visibility = 'public'",
    "a label of just now": "update brain.unit set labelled_at = now(), visibility = 'public'",
    "a base": "update brain.unit set base_at = now(), base_class = {open}, base_tenant = '*',"
    " base_jurisdiction = '*', visibility = 'public'",
    "an approval's setting": "update brain.unit set visibility = 'public', wish = array["
    "'public', 'published', 'published', 'low', 'enacted', 'faq', '*', '*'], wish_class = {open}",
    "burying and reviving": "update brain.unit set deleted_at = now(), visibility = 'public';"
    "update brain.unit set deleted_at = null",
}


@pytest.mark.parametrize("way", FORGED)
def test_what_the_writer_says_about_the_bookkeeping_is_not_believed(
    common: World, way: str
) -> None:
    unit = common.unit(STAFF)
    with common.login(INGEST) as connection:
        for statement in FORGED[way].format(open=common.class_id(OPEN)).split(";"):
            connection.execute(f"{statement} where id = '{unit}'".encode())
            connection.execute(f"{statement} where id = '{unit}'".encode())
    assert common.class_of(unit) == common.class_id(STAFF)


@pytest.mark.parametrize(
    "statement",
    [
        "update brain.unit set canonical_address = 'elsewhere'",
        "update brain.unit set id = gen_random_uuid()",
        "update brain.thread set canonical_address = 'elsewhere'",
        "update brain.label set term = 'other'",
        "update brain.expected_artifact set thread_id = gen_random_uuid()",
        "update brain.thread_term set class_id = 0",
        "delete from brain.unit",
        "delete from gate.label_change",
        "insert into gate.label_change (state) values ('approved')",
        "update gate.label_change set state = 'approved'",
        "insert into gate.trusted_mapping values ('d', 'm', 's')",
        "select gate.approve_label_change(gen_random_uuid(), '', '', '', '', '{}')",
        "select gate.gains(0::smallint, '*', '*', 1::smallint, '*', '*')",
        "select brain.supersede_wish(gen_random_uuid())",
        "select from gate.label_change_now",
    ],
)
def test_ingest_neither_renames_nor_decides(world: World, statement: str) -> None:
    """Else a narrow label is left behind at another address, or approved by its own author."""
    thread = world.thread()
    world.unit(thread=thread)
    world.run("insert into brain.thread_term (term, thread_id, weight) values (1, %s, 1)", [thread])
    world.run(
        "insert into brain.label (id, term, tenant, jurisdiction)"
        " values (gen_random_uuid(), 't', '*', '*')"
    )
    world.run(
        "insert into brain.expected_artifact (id, thread_id, title, lifecycle_stage, tenant,"
        " jurisdiction) values (gen_random_uuid(), %s, 'x', 'report', '*', '*')",
        [thread],
    )
    with pytest.raises(errors.InsufficientPrivilege):
        world.run(statement)


def test_the_approver_s_login_writes_and_reads_nothing_else(common: World) -> None:
    unit = common.unit(STAFF)
    common.run(RELABEL, ["public", unit])
    with common.login(LABEL) as connection:
        for statement in (
            "select from brain.unit",
            "select from brain.unit_revision",
            "update brain.unit set class_id = 0",
            "update gate.label_change set state = 'approved'",
            "insert into gate.security_event (id) values (gen_random_uuid())",
            f"set role {OWNER}",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        found = connection.execute(
            "select address, gains_now from gate.label_change_now where object_id = %s", [unit]
        ).fetchone()
    assert found == (f"unit/{unit}", readers(common, OPEN, before=STAFF))


def test_what_was_wished_and_decided_is_kept_even_from_the_superuser(world: World) -> None:
    unit = world.unit(STAFF)
    world.run(RELABEL, ["public", unit])
    approve(world, open_change(world, unit))
    for statement in (
        "update gate.label_change set approver = 'somebody else'",
        "update gate.label_change set state = 'pending', decided_at = null",
        "update gate.label_change set to_class = 0",
        "delete from gate.label_change",
        "truncate gate.label_change",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            world.as_superuser(statement)


# --- the owner -----------------------------------------------------------------------------------


def test_the_owner_acts_on_purpose_and_computing_anew_does_not(world: World) -> None:
    """A migration that computes every class again applies no wish; a reviewer by hand does."""
    held, closed = world.unit(STAFF), world.unit(tenant="acme")
    world.run(RELABEL, ["public", held])
    world.run("update brain.unit set tenant = 'globex' where id = %s", [closed])
    world.as_superuser("select brain.relabel_all()")
    assert world.class_of(held) == world.class_id(STAFF)
    assert world.class_of(closed) == -1
    assert world.one("select count(*) from gate.label_change where state = 'pending'") == 2
    world.as_superuser("update brain.unit set visibility = 'public' where id = %s", [held])
    assert world.class_of(held) == world.class_id(OPEN)
    assert [state for state, _, _ in changes(world, held)] == ["superseded"]


def test_before_any_policy_is_active_nobody_can_gain(database: Any, snapshot: Any) -> None:
    """Nothing is readable, so nothing is held; activation is the policy's own widening."""
    world = World(database, snapshot)
    unit = world.unit(STAFF)
    world.run(RELABEL, ["public", unit])
    assert world.class_of(unit) == world.class_id(OPEN)


def test_a_database_from_before_holds_what_it_stored(world: World) -> None:
    """The migration counts everything as labelled, also what is in quarantine."""
    unit = world.unit(("nonsense", *OPEN[1:]))
    world.as_superuser("alter table brain.unit disable trigger class_from_label")
    world.as_superuser("update brain.unit set labelled_at = '-infinity'")
    world.as_superuser("alter table brain.unit enable trigger class_from_label")
    world.run(RELABEL, ["public", unit])
    assert world.class_of(unit) == -1


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_thread_is_not_narrowed_from_a_snapshot_of_before(common: World, level: str) -> None:
    """Found by attack: a unit that was linked since the snapshot stayed as open as the thread had
    been, and nothing told of it."""
    thread, unit = common.thread(), common.unit(BLANK)
    with common.login(INGEST) as narrowing:
        narrowing.execute(f"begin isolation level {level}".encode())
        narrowing.execute("select from brain.thread")
        common.link(thread, unit)
        assert common.class_of(unit) == common.class_id(OPEN)
        with pytest.raises(errors.InvalidTransactionState):
            narrowing.execute(
                "update brain.thread set visibility = 'restricted' where id = %s", [thread]
            )
        narrowing.execute("rollback")
    common.run("update brain.thread set visibility = 'restricted' where id = %s", [thread])
    assert common.class_of(unit) == common.class_id(("restricted", *OPEN[1:]))
