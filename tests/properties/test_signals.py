"""G2 for what is drawn from use: nobody's bytes depend on what others asked, got or said.

The worlds are those of ``test_non_interference``. Between two rounds of the same questions others
use the service: four employees call the packs of a seen and of a hidden thread noise, somebody of
each audience meets gaps and speaks twice, and the worker draws its signals from all of it.
Employees ask nothing here: feedback of one's own audience may change what one gets, and does
(``test_health``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings

from policies.snapshot import Snapshot
from retrieval.contract import Answer, FeedbackKind
from retrieval.errors import StoreUnavailable
from tests.properties.test_non_interference import Case, _ask_everything, cases
from tests.properties.worlds import NIGHTLY, TIMEOUT_S, WORLDS
from tests.retrieval.signals.desk import Desk, desk
from tests.services import Cluster, Database, VectorService, fresh_database

SPEAKERS = [f"employee-{number}" for number in range(4)]
"""One more than has to agree (``AGREED``)."""
_TRIES = 20


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def served(
    runner: asyncio.Runner,
    cluster: Cluster,
    migrated_template: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
) -> Iterator[Desk]:
    with fresh_database(cluster, template=migrated_template.name) as database:
        life = desk(database, sidecar, snapshot)
        yield runner.run(life.__aenter__())
        runner.run(life.__aexit__(None, None, None))


@pytest.mark.timeout(TIMEOUT_S)
@settings(max_examples=WORLDS if NIGHTLY else 8, phases=(Phase.explicit, Phase.generate))
@given(case=cases())
def test_what_others_ask_get_and_say_changes_no_byte_of_any_answer(
    runner: asyncio.Runner, served: Desk, case: Case
) -> None:
    """Mandated by promise G2: feedback of another audience, gaps, deliveries of others."""
    others = tuple(one for one in case.audiences if one != "employee")
    # every question is looked at after its answer: three of them, so that many worlds are tried
    runner.run(_holds(served, replace(case, audiences=others, asked=case.asked[:3])))


async def _holds(served: Desk, case: Case) -> None:
    await served.stage.clear()
    await served.stage.sql(
        "truncate brain.pack_delivery, brain.retrieval_metric_event, brain.search_gap_signal,"
        " brain.decision_backlog, brain.segmentation_health, gate.governance_queue,"
        " brain.thread_feedback_health, brain.question_term cascade"
    )
    await served.stage.put(case.seen + case.hidden)
    before = await _ask_everything(served.stage, case)
    await _others_use_it(served, case)
    await served.settle()
    assert await served.rows("select 1 from brain.search_gap_signal"), "nothing was drawn"
    assert await _ask_everything(served.stage, case) == before
    await served.settle()
    assert await _ask_everything(served.stage, case) == before, "after a second pass"


async def _others_use_it(served: Desk, case: Case) -> None:
    async with asyncio.TaskGroup() as together:
        for name in SPEAKERS:
            together.create_task(_calls_all_noise(served, case, name))
        for audience in case.audiences:
            together.create_task(_meets_gaps(served, case, audience))


async def _calls_all_noise(served: Desk, case: Case, name: str) -> None:
    for thread in (case.seen.threads[0], case.hidden.threads[0]):
        answer = await served.ask(case.queries[0], name, "employee", thread=thread.address)
        if answer.response is not None and answer.response.packs:
            await _say(served, answer, "noisy_context", name)
            await _say(served, answer, "wrong_thread", name)


async def _meets_gaps(served: Desk, case: Case, audience: str) -> None:
    for query in (*case.queries, "xylophone zymurgy", "xylophone zymurgy"):
        answer = await served.ask(query, "somebody", audience)
        if answer.response is not None and answer.response.packs:
            await _say(served, answer, "noisy_context", "somebody", audience)
            await _say(served, answer, "extra_search", "somebody", audience)


async def _say(
    served: Desk, answer: Answer, kind: FeedbackKind, name: str, audience: str = "employee"
) -> None:
    """Speaks, and once more where the ledger says that it is busy, as a client does."""
    for _ in range(_TRIES):
        try:
            return await served.say(answer, kind, name, audience)
        except StoreUnavailable:
            continue
    raise AssertionError("the ledger does not answer in time")
