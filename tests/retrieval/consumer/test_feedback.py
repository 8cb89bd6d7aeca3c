"""What a subject may say about its packs, and what it finds of them later."""

from __future__ import annotations

import psycopg
import pytest

from retrieval.context_pack import Pack
from retrieval.contract import Answer
from tests.retrieval.consumer.asking import STRANGE, delivery, got, references, say
from tests.retrieval.stage import Prepared, Stage, wire
from tests.retrieval.world import id_of, subject

LAW, ABSENT = id_of("law:refund-act"), id_of("absent")


def said(prepared: Prepared, pack: Pack) -> list[tuple[object, ...]]:
    """The rows that stand about a pack, beside the one of its delivery."""
    with psycopg.connect(prepared.database.url) as connection:
        return connection.execute(
            "select kind, unit_id, at = (select at from brain.retrieval_metric_event"
            " where kind = 'pack' and pack_id = %(pack)s) from brain.retrieval_metric_event"
            " where pack_id = %(pack)s and kind <> 'pack' order by kind, unit_id",
            {"pack": pack.pack_id},
        ).fetchall()


def test_feedback_is_one_row_however_often_it_is_given(sample: Prepared) -> None:
    """Mandated by issue 5, part 7: idempotent by subject, pack, kind and unit."""

    async def act(stage: Stage) -> tuple[Pack, list[Answer]]:
        pack = await got(stage)
        return pack, [
            await say(stage, pack.pack_id, "sufficient"),
            await say(stage, pack.pack_id, "sufficient"),
            await say(stage, pack.pack_id, "noisy_context", "customer", LAW, LAW),
            await say(stage, pack.pack_id, "noisy_context", "customer", LAW),
            await say(stage, pack.pack_id, "noisy_context"),
        ]

    pack, answers = sample.run(act)
    assert len({wire(answer) for answer in answers}) == 1
    assert answers[0].feedback is not None
    assert not answers[0].governed
    assert said(sample, pack) == [
        ("noisy_context", LAW, True),
        ("noisy_context", None, True),
        ("sufficient", None, True),
    ]


def test_feedback_on_what_was_not_delivered_is_one_refusal_and_no_row(sample: Prepared) -> None:
    """Mandated by issue 5, part 7: another's pack, no pack, a unit beside the pack."""

    async def act(stage: Stage) -> tuple[Pack, list[Answer]]:
        pack = await got(stage)
        other = subject("customer", stage.snapshot).model_copy(update={"subject_id": "another"})
        return pack, [
            await say(stage, pack.pack_id, "wrong_thread", other),
            await say(stage, STRANGE, "wrong_thread", other),
            await say(stage, STRANGE, "wrong_thread"),
            await say(stage, pack.pack_id, "noisy_context", "customer", LAW, ABSENT),
            await say(
                stage, pack.pack_id, "noisy_context", "customer", id_of("secret:fraud-rules")
            ),
            await say(stage, pack.pack_id, "noisy_context", "customer", id_of("doc:refund-api")),
        ]

    pack, answers = sample.run(act)
    assert len({wire(answer) for answer in answers}) == 1
    assert [(one.status, one.code) for one in answers] == [(404, "not_delivered")] * 6
    assert said(sample, pack) == []


@pytest.mark.parametrize("who", ["customer", "partner", "employee"])
def test_a_pack_is_found_again_by_its_subject(sample: Prepared, who: str) -> None:
    """References only: what it showed and what may be cited, in the order of the delivery."""

    async def act(stage: Stage) -> tuple[Pack, Answer]:
        pack = await got(stage, who)
        return pack, await delivery(stage, pack.pack_id, who)

    pack, answer = sample.run(act)
    found = references(answer)
    assert {one.canonical_address: one.source_revision for one in found.units} == (
        pack.source_revisions
    )
    assert all(one.current for one in found.units)
    assert found.thread_id == pack.thread_id
    assert set(found.suspect_unit_ids) == {one.unit_id for one in pack.suspect_links}
    assert list(found.gap_ids) == [gap.artifact_id for gap in pack.known_gaps]
    shown = {unit.unit_id for unit in found.units}
    governed = {(one.sort, one.id) for one in answer.governed}
    assert governed == {
        ("thread", found.thread_id),
        *(("unit", one) for one in shown.union(found.suspect_unit_ids)),
        *(("artifact", one) for one in found.gap_ids),
    }


def test_nobody_elses_pack_is_found(sample: Prepared) -> None:
    """Mandated by issue 5, part 7: packs are readable by their subject only."""

    async def act(stage: Stage) -> list[Answer]:
        pack = await got(stage, "employee")
        other = subject("employee", stage.snapshot).model_copy(update={"subject_id": "another"})
        return [
            await delivery(stage, pack.pack_id, other),
            await delivery(stage, pack.pack_id, "customer"),
            await delivery(stage, STRANGE, "employee"),
            await delivery(stage, "no id at all", "employee"),
        ]

    answers = sample.run(act)
    assert len({wire(answer) for answer in answers}) == 1
    assert (answers[0].status, answers[0].code) == (404, "not_delivered")


def test_a_narrowed_subject_finds_what_it_may_see_now(sample: Prepared) -> None:
    """Chosen by us: a pack that was got as an employee, looked at as a customer."""

    async def act(stage: Stage) -> tuple[Pack, Answer]:
        employee = subject("employee", stage.snapshot)
        pack = await got(stage, employee)
        narrow = employee.model_copy(update={"profiles": ("employee", "customer")})
        return pack, await delivery(stage, pack.pack_id, narrow)

    pack, answer = sample.run(act)
    found = {one.canonical_address for one in references(answer).units}
    assert "sop:refund-desk" in pack.source_revisions
    assert "law:refund-act" in found
    assert not found & {"sop:refund-desk", "doc:refund-api"}
    assert not answer.discrepancies
