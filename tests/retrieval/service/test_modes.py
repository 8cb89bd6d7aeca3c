"""Which mode a question ends in, and that a pack is complete in each of them."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval.context_pack import FIFTEEN
from retrieval.contract import Answer
from tests.retrieval.stage import Prepared, Stage, packs
from tests.retrieval.world import id_of

HEADS = ("thread_id", "thread_title", "purpose", "last_health_status")


def _retrieve(sample: Prepared, query: str, who: str = "customer", **request: Any) -> Answer:
    async def act(stage: Stage) -> Answer:
        return await stage.retrieve(query, who, **request)

    return sample.run(act)


def _mode(answer: Answer) -> str:
    assert answer.response is not None, answer
    return answer.response.mode


@pytest.mark.parametrize(
    ("query", "request_fields", "mode"),
    [
        ("How do refunds and returns work?", {}, "single"),
        ("what is the weather in Paris tomorrow", {}, "fallback"),
        ("How do refunds and returns work?", {"mode": "raw"}, "fallback"),
        ("anything at all", {"thread": "thread:passwords"}, "single"),
        ("compare thread:passwords with thread:accounts", {}, "multi"),
        (f"what about {id_of('thread:passwords')}?", {}, "single"),
    ],
)
def test_every_mode_has_all_fifteen_keys(
    sample: Prepared, query: str, request_fields: dict[str, str], mode: str
) -> None:
    """Mandated by seed 4.4; in fallback the thread's own fields are null."""
    answer = _retrieve(sample, query, **request_fields)
    assert _mode(answer) == mode
    for pack in packs(answer):
        sent = pack.model_dump(mode="json")
        assert set(FIFTEEN) <= sent.keys()
        assert pack.canonical_units
        assert all((sent[head] is None) == (mode == "fallback") for head in HEADS)
        assert (pack.fallback_signal is not None) == (mode == "fallback")


@pytest.mark.parametrize(
    ("query", "request_fields", "reason"),
    [
        ("what is the weather in Paris tomorrow", {}, "missing_thread"),
        ("holiday calendar", {}, "weak_thread"),
        ("How do refunds and returns work?", {"mode": "raw"}, "raw_requested"),
    ],
)
def test_fallback_says_why(
    sample: Prepared, query: str, request_fields: dict[str, str], reason: str
) -> None:
    """Mandated by seed 4.7. A thread that holds nothing for this caller is a weak one."""
    (pack,) = packs(_retrieve(sample, query, **request_fields))
    assert pack.fallback_signal is not None
    assert pack.fallback_signal.reason == reason


def test_a_score_and_its_breakdown_stand_in_a_resolved_pack(sample: Prepared) -> None:
    """Mandated by seed 4.2: (thread_id, score, signal_breakdown)."""
    (pack,) = packs(_retrieve(sample, "refunds and returns"))
    assert pack.thread_id == id_of("thread:refunds")
    assert pack.score is not None
    assert 0.5 <= pack.score <= 1
    assert [s.source for s in pack.signal_breakdown] == ["keyword", "centroid"]
    assert all(0 < s.score <= 1 for s in pack.signal_breakdown)


def test_an_explicit_reference_is_certain(sample: Prepared) -> None:
    """Mandated by seed 4.2: a named thread needs no threshold."""
    (pack,) = packs(_retrieve(sample, "anything", thread="thread:accounts"))
    assert (pack.score, pack.signal_breakdown[0].source) == (1.0, "explicit")


def test_an_alias_resolves(sample: Prepared) -> None:
    """Mandated by seed 4.2: title, alias, description."""
    (pack,) = packs(_retrieve(sample, "reimbursement"))
    assert pack.thread_id == id_of("thread:refunds")


def test_fallback_units_carry_scores_in_their_order(sample: Prepared) -> None:
    """Chosen by us: a caller of the fallback sees how sure it is."""
    (pack,) = packs(_retrieve(sample, "shipping price"))
    scores = [unit.score for unit in pack.canonical_units]
    assert pack.canonical_units[0].canonical_address == "faq:shipping-cost"
    assert all(score is not None and 0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, key=lambda score: -(score or 0.0))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_bounds_the_core_units(sample: Prepared, k: int) -> None:
    """In thread mode the pack's order decides which stay, in fallback the rank."""
    (thread,) = packs(_retrieve(sample, "refunds and returns", k=k))
    (fallback,) = packs(_retrieve(sample, "shipping price", k=k))
    assert len(thread.canonical_units) == len(fallback.canonical_units) == k
    assert thread.canonical_units[0].canonical_address == "policy:refunds"


def test_nothing_permitted_is_mode_none(own_sample: Prepared) -> None:
    """And no pack: there is nothing to say, not even what is missing."""

    async def act(stage: Stage) -> Answer:
        await stage.sql("update brain.unit set visibility = 'restricted'")
        return await stage.retrieve("what is the weather in Paris tomorrow")

    answer = own_sample.run(act)
    assert answer.response is not None
    assert (answer.status, answer.response.mode, answer.response.packs) == (200, "none", ())


def test_weak_threads_are_no_basis_for_an_answer(own_sample: Prepared) -> None:
    """Mandated by seed 4.7, second trigger; a named thread is served with its verdict."""

    async def act(stage: Stage) -> tuple[Answer, Answer]:
        await stage.sql("""update brain.thread_partial set health = '{"status": "stale"}'""")
        return (
            await stage.retrieve("refunds and returns"),
            await stage.retrieve("refunds and returns", thread="thread:refunds"),
        )

    by_keyword, by_name = map(packs, own_sample.run(act))
    assert by_keyword[0].fallback_signal is not None
    assert by_keyword[0].fallback_signal.reason == "weak_thread"
    assert by_name[0].last_health_status is not None
    assert by_name[0].last_health_status.status == "stale"
