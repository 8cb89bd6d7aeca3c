"""How words become a class, and what a unit takes from its threads (architecture section 5)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

from policies.vocabulary import FACETS
from retrieval.stores.roles import INGEST
from tests.retrieval.database.world import LINK, OPEN, OPEN_THREAD, World

BLANK = (None, None, None, None, None, "faq")


def test_every_class_of_the_lock_is_found_by_its_words(world: World) -> None:
    """All 10,800 states through the trigger, in one statement (the ids are the lock's)."""
    columns = ", ".join(FACETS)
    world.run(
        f"insert into brain.unit (id, canonical_address, title, {columns}, tenant, jurisdiction,"
        " current_revision, content_hash)"
        f" select gen_random_uuid(), class_id::text, 't', {columns}, '*', '*', 1, 'h'"
        " from gate.unit_class"
    )
    found = dict(world.ask("select canonical_address::integer, class_id from brain.unit"))
    assert found == {number: number for number, _ in world.snapshot.vocabulary.classes}


def test_a_word_outside_the_vocabulary_gives_no_class_and_a_quarantine_row(common: World) -> None:
    """Nothing is coerced and nothing is lost: six facets, the empty string included."""
    for place, facet in enumerate(FACETS):
        for word in ("", "Public", " published", "published ", "low;high", "nonsense"):
            words = [*OPEN]
            words[place] = word
            unit = common.unit(words)
            assert common.class_of(unit) == -1
            assert quarantined(common, unit) == [(facet, word, "unknown_word")]


def test_a_class_id_written_by_hand_is_overruled(common: World) -> None:
    """Nobody writes a class id: the trigger looks it up whatever the statement says."""
    unit = common.unit(("restricted", *OPEN[1:]))
    common.run("update brain.unit set class_id = %s", [common.class_id(OPEN)])
    assert common.class_of(unit) == common.class_id(("restricted", *OPEN[1:]))


def test_a_blank_is_filled_from_the_thread_but_for_its_kind(common: World) -> None:
    """A thread's kind is `thread` and never fills a unit's."""
    thread = common.thread(("partner", *OPEN_THREAD[1:]))
    assert common.class_of(common.unit(BLANK, thread=thread)) == common.class_id(
        ("partner", *OPEN[1:])
    )
    assert common.class_of(common.unit((*OPEN[:5], None), thread=thread)) == -1


def test_a_unit_s_own_value_stands_alone(common: World) -> None:
    """Neither a stricter nor a looser thread changes what a unit declares."""
    thread = common.thread(("restricted", *OPEN_THREAD[1:]))
    unit = common.unit(OPEN, thread=thread)
    common.link(common.thread(), unit)
    assert common.class_of(unit) == common.class_id(OPEN)


def test_the_stricter_of_two_ordered_values_wins_in_either_order(common: World) -> None:
    """Orders are declared for visibility, risk_class and publication_state."""
    loose = common.thread(("public", "published", "published", "low", "enacted", "thread"))
    strict = common.thread(("internal", "published", "withdrawn", "high", "enacted", "thread"))
    wanted = common.class_id(("internal", "published", "withdrawn", "high", "enacted", "faq"))
    for first, second in ((loose, strict), (strict, loose)):
        unit = common.unit(BLANK, thread=first)
        common.link(second, unit)
        assert common.class_of(unit) == wanted


def test_disagreement_on_an_unordered_facet_gives_no_class(common: World) -> None:
    """Readiness and authority have no order: two threads that differ contradict each other."""
    unit = common.unit(BLANK, thread=common.thread())
    common.link(common.thread(("public", "approved", *OPEN_THREAD[2:])), unit)
    assert common.class_of(unit) == -1
    assert quarantined(common, unit) == [("readiness", "", "contradiction")]


def test_quarantine_is_closed_when_the_contradiction_ends(common: World) -> None:
    """The row stays as history, resolved. Nobody ever saw the unit with a class, so that its
    first one is no widening (0060)."""
    other = common.thread(("public", "approved", *OPEN_THREAD[2:]))
    unit = common.unit(BLANK)
    with common.login(INGEST) as connection, connection.transaction():
        for thread in (common.thread(), other):
            connection.execute(LINK, [thread, unit, "active"])
    assert quarantined(common, unit) == [("readiness", "", "contradiction")]
    common.run("delete from brain.thread_membership where thread_id = %s", [other])
    assert common.class_of(unit) == common.class_id(OPEN)
    assert quarantined(common, unit) == []
    closed = "select reason from brain.quarantine where object_id = %s order by reason"
    assert common.ask(closed, [unit]) == [("blank",), ("contradiction",)]


def test_ingest_in_one_transaction_leaves_no_passing_quarantine(common: World) -> None:
    """A blank unit has no class until its link is written; nobody was there to see it."""
    unit = common.unit(BLANK, thread=common.thread())
    assert common.one("select count(*) from brain.quarantine where object_id = %s", [unit]) == 0


def test_an_unknown_word_of_a_thread_is_stricter_than_all(common: World) -> None:
    """A mis-cased value beside a good one must not be outvoted by it."""
    unit = common.unit(BLANK, thread=common.thread())
    common.link(common.thread(("Public", *OPEN_THREAD[1:])), unit)
    assert common.class_of(unit) == -1


def test_a_wrong_link_fills_nothing(common: World) -> None:
    """A link that was found wrong has no say, neither to open nor to close."""
    unit = common.unit(BLANK)
    common.link(common.thread(), unit, "wrong_link")
    assert common.class_of(unit) == -1


def test_a_doubtful_link_can_only_restrict(common: World) -> None:
    """Chosen by us: needs_human alone fills nothing; beside an active link it counts."""
    unit = common.unit(BLANK)
    common.link(common.thread(("internal", *OPEN_THREAD[1:])), unit, "needs_human")
    assert common.class_of(unit) == -1
    common.link(common.thread(), unit)
    assert common.class_of(unit) == common.class_id(("internal", *OPEN[1:]))


def test_withdrawing_a_thread_withdraws_the_units_that_inherit(common: World) -> None:
    """In the same transaction; a unit with a value of its own keeps it."""
    thread = common.thread()
    blank, own = common.unit(BLANK, thread=thread), common.unit(OPEN, thread=thread)
    common.run("update brain.thread set publication_state = 'withdrawn' where id = %s", [thread])
    assert common.class_of(blank) == common.class_id(
        ("public", "published", "withdrawn", "low", "enacted", "faq")
    )
    assert common.class_of(own) == common.class_id(OPEN)


def test_a_deleted_thread_fills_nothing(common: World) -> None:
    thread = common.thread()
    unit = common.unit(BLANK, thread=thread)
    common.run("update brain.thread set deleted_at = now() where id = %s", [thread])
    assert common.class_of(unit) == -1


def test_a_link_made_while_its_thread_is_being_withdrawn_sees_the_withdrawal(
    common: World,
) -> None:
    """Two transactions at once: whoever comes second waits and computes from the new words."""
    thread = common.thread()
    unit = common.unit(BLANK)
    with common.login(INGEST) as withdrawing, common.login(INGEST) as linking:
        withdrawing.execute("begin")
        withdrawing.execute(
            "update brain.thread set publication_state = 'withdrawn' where id = %s", [thread]
        )
        linking.execute("set lock_timeout = '100ms'")
        assert blocked(linking, thread, unit)
        withdrawing.execute("commit")
        assert not blocked(linking, thread, unit)
    assert common.class_of(unit) == common.class_id(
        ("public", "published", "withdrawn", "low", "enacted", "faq")
    )


def blocked(connection: psycopg.Connection[Any], thread: UUID, unit: UUID) -> bool:
    try:
        connection.execute(LINK, [thread, unit, "active"])
    except errors.LockNotAvailable:
        return True
    return False


def quarantined(world: World, unit: UUID) -> list[tuple[Any, ...]]:
    """Open rows of a unit: facet, value, reason."""
    return world.ask(
        "select facet, value, reason from brain.quarantine"
        " where object_id = %s and resolved_at is null order by facet",
        [unit],
    )


@pytest.mark.parametrize(
    ("table", "insert"),
    [
        (
            "brain.label",
            "insert into brain.label (id, term, visibility, tenant, jurisdiction)"
            " values (gen_random_uuid(), 'word', 'Public', '*', '*')",
        ),
        (
            "brain.expected_artifact",
            "insert into brain.expected_artifact"
            " (id, thread_id, title, lifecycle_stage, visibility, tenant, jurisdiction)"
            " select gen_random_uuid(), id, 'report', 'report', 'Public', '*', '*'"
            " from brain.thread",
        ),
    ],
)
def test_labels_and_artifacts_have_their_own_words_only(
    world: World, table: str, insert: str
) -> None:
    """They inherit nothing from a thread that is open to all."""
    world.thread()
    world.run(insert)
    assert world.ask(f"select class_id from {table}") == [(-1,)]
    assert {reason for (reason,) in world.ask("select reason from brain.quarantine")} == {
        "unknown_word",
        "blank",
    }
