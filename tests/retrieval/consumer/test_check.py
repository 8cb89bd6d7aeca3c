"""What the check of an answer says, on real deliveries."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from retrieval.context_pack import Pack
from retrieval.contract import Answer, CheckRequest
from tests.retrieval.consumer.asking import (
    STRANGE,
    check,
    cite,
    claim,
    delivery,
    got,
    references,
    verdict,
)
from tests.retrieval.stage import Prepared, Stage, wire
from tests.retrieval.world import id_of, subject

LAW, AUDIT = "law:refund-act", "report:old-audit"
GAP = id_of("thread:refunds expects Load test of the refund flow")
SECRET_RULES = "secret:fraud-rules"


def test_an_answer_that_cites_what_it_got_and_surfaces_what_is_missing_is_accepted(
    sample: Prepared,
) -> None:
    """Mandated by seed 4.13, rules 3 and 5."""

    async def act(stage: Stage) -> tuple[Pack, Answer]:
        pack = await got(stage)
        gaps = [gap.artifact_id for gap in pack.known_gaps]
        return pack, await check(stage, [claim(cite(pack, LAW))], surfaced=gaps)

    pack, answer = sample.run(act)
    found = verdict(answer)
    assert (found.verdict, found.unsurfaced_gaps, found.unsurfaced_suspects) == ("accepted", (), ())
    assert [(one.code, one.citations) for one in found.claims] == [("supported", ("valid",))]
    assert {one.id for one in answer.governed} == {id_of(LAW)}
    assert found.audience_scope_applied == pack.audience_scope_applied


def test_each_citation_has_a_code_of_its_own(sample: Prepared) -> None:
    """A wrong revision, a unit of no pack, no citation at all: told apart, in order."""

    async def act(stage: Stage) -> Answer:
        pack = await got(stage)
        claims = [
            claim(cite(pack, LAW), cite(pack, LAW, 2)),
            claim(cite(pack, "law:absent")),
            claim(),
            claim(cite(pack, LAW)),
        ]
        return await check(stage, claims, surfaced=[GAP])

    found = verdict(sample.run(act))
    assert found.verdict == "rejected"
    assert [(one.code, one.citations) for one in found.claims] == [
        ("unsupported", ("valid", "wrong_revision")),
        ("unsupported", ("not_delivered",)),
        ("uncited", ()),
        ("supported", ("valid",)),
    ]


def test_gaps_are_surfaced_or_the_claim_is_flagged(sample: Prepared) -> None:
    """Mandated by seed 4.6: a gap of a pack that a claim rests on is told of."""

    async def act(stage: Stage) -> list[Answer]:
        pack = await got(stage)
        plain, flagged = claim(cite(pack, LAW)), claim(cite(pack, LAW), flagged=True)
        return [
            await check(stage, [plain]),
            await check(stage, [flagged]),
            await check(stage, [flagged, plain]),
            await check(stage, [plain], surfaced=[GAP, STRANGE]),
        ]

    found = [verdict(answer) for answer in sample.run(act)]
    assert [one.unsurfaced_gaps for one in found] == [(GAP,), (), (GAP,), ()]
    assert [one.verdict for one in found] == ["rejected", "accepted", "rejected", "accepted"]


def test_a_claim_on_a_suspect_unit_is_flagged_or_the_unit_is_surfaced(sample: Prepared) -> None:
    """Mandated by seed 4.13, rule 3."""

    async def act(stage: Stage) -> list[Answer]:
        pack = await got(stage)
        plain, flagged = claim(cite(pack, AUDIT)), claim(cite(pack, AUDIT), flagged=True)
        return [
            await check(stage, [plain], surfaced=[GAP]),
            await check(stage, [flagged], surfaced=[GAP]),
            await check(stage, [plain], surfaced=[GAP, id_of(AUDIT)]),
        ]

    found = [verdict(answer) for answer in sample.run(act)]
    assert [one.claims[0].code for one in found] == ["suspect", "supported", "supported"]
    assert [one.unsurfaced_suspects for one in found] == [(id_of(AUDIT),), (), ()]


def test_another_subjects_pack_is_a_pack_that_never_was(sample: Prepared) -> None:
    """Mandated by issue 5, part 7: the same bytes, for what exists and what does not."""

    async def act(stage: Stage) -> list[Answer]:
        pack = await got(stage)
        other = subject("customer", stage.snapshot).model_copy(update={"subject_id": "another"})
        return [
            await check(stage, [claim(cite(pack, LAW))], other),
            await check(stage, [claim(cite(STRANGE, LAW))], other),
            await check(stage, [claim(cite(pack, "law:absent"))], other),
            await check(stage, [claim(cite(STRANGE, SECRET_RULES))], other),
            await check(stage, [claim(cite(pack, SECRET_RULES))]),
        ]

    found = [wire(answer) for answer in sample.run(act)]
    assert len(set(found)) == 1
    assert '"not_delivered"' in found[0]


def test_what_was_withdrawn_after_its_delivery_supports_nothing(own_sample: Prepared) -> None:
    """Chosen by us: permitted then is not permitted now; a younger revision is outdated."""

    async def act(stage: Stage) -> tuple[Answer, Answer]:
        pack = await got(stage)
        await stage.sql(
            "update brain.unit set publication_state = 'withdrawn' where canonical_address = %s",
            (LAW,),
        )
        await stage.sql(
            "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256)"
            " values (%s, 2, 'Refund policy', 'Paid within six days.', '')",
            (id_of("policy:refunds"),),
        )
        await stage.sql(
            "update brain.unit set current_revision = 2 where canonical_address = 'policy:refunds'"
        )
        claims = [claim(cite(pack, LAW)), claim(cite(pack, "policy:refunds"))]
        return (
            await check(stage, claims, surfaced=[GAP]),
            await delivery(stage, pack.pack_id),
        )

    answer, kept = own_sample.run(act)
    found = verdict(answer)
    assert [(one.code, one.citations) for one in found.claims] == [
        ("unsupported", ("not_permitted",)),
        ("outdated", ("outdated",)),
    ]
    assert {one.id for one in answer.governed} == {id_of("policy:refunds")}
    shown = {one.canonical_address: one.current for one in references(kept).units}
    assert LAW not in shown
    assert shown["policy:refunds"] is False
    assert not answer.discrepancies
    assert not kept.discrepancies


def test_what_the_guard_refused_supports_nothing_and_is_no_gap(sample: Prepared) -> None:
    """Excluded is hidden: the second question of a guard gets the answer without it."""

    async def act(stage: Stage) -> Answer:
        pack = await got(stage)
        claims = [claim(cite(pack, LAW)), claim(cite(pack, "policy:refunds"))]
        return await check(stage, claims, exclude=[id_of(LAW), GAP])

    answer = sample.run(act)
    found = verdict(answer)
    assert [one.citations for one in found.claims] == [("not_permitted",), ("valid",)]
    assert found.unsurfaced_gaps == ()
    assert {one.id for one in answer.governed} == {id_of("policy:refunds")}


def test_an_answer_rests_on_sixteen_packs_at_most() -> None:
    """Chosen by us: each pack costs a query."""
    claims = [claim(*[cite(STRANGE, LAW)] * 16) for _ in range(64)]
    CheckRequest.model_validate({"claims": tuple(claims)})
    many = [claim(cite(id_of(f"pack {number}"), LAW)) for number in range(17)]
    with pytest.raises(ValidationError):
        CheckRequest.model_validate({"claims": tuple(many)})
