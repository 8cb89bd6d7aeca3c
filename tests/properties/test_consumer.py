"""G2 for what comes after a pack: checks, feedback, packs found again, the listing of units.

The worlds are those of ``test_non_interference``. Packs are delivered before the hidden objects
come; then the same is asked about them, and about packs delivered since. What others say about
their packs in between changes nothing either.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from policies.snapshot import Snapshot
from retrieval.context_pack import Pack
from retrieval.contract import Answer, SubjectWire
from tests.properties.test_non_interference import Case, _alter, _bury, cases
from tests.properties.worlds import TIMEOUT_S, WORLDS
from tests.retrieval.consumer.asking import check, cite, claim, delivery, say, units
from tests.retrieval.stage import Stage, ids_in, stage, wire
from tests.retrieval.world import id_of, subjects
from tests.services import Cluster, Database, VectorService, fresh_database

T = TypeVar("T")
TIME = re.compile(r'"delivered_at":"[^"]*"')
DARK = id_of("label of the dark")
AFTER = 7
PAGES = ("all", "first", "next", "after hidden", "kind", "stage", "label", "text")


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
) -> Iterator[Stage]:
    with fresh_database(cluster, template=migrated_template.name) as database:
        life = stage(database, sidecar, snapshot)
        yield runner.run(life.__aenter__())
        runner.run(life.__aexit__(None, None, None))


@pytest.mark.timeout(TIMEOUT_S)
@settings(max_examples=WORLDS, phases=(Phase.explicit, Phase.generate))
@given(
    case=cases(),
    pages=st.lists(st.sampled_from(PAGES), min_size=2, max_size=2, unique=True),
    after=st.lists(st.integers(0, AFTER - 1), min_size=3, max_size=3, unique=True),
)
def test_hidden_objects_change_no_byte_of_what_follows_a_pack(
    runner: asyncio.Runner, served: Stage, case: Case, pages: list[str], after: list[int]
) -> None:
    """Mandated by promise G2, on check, feedback, delivery and units, for every audience."""
    runner.run(_holds(served, case, pages, after))


async def _holds(served: Stage, case: Case, pages: list[str], after: list[int]) -> None:
    await served.clear()
    await served.put(case.seen)
    kept = await _of_all(case, lambda who: _packs(served, case, who))

    async def answers(packs: Mapping[str, list[Pack]]) -> Mapping[str, list[str]]:
        return await _of_all(case, lambda who: _asked(served, case, who, packs[who], pages, after))

    before = await answers(kept)
    await served.put(case.hidden)
    await _others_speak(served, case)
    assert await answers(kept) == before, "hidden objects were added"
    fresh = await _of_all(case, lambda who: _packs(served, case, who))
    assert await answers(fresh) == before, "packs of another moment"
    await _alter(served, case.hidden)
    await _bury(served, case.hidden)
    assert await answers(kept) == before, "hidden objects were changed"


async def _of_all(case: Case, act: Callable[[str], Coroutine[None, None, T]]) -> Mapping[str, T]:
    """By audience; concurrently, as callers come."""
    async with asyncio.TaskGroup() as together:
        tasks = {who: together.create_task(act(who)) for who in case.audiences}
    return {who: task.result() for who, task in tasks.items()}


async def _packs(served: Stage, case: Case, who: str) -> list[Pack]:
    """A pack by question, if there is one, and the pack of a thread, if it may be seen."""
    subject = subjects(served.snapshot)[who]
    answers = [
        await served.retrieve(case.queries[0], subject),
        await served.pack(case.seen.threads[0].address, subject),
    ]
    return [one.response.packs[0] for one in answers if one.response and one.response.packs]


def _page(case: Case, name: str) -> dict[str, Any]:
    """The query of a page of the listing."""
    made: dict[str, dict[str, Any]] = {
        "all": {"limit": 200},
        "first": {"limit": 2},
        "next": {"limit": 2, "after": case.seen.units[0].address},
        "after hidden": {"limit": 1, "after": case.hidden.units[0].address},
        "kind": {"kind": "report"},
        "stage": {"lifecycle_stage": "law"},
        "label": {"label": "dark"},
        "text": {"text": True},
    }
    return made[name]


async def _asked(
    served: Stage,
    case: Case,
    who: str,
    packs: list[Pack],
    pages: list[str],
    after: list[int],
) -> list[str]:
    subject = subjects(served.snapshot)[who]
    hidden = case.hidden.units[0].address
    answers = [
        *[await units(served, subject, **_page(case, page)) for page in pages],
        *[one for pack in packs for one in await _about(served, subject, pack, hidden, after)],
    ]
    hidden_ids = {id_of(one.address) for one in case.hidden.named} | {DARK}
    for answer in answers:
        assert not answer.discrepancies
        assert not ids_in(answer.model_dump_json(), hidden_ids)
    return [TIME.sub("-", wire(answer)) for answer in answers]


async def _about(
    served: Stage, subject: SubjectWire, pack: Pack, hidden: str, after: list[int]
) -> list[Answer]:
    """The ``after`` of what may be said and asked about a pack."""
    claims = [
        *[claim(cite(pack, address, revision)) for address, revision in
          pack.source_revisions.items()],
        claim(cite(pack, hidden)),
        claim(cite(pack, "absent")),
        claim(),
    ]  # fmt: skip
    shown = [unit.unit_id for unit in pack.canonical_units[:1]]
    gaps = [gap.artifact_id for gap in pack.known_gaps]
    said: tuple[Callable[[], Awaitable[Answer]], ...] = (
        lambda: check(served, claims, subject),
        lambda: check(served, claims, subject, surfaced=gaps),
        lambda: delivery(served, pack.pack_id, subject),
        lambda: delivery(served, id_of(hidden), subject),
        lambda: say(served, pack.pack_id, "noisy_context", subject, *shown),
        lambda: say(served, pack.pack_id, "noisy_context", subject, id_of(hidden)),
        lambda: say(served, id_of(hidden), "sufficient", subject),
    )
    assert len(said) == AFTER
    return [await said[number]() for number in after]


async def _others_speak(served: Stage, case: Case) -> None:
    """An employee judges its packs, and a label that nobody may see is hung on a seen unit."""
    other = subjects(served.snapshot)["employee"].model_copy(update={"subject_id": "somebody"})
    answer = await served.retrieve(case.queries[0], other)
    for pack in answer.response.packs if answer.response else ():
        for kind in ("wrong_thread", "noisy_context", "rejected_thread"):
            assert (await say(served, pack.pack_id, kind, other)).status == 200
    await served.sql(
        "insert into brain.label (id, term, visibility, readiness, publication_state, risk_class,"
        " authority, kind, tenant, jurisdiction) values (%s, 'dark', 'restricted', 'published',"
        " 'published', 'low', 'enacted', 'faq', '*', '*')",
        (DARK,),
    )
    await served.sql(
        "insert into brain.unit_label (label_id, unit_id) values (%s, %s)",
        (DARK, id_of(case.seen.units[0].address)),
    )
