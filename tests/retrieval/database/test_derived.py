"""What triggers keep equals what a reader of the raw rows would compute from scratch.

The model is Python over plain rows and the vocabulary; it shares no code with the triggers.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import pytest

from policies.decision import UNCLASSED
from policies.vocabulary import FACETS, ORDERED, Vocabulary
from tests.retrieval.database.world import OPEN, OPEN_THREAD, World

STAGES = ("law", "design", "code", "test", "report", "incident", "other")
VALUES: dict[str, list[str | None]] = {
    "visibility": ["public", "internal"],
    "readiness": ["published", "published", "published", "approved"],
    "publication_state": ["published", "withdrawn"],
    "risk_class": ["low", "high"],
    "authority": ["enacted", "enacted", "enacted", "draft"],
    "kind": ["faq", "guide"],
}
UNKNOWN = ("Public", "", "nonsense")
COMPARTMENTS = ("*", "a", "b")
STEPS = 60


@pytest.mark.parametrize("seed", range(3))
def test_everything_derived_equals_a_recomputation_after_any_changes(
    world: World, seed: int
) -> None:
    """Random inserts, relabels, moves, revisions, links, deletions and revivals."""
    rng = random.Random(seed)
    threads = [world.thread(words(rng, "thread")) for _ in range(4)]
    for thread in threads:
        world.run(
            "insert into brain.thread_term (term, thread_id, weight) values (1, %s, 1)", [thread]
        )
    units = [new_unit(world, rng, threads) for _ in range(8)]
    counted_units = 0
    for step in range(STEPS):
        rng.choice(CHANGES)(world, rng, units, threads)
        if step % 10 == 9:
            counted_units += compare(world)
    assert counted_units > STEPS // 10, "nearly nothing had a class: the law was not tried"


def words(rng: random.Random, kind: str | None = None) -> list[str | None]:
    chosen = [word(rng, facet) for facet in FACETS]
    return [*chosen[:5], kind] if kind else chosen


def word(rng: random.Random, facet: str) -> str | None:
    """Mostly a known word, a blank in one of four, now and then an unknown one."""
    blank: list[str | None] = [None]
    unknown: list[str | None] = [*UNKNOWN]
    return rng.choice(rng.choices([VALUES[facet], blank, unknown], [74, 24, 2])[0])


def new_unit(world: World, rng: random.Random, threads: list[UUID]) -> UUID:
    return world.unit(
        words(rng),
        tenant=rng.choice(COMPARTMENTS),
        jurisdiction=rng.choice(COMPARTMENTS),
        terms=rng.sample(range(12), 5),
        thread=rng.choice([None, *threads]),
    )


Change = Callable[[World, random.Random, list[UUID], list[UUID]], None]


def add_unit(world: World, rng: random.Random, units: list[UUID], threads: list[UUID]) -> None:
    units.append(new_unit(world, rng, threads))


def relabel_units(world: World, rng: random.Random, units: list[UUID], _: list[UUID]) -> None:
    facet = rng.choice(FACETS)
    world.run(
        f"update brain.unit set {facet} = %s where id = any(%s)",
        [word(rng, facet), rng.sample(units, 3)],
    )


def move_units(world: World, rng: random.Random, units: list[UUID], _: list[UUID]) -> None:
    world.run(
        "update brain.unit set tenant = %s, lifecycle_stage = %s, active_at = now()"
        " where id = any(%s)",
        [rng.choice(COMPARTMENTS), rng.choice(STAGES), rng.sample(units, 2)],
    )


def toggle_units(world: World, rng: random.Random, units: list[UUID], _: list[UUID]) -> None:
    world.run(
        "update brain.unit set deleted_at = case when deleted_at is null then now() end"
        " where id = any(%s)",
        [rng.sample(units, 2)],
    )


def revise_unit(world: World, rng: random.Random, units: list[UUID], _: list[UUID]) -> None:
    unit = rng.choice(units)
    add = (
        "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256,"
        " lexical_terms, lexical_weights)"
        " select id, current_revision + %s, 't', 'b', 's', %s, %s from brain.unit where id = %s"
    )
    point = "update brain.unit set current_revision = current_revision + 1 where id = %s"
    terms = sorted(rng.sample(range(12), 4))
    if rng.random() < 0.5:
        world.run(add, [1, terms, [1.0] * 4, unit])
        world.run(point, [unit])
    else:  # the pointer first: the revision counts from when it exists
        world.run(point, [unit])
        world.run(add, [0, terms, [1.0] * 4, unit])


def analyse_anew(world: World, rng: random.Random, units: list[UUID], _: list[UUID]) -> None:
    world.run(
        "update brain.unit_revision set lexical_terms = %s, lexical_weights = %s"
        " where unit_id = any(%s)",
        [sorted(rng.sample(range(12), 3)), [1.0] * 3, rng.sample(units, 2)],
    )


def link(world: World, rng: random.Random, units: list[UUID], threads: list[UUID]) -> None:
    world.run(
        "insert into brain.thread_membership (thread_id, unit_id, role, status)"
        " values (%s, %s, 'canonical', %s)"
        " on conflict (thread_id, unit_id) do update set status = excluded.status",
        [
            rng.choice(threads),
            rng.choice(units),
            rng.choice(["active", "active", "needs_human", "wrong_link"]),
        ],
    )


def unlink(world: World, rng: random.Random, units: list[UUID], threads: list[UUID]) -> None:
    world.run(
        "delete from brain.thread_membership where thread_id = %s and unit_id = any(%s)",
        [rng.choice(threads), rng.sample(units, 4)],
    )


def relabel_threads(world: World, rng: random.Random, _: list[UUID], threads: list[UUID]) -> None:
    facet = rng.choice(FACETS[:5])
    world.run(
        f"update brain.thread set {facet} = %s, tenant = %s where id = any(%s)",
        [word(rng, facet), rng.choice(COMPARTMENTS), rng.sample(threads, 2)],
    )


def toggle_thread(world: World, rng: random.Random, _: list[UUID], threads: list[UUID]) -> None:
    world.run(
        "update brain.thread set deleted_at = case when deleted_at is null then now() end"
        " where id = %s",
        [rng.choice(threads)],
    )


def change_many(world: World, rng: random.Random, units: list[UUID], _: list[UUID]) -> None:
    """A unit buried or revived, one revised, one relabelled, one moved; all are written."""
    chosen = rng.sample(units, 4)
    terms = sorted(rng.sample(range(12), 4))
    world.run(
        "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256,"
        " lexical_terms, lexical_weights)"
        " select id, current_revision + 1, 't', 'b', 's', %s, %s from brain.unit where id = %s",
        [terms, [1.0] * 4, chosen[1]],
    )
    facet = rng.choice(FACETS)
    world.run(
        "update brain.unit set"
        " deleted_at = case when id <> %s then deleted_at when deleted_at is null then now() end,"
        " current_revision = current_revision + (id = %s)::integer,"
        f" {facet} = case when id = %s then %s else {facet} end,"
        " tenant = case when id = %s then %s else tenant end",
        [*chosen[:3], word(rng, facet), chosen[3], rng.choice(COMPARTMENTS)],
    )


CHANGES: tuple[Change, ...] = (
    change_many,
    add_unit,
    relabel_units,
    relabel_units,
    move_units,
    toggle_units,
    revise_unit,
    analyse_anew,
    link,
    link,
    unlink,
    relabel_threads,
    relabel_threads,
    toggle_thread,
)


# --- the model ----------------------------------------------------------------------------


def compare(world: World) -> int:
    """Asserts that all derived rows are right; how many (thread, unit) pairs they counted."""
    vocabulary = world.snapshot.vocabulary
    columns = ", ".join(FACETS)
    threads = {
        row[0]: row[1:]
        for row in world.ask(
            f"select id, class_id, tenant, jurisdiction, deleted_at, {columns} from brain.thread"
        )
    }
    units = {
        row[0]: row[1:]
        for row in world.ask(
            "select id, class_id, tenant, jurisdiction, deleted_at, current_revision,"
            f" lifecycle_stage, active_at, {columns} from brain.unit"
        )
    }
    links = world.ask("select unit_id, thread_id, status from brain.thread_membership")
    offers = defaultdict(list)
    for unit, thread, status in links:
        if status != "wrong_link" and threads[thread][3] is None:
            offers[unit].append((dict(zip(FACETS, threads[thread][4:], strict=True)), status))
    # what waits for approval has another class than its words, by its own laws (test_widening)
    held = {ident for (ident,) in world.ask("select object_id from gate.label_change"
                                            " where state = 'pending'")}  # fmt: skip
    for unit, row in units.items():
        own = dict(zip(FACETS, row[7:], strict=True))
        assert unit in held or row[0] == class_of(vocabulary, own, offers[unit])
    for thread, row in threads.items():
        own = dict(zip(FACETS, row[4:], strict=True))
        assert thread in held or row[0] == vocabulary.class_id(own)

    live = {u: row for u, row in units.items() if row[3] is None and row[0] >= 0}
    corpus = Counter(row[:3] for row in live.values())
    terms = {
        (u, revision): lexical
        for u, revision, lexical in world.ask(
            "select unit_id, revision, lexical_terms from brain.unit_revision"
        )
    }
    lexicon = Counter(
        (term, *row[:3]) for u, row in live.items() for term in terms.get((u, row[4]), ())
    )
    parts: dict[tuple[object, ...], list[tuple[str, datetime]]] = defaultdict(list)
    for unit, thread, status in links:
        if status != "wrong_link" and unit in live:
            row = live[unit]
            parts[thread, *row[:3]].append((row[5], row[6]))

    assert counted(world, "class_id, tenant, jurisdiction, units", "corpus_partial") == corpus
    assert counted(world, "term, class_id, tenant, jurisdiction, df", "lexicon_partial") == lexicon
    assert {
        row[:4]: row[4:]
        for row in world.ask(
            "select thread_id, class_id, tenant, jurisdiction, unit_count, stage_bits,"
            " last_activity from brain.thread_partial"
        )
    } == {
        key: (
            len(found),
            sum(1 << STAGES.index(stage) for stage in {stage for stage, _ in found}),
            max(at for _, at in found),
        )
        for key, found in parts.items()
    }
    assert {
        row[0]: row[1:]
        for row in world.ask(
            "select thread_id, class_id, tenant, jurisdiction from brain.thread_term"
        )
    } == {
        thread: (row[0] if row[3] is None else UNCLASSED, row[1], row[2])
        for thread, row in threads.items()
    }
    assert {
        row[0]
        for row in world.ask(
            "select object_id from brain.quarantine where resolved_at is null and sort = 'unit'"
        )
    } == {u for u, row in units.items() if row[0] == UNCLASSED and row[3] is None}
    return sum(map(len, parts.values()))


def counted(world: World, columns: str, table: str) -> Counter[tuple[object, ...]]:
    rows = world.ask(f"select {columns} from brain.{table}")
    return Counter({row[:-1]: row[-1] for row in rows if row[-1] != 0})


def class_of(
    vocabulary: Vocabulary,
    own: dict[str, str | None],
    offers: list[tuple[dict[str, str | None], str]],
) -> int:
    effective: dict[str, str | None] = {"kind": own["kind"]}
    for facet in FACETS[:5]:
        given = [(offer[facet], status) for offer, status in offers if offer[facet] is not None]
        values = {value for value, _ in given if value is not None}
        if own[facet] is not None:
            effective[facet] = own[facet]
        elif not any(status == "active" for _, status in given):
            effective[facet] = None
        elif facet in ORDERED:
            unknown = values - set(vocabulary.facets[facet])
            order = vocabulary.orders[facet]
            effective[facet] = unknown.pop() if unknown else max(values, key=order.index)
        else:
            effective[facet] = values.pop() if len(values) == 1 else None
    return vocabulary.class_id(effective)


# --- the outbox ---------------------------------------------------------------------------


def outbox(world: World, unit: UUID) -> list[str]:
    """What was announced since last asked."""
    found = [
        op
        for (op,) in world.ask(
            "select op from brain.outbox where unit_id = %s order by seq", [unit]
        )
    ]
    world.as_superuser("delete from brain.outbox")
    return found


def test_every_change_that_an_index_must_learn_is_announced_once(world: World) -> None:
    """Content, label or tombstone; what the index does not hold is not announced."""
    thread = world.thread()
    unit = world.unit((None, *OPEN[1:]), thread=thread)
    assert sorted(outbox(world, unit)) == ["content", "label"]
    world.run("update brain.unit set source = 'elsewhere'")
    assert outbox(world, unit) == []
    world.run("update brain.thread set visibility = 'partner'")
    assert outbox(world, unit) == ["label"]
    world.run("update brain.unit set tenant = 'a'")
    assert outbox(world, unit) == ["label"]
    world.run("update brain.unit set deleted_at = now()")
    assert outbox(world, unit) == ["delete"]
    world.run("update brain.unit set deleted_at = null")
    assert outbox(world, unit) == ["content"]
    world.run(
        "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256)"
        " values (%s, 2, 't', 'b', 's')",
        [unit],
    )
    assert outbox(world, unit) == []
    world.run("update brain.unit set current_revision = 2")
    assert outbox(world, unit) == ["content"]
    world.run("insert into brain.embedding values (%s, 2, 'model', '\\x00')", [unit])
    assert outbox(world, unit) == ["content"]


def test_a_unit_cannot_be_removed_before_its_tombstone(world: World) -> None:
    """Nothing that a cascade removes may still be counted or indexed."""
    unit = world.unit(OPEN, terms=[1], thread=world.thread(OPEN_THREAD))
    with pytest.raises(Exception, match="has no tombstone"):
        world.as_superuser("delete from brain.unit where id = %s", [unit])
    world.run("update brain.unit set deleted_at = now()")
    world.as_superuser("delete from brain.unit where id = %s", [unit])
    assert world.one("select sum(df) from brain.lexicon_partial") == 0
