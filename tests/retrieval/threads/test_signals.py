"""The five signals on real engines, each of them blind to what the caller may not see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np
import psycopg
import pytest

from policies.snapshot import Snapshot
from policies.thresholds import DEFAULTS
from retrieval.context_pack import Pack
from retrieval.contract import Answer, SubjectWire
from retrieval.embed.ports import unit_text
from retrieval.embed.quantise import integers, pack
from retrieval.errors import IndexUnavailable, Store
from retrieval.settings import ResolutionSettings
from retrieval.threads.centroid import Centroids
from retrieval.threads.resolve import Resolver
from tests.retrieval.stage import Prepared, Stage, packs, prepared, wire
from tests.retrieval.world import (
    EMBEDDER,
    EMPLOYEE,
    PARTNER,
    PUBLIC,
    SECRET,
    Link,
    Term,
    Thread,
    Unit,
    World,
    id_of,
    subject,
)
from tests.services import Cluster, Database, VectorService, fresh_database

HIGH = replace(PUBLIC, risk_class="high")
LIBRARY = World(
    threads=(
        Thread("t:pay", "Payouts and settlement", "Days, holds and cut-off times"),
        Thread("t:cash", "Collection at the door", "Drivers, bags and depots"),
        Thread("t:desk", "Service desk", "Answer times and tone"),
    ),
    units=(
        Unit("u:pay-1", "Payout days", "Money leaves on Tuesday.", PUBLIC.of("policy"), "law"),
        Unit("u:pay-2", "Settlement file", "One line for each movement.", PARTNER.of("api_doc")),
        Unit("u:pay-3", "Releasing a hold", "Two people decide.", EMPLOYEE.of("sop"), "law"),
        Unit("u:pay-4", "Payout rule", "Nobody may see this one.", SECRET.of("policy"), "law"),
        Unit("u:pay-5", "Risky notes", "Only with a consent.", HIGH.of("faq")),
        Unit("u:cash-1", "Bags", "Bags are counted twice.", PUBLIC.of("faq")),
        Unit("u:desk-1", "Tone", "We write as we speak.", PUBLIC.of("guide")),
        Unit("u:desk-2", "Times", "Within one day.", PUBLIC.of("policy"), "law"),
    ),
    links=(
        *(Link("t:pay", f"u:pay-{number}") for number in range(1, 6)),
        Link("t:cash", "u:cash-1"),
        Link("t:desk", "u:desk-1"),
        Link("t:desk", "u:desk-2", "supporting"),
    ),
    terms=(
        Term("cash on delivery", ("t:cash",)),
        Term("remuneration", ("t:pay",), PARTNER),
        Term("blackmail", ("t:desk",), SECRET),
    ),
)


@pytest.fixture(scope="module")
def library(
    cluster: Cluster, migrated_template: Database, sidecar: VectorService, snapshot: Snapshot
) -> Iterator[Prepared]:
    """The library. Never write to it."""
    with fresh_database(cluster, template=migrated_template.name) as database:
        yield prepared(database, sidecar, snapshot, LIBRARY)


@pytest.fixture
def own_library(database: Database, sidecar: VectorService, snapshot: Snapshot) -> Prepared:
    """The library, for this test alone."""
    return prepared(database, sidecar, snapshot, LIBRARY)


def _lenient(library: Prepared) -> Prepared:
    """The same under a policy that a single label satisfies."""
    thresholds = replace(DEFAULTS, match_percent=10)
    return replace(library, snapshot=replace(library.snapshot, thresholds=thresholds))


def _signals(answer: Answer) -> dict[str, float]:
    (pack_,) = packs(answer)
    return {signal.source: signal.score for signal in pack_.signal_breakdown}


def _thread(answer: Answer) -> UUID | None:
    (pack_,) = packs(answer)
    return pack_.thread_id


@pytest.mark.parametrize(
    ("query", "who", "thread"),
    [
        ("cash on delivery", "customer", "t:cash"),
        ("DELIVERY of cash", "customer", "t:cash"),
        ("cash", "customer", None),
        ("remuneration", "partner", "t:pay"),
        ("remuneration", "customer", None),
        ("blackmail", "employee", None),
    ],
)
def test_a_label_names_its_threads_to_whoever_may_see_it(
    library: Prepared, query: str, who: str, thread: str | None
) -> None:
    """Mandated by seed 4.2, controlled vocabulary: all words of a phrase, in any order; a label
    that is hidden is no word at all."""

    async def act(stage: Stage) -> Answer:
        return await stage.retrieve(query, who)

    answer = _lenient(library).run(act)
    assert _thread(answer) == (id_of(thread) if thread else None)
    if thread:
        assert _signals(answer)["label"] == 1.0


def test_a_hidden_label_changes_no_byte(own_library: Prepared) -> None:
    """Whatever it says and wherever it hangs; a synonym of a visible one is one, though."""
    queries = ("payouts", "cash on delivery", "tone of the desk", "holds")
    more = World(
        terms=(
            Term("payouts", ("t:cash", "t:pay"), SECRET, "h1"),
            Term("desk", ("t:pay",), EMPLOYEE, "h2"),
            Term("delivery", ("t:desk",), replace(PUBLIC, tenant="acme"), "h3"),
        )
    )

    async def act(stage: Stage) -> tuple[list[str], list[str], Answer]:
        before = [wire(await stage.retrieve(query)) for query in queries]
        await stage.put(more)
        after = [wire(await stage.retrieve(query)) for query in queries]
        await stage.sql(
            "update brain.label set aliases = '{kerbside money}' where id = %s",
            (LIBRARY.terms[0].id,),
        )
        await stage.worker.drain()
        return before, after, await stage.retrieve("kerbside money")

    before, after, by_synonym = _lenient(own_library).run(act)
    assert before == after
    assert (_thread(by_synonym), _signals(by_synonym)["label"]) == (id_of("t:cash"), 1.0)


def _expected(question: str, units: Sequence[str]) -> float:
    """The cosine by the written rule, from the texts alone."""
    by_address = {unit.address: unit for unit in LIBRARY.units}
    texts = [unit_text(by_address[one].title, by_address[one].body) for one in units]
    total = np.sum([integers(pack(row)) for row in EMBEDDER.embed(texts)], axis=0)
    asked = integers(pack(EMBEDDER.embed([question])[0]))
    return float(total @ asked / np.linalg.norm(total) / np.linalg.norm(asked))


async def _near(
    stage: Stage, who: SubjectWire, question: str, exclude: Sequence[str] = ()
) -> dict[UUID, float]:
    vector = pack(EMBEDDER.embed([question])[0])
    async with stage.retrieval._truth.reading(who, stage.snapshot) as reader:
        found = await Centroids().near(
            reader,
            vector,
            model=EMBEDDER.name,
            thread_ids=None,
            exclude=frozenset(map(id_of, exclude)),
        )
    return dict(zip(found.thread_ids, found.cosines.tolist(), strict=True))


@pytest.mark.parametrize(
    ("who", "units"),
    [
        ("customer", [1]),
        ("partner", [1, 2]),
        ("employee", [1, 2, 3]),
    ],
)
def test_a_centroid_is_over_exactly_what_its_reader_may_read(
    own_library: Prepared, who: str, units: list[int]
) -> None:
    """Mandated by architecture section 6; an excluded unit is taken away again, as if unwritten."""
    question = "when does the payout leave, and who counts the bags"
    mine = [f"u:pay-{number}" for number in units]

    async def act(stage: Stage) -> tuple[dict[UUID, float], dict[UUID, float]]:
        me = stage.subject(who)
        return await _near(stage, me, question), await _near(stage, me, question, mine[1:])

    whole, without = own_library.run(act)
    assert whole[id_of("t:pay")] == pytest.approx(_expected(question, mine), abs=2e-6)
    assert without[id_of("t:pay")] == pytest.approx(_expected(question, mine[:1]), abs=2e-6)
    assert whole[id_of("t:cash")] == pytest.approx(_expected(question, ["u:cash-1"]), abs=2e-6)


def test_a_consented_unit_counts_for_its_consent_alone(own_library: Prepared) -> None:
    """Mandated by architecture section 6: consented units are added one by one."""
    question = "risky notes with a consent"

    async def act(stage: Stage) -> list[float]:
        me = subject("customer", stage.snapshot, purpose="support")
        await stage.sql(
            "insert into gate.consent (subject_id, purpose, unit_id, approver, expires_at)"
            " values (%s, 'support', %s, 'somebody', now() + interval '1 hour')",
            (me.subject_id, id_of("u:pay-5")),
        )
        others = stage.subject("customer").model_copy(update={"subject_id": "another"})
        return [
            (await _near(stage, who, question))[id_of("t:pay")]
            for who in (me, stage.subject("customer"), others)
        ]

    mine, without_purpose, another = own_library.run(act)
    assert mine == pytest.approx(_expected(question, ["u:pay-1", "u:pay-5"]), abs=2e-6)
    assert without_purpose == another == pytest.approx(_expected(question, ["u:pay-1"]), abs=2e-6)


@pytest.mark.parametrize(
    "change",
    [
        "update brain.unit set publication_state = 'withdrawn' where id = %(unit)s",
        "update brain.unit set deleted_at = now() where id = %(unit)s",
        "update brain.unit set current_revision = 2 where id = %(unit)s",
        "delete from brain.thread_membership where unit_id = %(unit)s",
        "update brain.thread_membership set status = 'wrong_link' where unit_id = %(unit)s",
    ],
)
def test_whatever_leaves_a_thread_takes_the_sum_with_it_at_once(
    own_library: Prepared, change: str
) -> None:
    """Mandated by failure mode 17: in the very transaction, and no other part is touched."""
    with psycopg.connect(own_library.database.url) as connection:
        sums = "select thread_id, class_id, vector_sum is not null from brain.thread_partial"
        before = set(connection.execute(sums).fetchall())
        touched = connection.execute(
            "select m.thread_id, u.class_id, true from brain.unit u"
            " join brain.thread_membership m on m.unit_id = u.id where u.id = %s",
            [id_of("u:desk-2")],
        ).fetchone()
        assert all(there for *_, there in before)
        connection.execute(change.encode(), {"unit": id_of("u:desk-2")})
        after = set(connection.execute(sums).fetchall())
        assert touched is not None
        assert touched not in after
        assert before - {touched} <= after
        connection.rollback()


def test_the_worker_makes_sums_and_postings_anew(own_library: Prepared) -> None:
    """Chosen by us: the same sum from scratch, whatever the order of changes before."""

    async def act(stage: Stage) -> tuple[dict[UUID, float], dict[UUID, float]]:
        me = stage.subject("customer")
        whole = await _near(stage, me, "tone")
        unit = (id_of("u:desk-2"),)
        await stage.sql("delete from brain.thread_membership where unit_id = %s", unit)
        await stage.worker.drain()
        await stage.put(World(links=(Link("t:desk", "u:desk-2"),)))
        return whole, await _near(stage, me, "tone")

    before, after = own_library.run(act)
    assert before == after


@pytest.mark.parametrize(
    ("query", "who", "thread"),
    [
        ("what does u:pay-1 say", "customer", "t:pay"),
        ("what does u:pay-3 say", "employee", "t:pay"),
        ("what does u:pay-3 say", "customer", None),
        ("what does u:pay-9 say", "customer", None),
        ("what does u:desk-2 say", "customer", None),
    ],
)
def test_the_address_of_a_unit_leads_to_the_thread_it_anchors(
    library: Prepared, query: str, who: str, thread: str | None
) -> None:
    """Mandated by seed 4.2, authority hint; a supporting unit anchors nothing, and a hidden one
    is as if it did not exist."""

    async def act(stage: Stage) -> Answer:
        return await stage.retrieve(query, who)

    answer = library.run(act)
    assert _thread(answer) == (id_of(thread) if thread else None)
    if thread:
        assert _signals(answer)["authority"] == 1.0


def test_the_address_of_a_hidden_unit_is_that_of_none(own_library: Prepared) -> None:
    """The same bytes while it exists out of sight and once it is gone."""
    question = "what do u:pay-3 and u:pay-4 say"

    async def act(stage: Stage) -> tuple[str, str]:
        before = wire(await stage.retrieve(question))
        await stage.sql(
            "update brain.unit set deleted_at = now() where id = any(%s)",
            ([id_of("u:pay-3"), id_of("u:pay-4")],),
        )
        await stage.worker.drain()
        return before, wire(await stage.retrieve(question))

    before, after = own_library.run(act)
    assert before == after


def test_a_word_of_kind_prefers_threads_that_hold_one_for_this_reader(library: Prepared) -> None:
    """Mandated by seed 4.2: "policy" speaks for a thread only where its reader sees a policy."""

    async def act(stage: Stage) -> list[Answer]:
        return [
            await stage.retrieve("payouts and settlement policy"),
            await stage.retrieve("payouts and settlement runbook"),
            await stage.retrieve("payouts and settlement procedure"),
            await stage.retrieve("payouts and settlement procedure", "employee"),
        ]

    policy, runbook, hidden_sop, sop = map(_signals, library.run(act))
    assert "authority" in policy
    assert "authority" not in runbook
    assert "authority" not in hidden_sop
    assert "authority" in sop


def test_feedback_of_another_audience_changes_no_byte(own_library: Prepared) -> None:
    """Mandated by architecture section 6: each audience judges for itself."""
    said = (
        "insert into brain.thread_feedback_health"
        " (thread_id, audience, status, subjects, checked_at, changed_at)"
        " values (%s, %s, 'noisy_retrieval', 9, now(), now())"
    )

    async def act(stage: Stage) -> tuple[str, str, Pack, Pack]:
        query = "payouts and settlement"
        before = wire(await stage.retrieve(query))
        await stage.sql(said, (id_of("t:pay"), "partner"))
        after = wire(await stage.retrieve(query))
        (partners,) = packs(await stage.retrieve(query, "partner"))
        (named,) = packs(await stage.pack("t:pay", "partner"))
        return before, after, partners, named

    before, after, partners, named = own_library.run(act)
    assert before == after
    assert partners.fallback_signal is not None
    assert partners.fallback_signal.reason == "weak_thread"
    assert named.last_health_status is not None
    assert named.last_health_status.status == "noisy_retrieval"


def test_without_the_embedder_words_still_resolve_and_it_is_said(library: Prepared) -> None:
    """Chosen by us: nearness is one of five signals; its absence is told, never hidden."""

    async def broken(_: str) -> bytes | None:
        raise IndexUnavailable(Store.EMBEDDER, "gone")

    async def act(stage: Stage) -> tuple[bool, list[str]]:
        resolver = Resolver(ResolutionSettings(), model=EMBEDDER.name, embedded=broken)
        async with stage.retrieval._truth.reading(
            stage.subject("customer"), stage.snapshot
        ) as reader:
            found = await resolver.resolve(
                reader, query="payouts and settlement", reference=None, thresholds=DEFAULTS
            )
        return found.degraded, [one.thread.canonical_address for one in found.candidates]

    assert library.run(act) == (True, ["t:pay"])


def test_beyond_the_bound_only_what_words_found_is_compared(library: Prepared) -> None:
    """Chosen by us: a request's cost does not grow with the number of threads for ever. What words
    found is compared all the same."""
    few = ResolutionSettings(centroids_max=1)

    async def embedded(question: str) -> bytes | None:
        return await asyncio.to_thread(lambda: pack(EMBEDDER.embed([question])[0]))

    async def act(stage: Stage) -> list[list[str]]:
        found: list[list[str]] = []
        for settings in (few, ResolutionSettings()):
            resolver = Resolver(settings, model=EMBEDDER.name, embedded=embedded)
            async with stage.retrieval._truth.reading(
                stage.subject("customer"), stage.snapshot
            ) as reader:
                one = await resolver.resolve(
                    reader, query="payouts and settlement", reference=None, thresholds=DEFAULTS
                )
            found.append([str(signal.source) for signal in one.candidates[0].signals])
        return found

    bounded, whole = library.run(act)
    assert bounded == whole


def test_excluded_units_leave_no_trace_in_rank_and_kind(own_library: Prepared) -> None:
    """Mandated by architecture section 6: as if they had never been written, in every aggregate."""
    excluded = ("u:desk-1", "u:pay-1")
    queries = ("service desk guide", "payouts policy", "tone of the service desk")
    gone = [str(id_of(address)) for address in excluded]

    async def ask(stage: Stage, exclude: Sequence[str]) -> list[str]:
        return [
            wire(
                await stage.retrieval.ask(
                    stage.envelope(
                        "retrieve", "employee", exclude=exclude, request={"query": query}
                    )
                )
            )
            for query in queries
        ]

    async def act(stage: Stage) -> tuple[list[str], list[str]]:
        before = await ask(stage, gone)
        for statement in (
            "delete from brain.thread_membership where unit_id = any(%s)",
            "update brain.unit set deleted_at = now() where id = any(%s)",
        ):
            await stage.sql(statement, ([id_of(address) for address in excluded],))
        await stage.worker.drain()
        return before, await ask(stage, [])

    before, after = own_library.run(act)
    assert before == after
