"""What a reader gives out, and what it says about that which the truth refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from operator import methodcaller
from typing import TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.decision import Grant, Scope
from policies.vocabulary import FACETS
from retrieval.contract import SubjectWire
from retrieval.errors import PolicyMismatch, StoreUnavailable
from retrieval.stores.postgres import PostgresTruth
from retrieval.stores.postgres.arrays import array_literal
from retrieval.stores.postgres.reader import PostgresReader
from retrieval.stores.postgres.reads import _bound
from retrieval.stores.roles import INDEX
from retrieval.stores.rows import Hydrated
from tests.retrieval.database.world import OPEN, OPEN_THREAD, SECRET, World
from tests.services import Cluster

HIGH_RISK = ("public", "published", "published", "high", "enacted", "faq")


T = TypeVar("T")


@pytest.fixture(scope="module")
def connection(cluster: Cluster) -> Iterator[psycopg.Connection]:
    with psycopg.connect(cluster.admin_url, autocommit=True) as opened:
        yield opened


def read(world: World, subject: SubjectWire, use: Callable[[PostgresReader], Awaitable[T]]) -> T:
    async def main() -> T:
        async with world.reading(subject) as reader:
            return await use(reader)

    return asyncio.run(main())


def test_hydration_gives_bodies_of_permitted_units_and_names_the_others(common: World) -> None:
    """Refused and absent ids are discrepancies of the index that offered them."""
    shown, hidden, absent = common.unit(body="shown"), common.unit(SECRET), uuid4()
    common.as_superuser("update brain.outbox set done_at = now()")
    found = read(common, common.subject("customer"), lambda r: r.hydrate([shown, hidden, absent]))
    assert {unit.body for unit in found.units.values()} == {"shown"}
    assert found.units[shown].facets.visibility == "public"
    assert {(d.unit_id, d.class_id, d.layer, d.pending) for d in found.discrepancies} == {
        (hidden, common.class_id(SECRET), "vector_index", False),
        (absent, -1, "vector_index", False),
    }


def test_an_open_young_update_of_the_index_is_told_apart(common: World) -> None:
    """Pending and younger than the objective: a stale index, not a leak (architecture 6)."""
    unit = common.unit(SECRET)
    young = read(common, common.subject("customer"), lambda r: r.hydrate([unit]))
    common.as_superuser("update brain.outbox set created_at = now() - interval '1 hour'")
    old = read(common, common.subject("customer"), lambda r: r.hydrate([unit]))
    assert [d.pending for d in (*young.discrepancies, *old.discrepancies)] == [True, False]


def test_excluded_units_are_as_if_they_had_never_existed(common: World) -> None:
    """Neither a body nor a discrepancy."""
    unit, hidden = common.unit(), common.unit(SECRET)
    found = read(
        common,
        common.subject("customer"),
        lambda r: r.hydrate([unit, hidden], exclude=frozenset([unit, hidden])),
    )
    assert not found.units
    assert found.discrepancies == ()


def test_a_deleted_unit_is_gone_at_once(common: World) -> None:
    unit = common.unit()
    common.run("update brain.unit set deleted_at = now()")
    assert not read(common, common.subject("customer"), lambda r: r.hydrate([unit])).units


def test_only_the_current_revision_is_ever_read(common: World) -> None:
    """Body, vector and lexical form of an older revision are invisible under row security."""
    unit = common.unit(body="old", terms=[1])
    common.run(
        "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256,"
        " lexical_terms, lexical_weights) values (%s, 2, 't', 'new', 's', '{2}', '{1}')",
        [unit],
    )
    for revision in (1, 2):
        common.run(
            "insert into brain.embedding values (%s, %s, 'm', %s)",
            [unit, revision, bytes([revision])],
            role=INDEX,
        )
    common.run("update brain.unit set current_revision = 2")

    async def everything(reader: PostgresReader) -> tuple[object, ...]:
        hydrated = await reader.hydrate([unit])
        judged = await reader.judge([unit], model="m")
        evidence = judged.units[unit]
        other = await reader.judge([unit], model="another")
        return (
            hydrated.units[unit].body,
            evidence.lexical.terms,
            evidence.vector,
            other.units[unit].vector,
        )

    found = read(common, common.subject("customer"), everything)
    assert found == ("new", (2,), b"\x02", None)


def test_a_dropped_row_level_security_is_caught_by_the_predicate(world: World) -> None:
    """Fault injection: the row comes without content and as a discrepancy of that layer."""
    hidden = world.unit(SECRET, body="secret")
    world.as_superuser("alter table brain.unit disable row level security")
    looks = (lambda r: r.hydrate([hidden]), lambda r: r.judge([hidden], model="m"))
    for look in looks:
        found = read(world, world.subject("customer"), look)
        assert not found.units
        layers = [(d.unit_id, d.layer) for d in found.discrepancies]
        assert layers == [(hidden, "row_level_security")]


def test_what_a_narrowing_leaves_out_is_no_leak(common: World) -> None:
    """Row-level security speaks for the caller's own profile only: a unit that it may read and
    that a further profile hides is left out without an alarm, however it was come by."""
    partner, thread = common.unit(("partner", *SECRET[1:])), common.thread()
    common.link(thread, partner)
    address = f"unit/{partner}"
    common.as_superuser("update brain.outbox set done_at = now()")

    async def look(reader: PostgresReader) -> tuple[object, ...]:
        unit = await reader.unit_by_address(address)
        return unit, list(await reader.members([thread])), list(reader.leaked)

    assert read(common, common.subject("employee", "customer"), look) == (None, [], [])
    # an index that offers it all the same is the one that let it through
    found = read(common, common.subject("employee", "customer"), lambda r: r.hydrate([partner]))
    assert [(d.unit_id, d.layer) for d in found.discrepancies] == [(partner, "vector_index")]


def test_a_broken_predicate_as_well_is_caught_in_this_process(world: World) -> None:
    """Both lower layers open: the scope itself still refuses."""
    hidden = world.unit(SECRET, body="secret")
    world.as_superuser("alter table brain.unit disable row level security")
    classes = tuple(range(world.snapshot.vocabulary.class_count))
    everything = Grant(world.snapshot.digest, ("everything",), classes, classes)

    async def with_foreign_values(reader: PostgresReader) -> Hydrated:
        reader._bound = _bound(Scope(everything, (), (), ()))
        return await reader.hydrate([hidden])

    found = read(world, world.subject("customer"), with_foreign_values)
    assert not found.units
    assert [d.layer for d in found.discrepancies] == ["row_level_security"]


def test_hidden_and_absent_addresses_are_the_same_nothing(common: World) -> None:
    hidden = common.unit(SECRET)
    for address in (f"unit/{hidden}", "unit/none", "nul\x00", "\ud800", ""):
        look = methodcaller("unit_by_address", address)
        assert read(common, common.subject("customer"), look) is None


def test_threads_are_found_by_id_and_address_within_the_scope(common: World) -> None:
    shown, hidden = common.thread(), common.thread((*SECRET[:5], "thread"))

    async def look(reader: PostgresReader) -> list[UUID | None]:
        references = [str(shown), f"thread/{shown}", str(hidden), f"thread/{hidden}", "\x00"]
        threads = [await reader.thread_by_reference(reference) for reference in references]
        return [thread.id if thread is not None else None for thread in threads]

    assert read(common, common.subject("customer"), look) == [shown, shown, None, None, None]


def test_an_id_is_not_taken_over_by_a_thread_that_has_it_as_its_address(common: World) -> None:
    """Ids follow from addresses, so that anybody who brings a thread can know them."""
    low, high = UUID(int=uuid4().int >> 1), UUID(int=uuid4().int | 1 << 127)
    shown = [common.thread() for _ in range(2)]
    for ident, wanted in zip((low, high), shown, strict=True):
        common.run(
            f"insert into brain.thread (id, canonical_address, title, {', '.join(FACETS)},"
            " tenant, jurisdiction) values (%s, %s, 'title', %s, %s, %s, %s, %s, %s, '*', '*')",
            [ident, str(wanted), *OPEN_THREAD],
        )

    async def look(reader: PostgresReader) -> list[UUID | None]:
        found = [await reader.thread_by_reference(str(wanted)) for wanted in shown]
        return [thread.id if thread is not None else None for thread in found]

    assert read(common, common.subject("customer"), look) == shown


def test_links_and_edges_need_both_ends(common: World) -> None:
    """A link shows a thread to its unit and a unit to its thread; an edge likewise."""
    shown, other, hidden = common.unit(), common.unit(), common.unit(SECRET)
    thread, secret_thread = common.thread(), common.thread((*SECRET[:5], "thread"))
    for t in (thread, secret_thread):
        for u in (shown, other, hidden):
            common.link(t, u)
    for pair in ((shown, other), (shown, hidden), (hidden, other)):
        common.run(
            "insert into brain.edge (id, src, dst, relation)"
            " values (gen_random_uuid(), %s, %s, 'cites')",
            pair,
        )

    async def look(reader: PostgresReader) -> tuple[object, object]:
        members = await reader.members([thread, secret_thread])
        edges = await reader.edges([shown, other, hidden])
        return (
            {(m.thread_id, m.unit_id) for m in members},
            [(e.src, e.dst) for e in edges],
        )

    assert read(common, common.subject("customer"), look) == (
        {(thread, shown), (thread, other)},
        [(shown, other)],
    )


def test_document_frequencies_count_permitted_units_only(world: World) -> None:
    """A hidden unit with the same terms changes no number; a consented one counts."""
    for _ in range(3):
        world.unit(terms=[1, 2])
    world.unit(terms=[2], tenant="mine")
    before = read(
        world, world.subject("customer", tenants=["mine"]), lambda r: r.lexical_statistics([1, 2])
    )
    world.unit(SECRET, terms=[1, 2])
    world.unit(terms=[1], tenant="theirs")
    risky = world.unit(HIGH_RISK, terms=[1])
    after = read(
        world, world.subject("customer", tenants=["mine"]), lambda r: r.lexical_statistics([1, 2])
    )
    assert (before.documents, before.by_term) == (4, {1: 3, 2: 4})
    assert after == before
    world.consent("subject", unit=risky)
    opened = read(
        world,
        world.subject("customer", tenants=["mine"], purpose="support"),
        lambda r: r.lexical_statistics([1, 2]),
    )
    assert (opened.documents, opened.by_term) == (5, {1: 4, 2: 4})


def test_thread_frequencies_and_partials_hold_nothing_hidden(world: World) -> None:
    shown, hidden = world.thread(), world.thread((*SECRET[:5], "thread"))
    for thread in (shown, hidden):
        world.run(
            "insert into brain.thread_term (term, thread_id, weight) values (7, %s, 0.5)", [thread]
        )
    world.unit(thread=shown)
    world.unit(SECRET, thread=shown)

    async def look(reader: PostgresReader) -> tuple[object, ...]:
        matches = await reader.threads_for_terms([7, 8])
        frequencies = await reader.thread_document_frequencies([7, 8])
        parts = await reader.partials([shown, hidden])
        return (
            [(m.thread.id, m.weights) for m in matches],
            (frequencies.documents, frequencies.by_term),
            [(p.thread_id, p.unit_count, p.stages) for p in parts],
        )

    assert read(world, world.subject("customer"), look) == (
        [(shown, {7: 0.5})],
        (1, {7: 1}),
        [(shown, 1, {"other"})],
    )


def test_a_consent_opens_a_unit_and_its_end_closes_it_at_once(common: World) -> None:
    """Read live from the primary; expiry by the database's clock."""
    unit = common.unit(HIGH_RISK)
    subject = common.subject("customer", purpose="support")

    def seen() -> bool:
        return unit in read(common, subject, lambda r: r.hydrate([unit])).units

    assert not seen()
    common.consent("subject", unit=unit)
    assert seen()
    common.as_superuser("update gate.consent set expires_at = granted_at + interval '1 second'")
    assert not seen()


def test_a_consent_to_a_thread_reaches_its_sure_units(world: World) -> None:
    """Expanded through active links only; the thread itself is opened too."""
    thread = world.thread((*HIGH_RISK[:5], "thread"))
    sure, doubtful = world.unit(HIGH_RISK, thread=thread), world.unit(HIGH_RISK)
    world.link(thread, doubtful, "needs_human")
    world.consent("subject", thread=thread)

    async def look(reader: PostgresReader) -> tuple[object, ...]:
        hydrated = await reader.hydrate([sure, doubtful])
        found = await reader.thread_by_reference(str(thread))
        return set(hydrated.units), found is not None, set(reader.scope.consented_units)

    assert read(world, world.subject("customer", purpose="support"), look) == (
        {sure},
        True,
        {sure, thread},
    )


def test_further_profiles_only_narrow(common: World) -> None:
    """The role is the caller's own; the predicate is the intersection."""
    partner = common.unit(("partner", *OPEN[1:]))
    for profiles, wanted in ((("employee",), True), (("employee", "customer"), False)):
        found = read(common, common.subject(*profiles), lambda r: r.hydrate([partner]))
        assert bool(found.units) == wanted


def test_a_subject_of_another_revision_is_refused(world: World) -> None:
    """Never an empty result: the gateway places the request again."""
    stale = world.subject("customer").model_copy(update={"policy_digest": "0" * 64})
    with pytest.raises(PolicyMismatch):
        read(world, stale, lambda r: r.hydrate([]))
    world.as_superuser("update gate.active_revision set digest = 'another'")
    with pytest.raises(PolicyMismatch):
        read(world, world.subject("customer"), lambda r: r.hydrate([]))


def test_a_missing_grant_row_is_a_mismatch_and_not_nothing(world: World) -> None:
    world.as_superuser("delete from gate.profile_grant where profile = 'customer'")
    with pytest.raises(PolicyMismatch):
        read(world, world.subject("customer"), lambda r: r.hydrate([]))


def test_an_unknown_profile_is_a_mismatch(common: World) -> None:
    with pytest.raises(PolicyMismatch):
        read(common, common.subject("nobody"), lambda r: r.hydrate([]))


def test_a_server_that_does_not_answer_is_unavailable(common: World) -> None:
    """Postgres' own exceptions do not leave the adapter."""

    async def main() -> None:
        truth = PostgresTruth("host=127.0.0.1 port=1 dbname=x", "secret", ["customer"], wait_s=0.3)
        try:
            with pytest.raises(StoreUnavailable):
                await truth.open()
        finally:
            await truth.close()

    asyncio.run(main())


def test_a_session_that_is_ended_by_the_server_is_unavailable(common: World) -> None:
    """The request is refused; the next one finds a new session."""

    async def hydrate(truth: PostgresTruth, meanwhile: Callable[[World], None]) -> None:
        async with truth.reading(common.subject("customer"), common.snapshot) as reader:
            await asyncio.to_thread(meanwhile, common)
            await reader.hydrate([uuid4()])

    async def main() -> None:
        async with common.truth("customer") as truth:
            with pytest.raises(StoreUnavailable):
                await hydrate(truth, end_sessions)
            await hydrate(truth, lambda _: None)
            end_sessions(common)
            await hydrate(truth, lambda _: None)

    asyncio.run(main())


def end_sessions(world: World) -> None:
    with psycopg.connect(world.database.url) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where usename = 'gw_serve_customer' and datname = current_database()"
        )


def test_a_reader_sees_one_moment(common: World) -> None:
    """Repeatable read: what commits meanwhile is for the next request, and the guard."""
    unit = common.unit(thread=common.thread(OPEN_THREAD))

    async def look(reader: PostgresReader) -> list[bool]:
        first = await reader.hydrate([unit])
        await asyncio.to_thread(common.run, "update brain.unit set publication_state = 'withdrawn'")
        return [unit in first.units, unit in (await reader.hydrate([unit])).units]

    assert read(common, common.subject("customer"), look) == [True, True]
    assert not read(common, common.subject("customer"), lambda r: r.hydrate([unit])).units


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
@example(["", "NULL", "null", 'a"b', "a\\", "{a,b}", " padded ", "a,b"])
def test_an_array_literal_is_read_as_the_list_that_it_was(
    connection: psycopg.Connection, texts: list[str]
) -> None:
    """A compartment's name is data: none of its characters may end it or become another."""
    (found,) = connection.execute("select %s::text[]", [array_literal(texts)]).fetchone() or ()
    assert found == texts
    (numbers,) = (
        connection.execute(
            "select %s::int[]", [array_literal([len(text) for text in texts])]
        ).fetchone()
        or ()
    )
    assert numbers == [len(text) for text in texts]
