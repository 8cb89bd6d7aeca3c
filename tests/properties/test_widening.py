"""The law of widening: without an approval nobody's reach over a labelled object ever grows.

Random facet edits, links, judgements, burials, revivals and adoptions by ingest's own login, in
transactions of several statements. Reach is computed here, from the stored class and compartments
and the snapshot; what the database held against what is checked by nothing of its own.
Source: issue 3, point 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Scope
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS
from retrieval.stores.roles import INGEST, LABEL
from tests.properties.worlds import TIMEOUT_S
from tests.retrieval.database.world import LastingWorld, World, world_in
from tests.services import Cluster, Database, fresh_database

Reader = tuple[str, bool, str, str]
Reach = Mapping[UUID, frozenset[Reader]]

TABLES = ("unit", "thread")
WORDS: Mapping[str, tuple[str | None, ...]] = {
    "visibility": ("public", "partner", "employee", "internal", "restricted", None, "Public"),
    "readiness": ("published", "draft", "superseded", None),
    "publication_state": ("published", "unpublished", "withdrawn", None),
    "risk_class": ("low", "high", None),
    "authority": ("enacted", "operational", None),
}
COMPARTMENTS = ("*", "acme", "globex")


@pytest.fixture(scope="module")
def common(
    cluster: Cluster, migrated_template: Database, snapshot: Snapshot
) -> Iterator[LastingWorld]:
    with fresh_database(cluster, template=migrated_template.name) as database:
        world_in(database, snapshot)
        with LastingWorld(database, snapshot) as world:
            yield world


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of one example; others of the database are not touched."""

    units: tuple[UUID, ...]
    threads: tuple[UUID, ...]

    def of(self, table: str) -> tuple[UUID, ...]:
        return self.units if table == "unit" else self.threads


label = st.tuples(
    *(st.sampled_from(words) for words in WORDS.values()), st.sampled_from(COMPARTMENTS)
)
which = st.integers(0, 1)
edit = st.one_of(
    st.tuples(
        st.just("facet"),
        st.sampled_from(TABLES),
        which,
        st.sampled_from([(f, word) for f, words in WORDS.items() for word in words]),
    ),
    st.tuples(st.just("label"), st.sampled_from(TABLES), which, label),
    st.tuples(st.just("facet"), st.sampled_from(TABLES), which,
              st.sampled_from([(c, word) for c in ("tenant", "jurisdiction")
                               for word in COMPARTMENTS])),
    st.tuples(st.just("buried"), st.sampled_from(TABLES), which, st.booleans()),
    st.tuples(st.just("link"), which, which,
              st.sampled_from(["active", "needs_human", "wrong_link"])),
    st.tuples(st.just("unlink"), which, which),
    st.tuples(st.just("text"), which),
)  # fmt: skip
transactions = st.lists(st.lists(edit, min_size=1, max_size=3), min_size=1, max_size=6)
Edit = tuple[Any, ...]


def run(world: World, objects: Objects, edits: list[Edit]) -> None:
    """One transaction of ingest's."""
    with world.login(INGEST) as connection, connection.transaction():
        for one in edits:
            statement, values = statement_of(objects, one)
            connection.execute(statement.encode(), values)


def statement_of(objects: Objects, one: Edit) -> tuple[str, list[object]]:
    match one:
        case ("facet", table, number, (column, word)):
            return f"update brain.{table} set {column} = %s where id = %s", [
                word, objects.of(table)[number],
            ]  # fmt: skip
        case ("label", table, number, words):
            columns = (*WORDS, "tenant")
            # as ingest states a label: the wish is taken back with it
            assigned = ", ".join(f"{column} = %s" for column in columns)
            return f"update brain.{table} set {assigned}, wish = null where id = %s", [
                *words, objects.of(table)[number],
            ]  # fmt: skip
        case ("buried", table, number, buried):
            at = "now()" if buried else "null"
            return f"update brain.{table} set deleted_at = {at} where id = %s", [
                objects.of(table)[number]
            ]
        case ("link", thread, unit, status):
            return (
                "insert into brain.thread_membership (thread_id, unit_id, role, status)"
                " values (%s, %s, 'canonical', %s) on conflict (thread_id, unit_id)"
                " do update set status = excluded.status",
                [objects.threads[thread], objects.units[unit], status],
            )
        case ("unlink", thread, unit):
            return (
                "delete from brain.thread_membership where thread_id = %s and unit_id = %s",
                [objects.threads[thread], objects.units[unit]],
            )
        case _:
            return "update brain.unit set title = 'text' where id = %s", [objects.units[one[1]]]


def made(world: World, first: list[tuple[Any, ...]]) -> Objects:
    threads = tuple(world.thread((*words[:5], "thread"), tenant=words[5]) for words in first[:2])
    units = tuple(
        world.unit((*words[:5], "faq"), tenant=words[5], thread=thread)
        for words, thread in zip(first[2:], threads, strict=True)
    )
    return Objects(units, threads)


def reach(world: World, objects: Objects) -> Reach:
    """Who could read each object, were it not deleted: profile, consent, compartments."""
    found = {}
    for table in TABLES:
        for ident, class_id, tenant, jurisdiction in world.ask(
            f"select id, class_id, tenant, jurisdiction from brain.{table} where id = any(%s)",
            [list(objects.of(table))],
        ):
            found[ident] = frozenset(
                (profile, consent, mine, place)
                for profile, consent, mine, place in itertools.product(
                    world.snapshot.vocabulary.profiles, (False, True), COMPARTMENTS, COMPARTMENTS
                )
                if Scope(
                    world.snapshot.grant([profile]),
                    (mine,) if mine != "*" else (),
                    (place,) if place != "*" else (),
                    (ident,) if consent else (),
                ).permits(
                    unit_id=ident, class_id=class_id, tenant=tenant, jurisdiction=jurisdiction
                )
            )
    return found


def labelled(world: World, objects: Objects) -> set[UUID]:
    """What has had a class at the end of some transaction."""
    return {
        ident
        for table in TABLES
        for (ident,) in world.ask(
            f"select id from brain.{table} where id = any(%s) and labelled_at is not null",
            [list(objects.of(table))],
        )
    }


@pytest.mark.timeout(TIMEOUT_S)
@given(first=st.lists(label, min_size=4, max_size=4), then=transactions)
def test_no_edit_of_ingest_lets_anybody_read_more(
    common: LastingWorld, first: list[tuple[Any, ...]], then: list[list[Edit]]
) -> None:
    """Stricter than `never more than after the insert`: never more than a moment ago."""
    objects = made(common, first)
    before, had_class = reach(common, objects), set[UUID]()
    had_class = {ident for ident, readers in before.items() if readers} | labelled(common, objects)
    for edits in then:
        run(common, objects, edits)
        after = reach(common, objects)
        for ident in had_class:
            assert after[ident] <= before[ident], edits
        before = after
        had_class |= labelled(common, objects)


@pytest.mark.timeout(TIMEOUT_S)
@given(first=st.lists(label, min_size=4, max_size=4), then=transactions)
def test_what_a_source_closes_is_closed_whatever_else_waits(
    common: LastingWorld, first: list[tuple[Any, ...]], then: list[list[Edit]]
) -> None:
    """Nobody reads what it could not read if everything said were in effect (the owner's twin)."""
    objects, twin = made(common, first), made(common, first)
    for edits in then:
        run(common, objects, edits)
        as_owner(common, twin, edits)
    mine, said = reach(common, objects), reach(common, twin)
    pairs = zip((*objects.units, *objects.threads), (*twin.units, *twin.threads), strict=True)
    for held, free in pairs:
        assert mine[held] <= said[free]


@pytest.mark.timeout(TIMEOUT_S)
@given(first=st.lists(label, min_size=4, max_size=4), then=transactions)
def test_once_everything_is_approved_labels_are_what_was_said_last(
    common: LastingWorld, first: list[tuple[Any, ...]], then: list[list[Edit]]
) -> None:
    """Nothing said is lost: a twin that the owner writes, without waiting, ends the same.

    Approving a thread lets wishes of its units come up, so it is repeated until none is open.
    """
    objects, twin = made(common, first), made(common, first)
    for edits in then:
        run(common, objects, edits)
        as_owner(common, twin, edits)
        while approve_all(common, objects):
            pass
    columns = ", ".join((*FACETS, "tenant", "jurisdiction", "class_id"))
    for table in TABLES:
        for mine, other in zip(objects.of(table), twin.of(table), strict=True):
            query = f"select {columns} from brain.{table} where id = %s"
            assert common.ask(query, [mine]) == common.ask(query, [other])


def as_owner(world: LastingWorld, objects: Objects, edits: list[Edit]) -> None:
    with world.owner() as connection, connection.transaction():
        for one in edits:
            statement, values = statement_of(objects, one)
            connection.execute(statement.encode(), values)


def approve_all(world: World, objects: Objects) -> int:
    waiting = [
        change
        for (change,) in world.ask(
            "select id from gate.label_change where state = 'pending' and object_id = any(%s)",
            [[*objects.threads, *objects.units]],
        )
    ]
    for change in waiting:
        with world.login(LABEL) as connection:
            still = connection.execute(
                "select 1 from gate.label_change_now where id = %s and state = 'pending'", [change]
            ).fetchone()
            if still is not None:
                connection.execute(
                    "select gate.approve_label_change(%s, 'ann', 'r', 'ok', %s, %s)",
                    [change, world.snapshot.digest, sorted(world.snapshot.vocabulary.profiles)],
                )
    return len(waiting)
