"""Extra searches, found in the sequence of a subject's own questions."""

from __future__ import annotations

from uuid import UUID

import pytest

from policies.snapshot import Snapshot
from tests.retrieval.signals.desk import Desk
from tests.retrieval.signals.test_ledger import pack_id, run
from tests.retrieval.world import Link, Thread, Unit, World
from tests.services import Database, VectorService

WORLD = World(
    units=(
        Unit("u:limits", "Refund limits", "Refunds are limited to thirty days."),
        Unit("u:parcels", "Parcel sizes", "A parcel may weigh thirty kilos."),
    ),
    threads=(Thread("t:refunds", "Refund limits"), Thread("t:parcels", "Parcel sizes")),
    links=(Link("t:refunds", "u:limits"), Link("t:parcels", "u:parcels")),
)
FIRST, SECOND = "refund limits", "parcel sizes"


async def noted(desk: Desk) -> set[UUID]:
    """The packs that somebody searched beside, after two passes of the worker."""
    await desk.settle()
    await desk.settle()
    rows = await desk.rows(
        "select pack_id from brain.retrieval_metric_event where kind = 'extra_search'"
    )
    assert len(rows) == len(set(rows)), "one row a pack"
    return {row[0] for row in rows}


def test_another_question_after_a_pack_is_an_extra_search(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Mandated by seed 4.13, rule 4: the pack before is noted, the last one not yet."""

    async def act(desk: Desk) -> None:
        first = await desk.ask(FIRST)
        await desk.ask(SECOND)
        assert await noted(desk) == {pack_id(first)}
        assert (await desk.rates())["agent_extra_search_rate"] == (1, 2)

    run(database, sidecar, snapshot, act, WORLD)


@pytest.mark.parametrize("same", ["refund limits", "Refund LIMITS?", "the limits of a refund"])
def test_the_same_question_again_is_none(
    database: Database, sidecar: VectorService, snapshot: Snapshot, same: str
) -> None:
    """Its words count, not how they are written; asked in raw mode it is one."""

    async def act(desk: Desk) -> None:
        await desk.ask(FIRST)
        again = await desk.ask(same)
        assert await noted(desk) == set()
        envelope = desk.stage.envelope(
            "retrieve", desk.who("ann"), request={"query": same, "mode": "raw"}
        )
        await desk.stage.retrieval.ask(envelope)
        assert await noted(desk) == {pack_id(again)}

    run(database, sidecar, snapshot, act, WORLD)


def test_a_pack_that_sufficed_another_subject_and_a_late_question_note_nothing(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Chosen by us: ten minutes, the same subject, and no word that it was enough."""

    async def act(desk: Desk) -> None:
        await desk.say(await desk.ask(FIRST), "sufficient")
        await desk.ask(SECOND)
        await desk.ask(FIRST, "ben")
        await desk.stage.sql(
            "update brain.retrieval_metric_event set at = at - interval '11 minutes'"
            " where consumer = %s",
            (desk.ledger.consumer("ben"),),
        )
        await desk.ask(SECOND, "ben")
        assert await noted(desk) == set()

    run(database, sidecar, snapshot, act, WORLD)


def test_anonymous_callers_share_no_sequence(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """They are many: the next question is somebody else's."""

    async def act(desk: Desk) -> None:
        await desk.ask(FIRST, "anonymous")
        await desk.ask(SECOND, "anonymous")
        assert await noted(desk) == set()

    run(database, sidecar, snapshot, act, WORLD)
