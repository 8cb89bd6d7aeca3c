"""Hidden and absent are the same thing, on every operation and in every field."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from retrieval.contract import Answer
from tests.retrieval.service.sample import SAMPLE
from tests.retrieval.stage import Prepared, Stage, ids_in, packs, wire
from tests.retrieval.world import SECRET, Artifact, Edge, Link, Thread, Unit, World, id_of, subject

SECRETS = {id_of(one.address) for one in SAMPLE.named if one.label.visibility == "restricted"} | {
    id_of("thread:refunds expects Fraud post-mortem")
}
WORDS_OF_SECRETS = ("Fraud", "fraud", "investigators", "Easter", "above 900")
"""Never digits alone: ids and moments have those too."""
AUDIENCES = ("customer", "partner", "employee")


@pytest.mark.parametrize("who", AUDIENCES)
def test_nothing_hidden_stands_anywhere_in_an_answer(sample: Prepared, who: str) -> None:
    """Titles, ids, addresses, texts, gaps and links of hidden objects; the envelope included."""

    async def act(stage: Stage) -> list[Answer]:
        return [
            await stage.retrieve("refunds and returns", who),
            await stage.retrieve("fraud investigation rules", who, k=50),
            await stage.retrieve("holiday calendar", who, mode="raw", k=50),
            await stage.pack("thread:refunds", who),
        ]

    for answer in sample.run(act):
        assert answer.status == 200
        sent = answer.model_dump_json()
        assert not ids_in(sent, SECRETS)
        assert not [word for word in WORDS_OF_SECRETS if word in sent]
        assert not answer.discrepancies


@pytest.mark.parametrize("reference", ["thread:fraud", str(id_of("thread:fraud"))])
def test_a_hidden_reference_is_an_unknown_one(sample: Prepared, reference: str) -> None:
    """Chosen by us: the question goes on as if the reference were not there."""

    async def act(stage: Stage) -> tuple[list[Answer], list[Answer], list[Answer]]:
        return (
            [await stage.pack(reference), await stage.unit("secret:fraud-rules")],
            [await stage.pack("thread:absent"), await stage.unit("absent")],
            [
                await stage.retrieve("refunds and returns", thread=thread)
                for thread in (reference, "thread:absent", None)
            ],
        )

    hidden, absent, retrieved = sample.run(act)
    assert [*map(wire, hidden)] == [*map(wire, absent)]
    assert [(one.status, one.code) for one in hidden] == [(404, "not_found")] * 2
    assert len({*map(wire, retrieved)}) == 1


def test_hidden_objects_around_a_thread_change_no_byte(own_sample: Prepared) -> None:
    """Every kind of object, linked to what is seen; also under another tenant."""
    secret = SECRET.of("policy")
    more = World(
        threads=(Thread("thread:h", "Refunds and returns", "refunds money", label=SECRET),),
        units=(
            Unit("h:1", "Refund refund refund", "refund money return", secret, "law"),
            Unit("h:2", "Refund audit", "refund", SECRET.of("report"), "report"),
            Unit("h:3", "Shipping price", "shipping price", secret),
        ),
        links=(
            Link("thread:refunds", "h:1"),
            Link("thread:refunds", "h:2", "report", 0.1, "needs_human"),
            Link("thread:h", "faq:refund-time"),
        ),
        edges=(Edge("h:1", "design:refund-flow"), Edge("policy:refunds", "h:2")),
        artifacts=(
            Artifact("thread:refunds", "Hidden artifact", "code", SECRET.of("report")),
            Artifact("thread:h", "Hidden artifact", "code"),
        ),
    )

    async def ask(stage: Stage) -> list[str]:
        return [
            wire(answer)
            for who in AUDIENCES
            for answer in (
                await stage.retrieve("refunds and returns", who),
                await stage.retrieve("shipping price of money", who, k=50),
                await stage.retrieve("reimbursement", who, thread="thread:h"),
                await stage.pack("thread:refunds", who),
                await stage.pack("thread:h", who),
                await stage.unit("h:1", who),
            )
        ]

    async def act(stage: Stage) -> tuple[list[str], list[str]]:
        before = await ask(stage)
        await stage.put(more)
        return before, await ask(stage)

    before, after = own_sample.run(act)
    assert before == after


def test_a_gap_reads_the_same_whether_nothing_exists_or_it_is_hidden(
    own_sample: Prepared,
) -> None:
    """Mandated by architecture section 6: filling a gap out of sight closes it for nobody else."""
    filled = World(
        units=(Unit("h:load-test", "Load test", "It held.", SECRET.of("test"), "test"),),
        links=(Link("thread:refunds", "h:load-test"),),
    )

    async def act(stage: Stage) -> tuple[Answer, Answer]:
        before = await stage.pack("thread:refunds")
        await stage.put(filled)
        return before, await stage.pack("thread:refunds")

    before, after = own_sample.run(act)
    assert [gap.title for gap in packs(after)[0].known_gaps] == ["Load test of the refund flow"]
    assert wire(before) == wire(after)


def test_excluded_units_count_as_never_written(sample: Prepared) -> None:
    """Mandated by architecture section 6: what the guard refused leaves no trace, no gap filled."""
    addresses = ("report:refund-audit", "report:old-audit", "design:refund-flow")
    excluded = [str(id_of(address)) for address in addresses]

    async def act(stage: Stage) -> list[Answer]:
        ask = [
            stage.envelope(operation, "customer", exclude=excluded, **fields)
            for operation, fields in (
                ("pack", {"reference": "thread:refunds"}),
                ("retrieve", {"request": {"query": "late refund audit", "mode": "raw", "k": 50}}),
                ("unit", {"reference": "report:refund-audit"}),
            )
        ]
        return [await stage.retrieval.ask(one) for one in ask]

    thread, raw, unit = sample.run(act)
    assert unit.status == 404
    for answer in (thread, raw):
        assert answer.status == 200
        assert not [one for one in excluded if one in answer.model_dump_json()]
    (pack,) = packs(thread)
    assert "Refund audit" in [gap.title for gap in pack.known_gaps]
    assert pack.related_design_code_links == ()


def test_governed_names_every_id_of_the_response(sample: Prepared) -> None:
    """The guard looks up what this lists, and walks the response for what it forgot."""

    async def act(stage: Stage) -> list[Answer]:
        return [
            await stage.retrieve("refunds and returns", "employee"),
            await stage.retrieve("shipping price", "employee"),
            await stage.unit("faq:reset", "employee"),
        ]

    known = {str(id_of(one.address)) for one in SAMPLE.named} | {
        str(id_of(f"{one.thread} expects {one.title}")) for one in SAMPLE.artifacts
    }
    for answer in sample.run(act):
        sent = wire(answer)
        named = {str(one.id) for one in answer.governed}
        assert named
        assert {one for one in known if one in sent} == named


def test_the_applied_scope_is_the_subjects_own(sample: Prepared) -> None:
    """Mandated by seed 4.4: which filters ran, and nothing about what they hid."""

    async def act(stage: Stage) -> Answer:
        who = subject(
            "customer", stage.snapshot, profiles=("customer", "partner"), tenants=("acme",)
        )
        return await stage.retrieve("refunds and returns", who)

    (pack,) = packs(sample.run(act))
    scope = json.loads(pack.audience_scope_applied.model_dump_json())
    assert scope.pop("policy_digest") == sample.snapshot.digest
    assert scope == {
        "audience": "customer",
        "profiles": ["customer", "partner"],
        "task_scope": "",
        "purpose": "",
        "tenants": ["acme"],
        "jurisdictions": [],
    }


def test_an_index_that_lies_changes_nothing_but_the_envelope(own_sample: Prepared) -> None:
    """Fault injection of issue 2: a payload relabelled by hand is refused by the truth, before
    any score is stretched, and reported once."""
    secret = id_of("secret:fraud-rules")

    async def act(stage: Stage) -> tuple[Answer, Answer]:
        question = "refunds held for fraud checks"
        before = await stage.retrieve(question, mode="raw", k=50)
        held = await stage.index.held([secret, id_of("policy:refunds")])
        true, open_label = held[secret], held[id_of("policy:refunds")]
        assert true is not None
        assert open_label is not None
        await stage.index.relabel([replace(true, class_id=open_label.class_id)])
        return before, await stage.retrieve(question, mode="raw", k=50)

    before, after = own_sample.run(act)
    assert wire(before) == wire(after)
    assert before.discrepancies == ()
    (found,) = after.discrepancies
    assert (found.unit_id, found.pending) == (secret, False)
    assert found.layer in {"vector_index", "lexical_index"}


def test_a_thread_left_empty_by_exclusion_is_no_basis_for_an_answer(sample: Prepared) -> None:
    """As it would be had its only unit never existed."""

    async def act(stage: Stage) -> list[Answer]:
        fields = {"request": {"query": "password reset"}}
        return [
            await stage.retrieval.ask(
                stage.envelope("retrieve", "customer", exclude=excluded, **fields)
            )
            for excluded in ([], [str(id_of("faq:reset"))])
        ]

    (whole,), (without,) = map(packs, sample.run(act))
    assert whole.thread_id == id_of("thread:passwords")
    assert without.fallback_signal is not None
    assert without.fallback_signal.reason == "weak_thread"
    assert "faq:reset" not in without.source_revisions
