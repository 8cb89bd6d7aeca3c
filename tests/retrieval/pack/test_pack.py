"""The laws of a context pack, over any members a thread may have."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.thresholds import DEFAULTS
from retrieval.context_pack import (
    FIFTEEN,
    Cut,
    FallbackSignal,
    Pack,
    ReadingStep,
    Signal,
    SuspectLink,
    UnitRef,
)
from retrieval.fallback.candidates import Hit
from retrieval.pack.annotate import suspicion
from retrieval.pack.assemble import Budget, Resolved, fallback_pack, thread_pack
from retrieval.pack.gather import Member, ThreadMaterial
from retrieval.pack.order import AUTHORITY_ORDER, RISK_ORDER, STAGE_ORDER, order_key
from retrieval.settings import PackSettings
from retrieval.stores.rows import UnitRow
from tests.retrieval.pack.materials import (
    SUBJECT,
    artifact,
    material,
    member,
    members,
    related,
    unit,
    units,
)

PACK_ID = UUID(int=1)
RESOLVED = Resolved(0.9, (Signal(source="keyword", score=0.9),))
CAPS = PackSettings(supporting_max=3, reports_max=2, suspects_max=50)


def _made(
    made: ThreadMaterial, *, k: int = 50, settings: PackSettings = CAPS, bytes_max: int = 1_000_000
) -> Pack:
    return thread_pack(
        made,
        RESOLVED,
        subject=SUBJECT,
        k=k,
        settings=settings,
        thresholds=DEFAULTS,
        budget=Budget(bytes_max),
        pack_id=PACK_ID,
    )


def made_of(*listed: Member, k: int = 50, bytes_max: int = 1_000_000) -> Pack:
    ordered = sorted(listed, key=lambda one: order_key(one.unit))
    return _made(material(*ordered), k=k, bytes_max=bytes_max)


def _addresses(units: Sequence[UnitRef | ReadingStep | SuspectLink]) -> list[str]:
    return [one.canonical_address for one in units]


@given(listed=st.lists(units, max_size=12, unique_by=lambda one: one.id), rng=st.randoms())
def test_core_order_is_stage_authority_recency_address(
    listed: list[UnitRow], rng: random.Random
) -> None:
    """Mandated by seed 4.5; a total order, whatever order the units came in."""
    ordered = sorted(listed, key=order_key)
    shuffled = listed.copy()
    rng.shuffle(shuffled)
    assert sorted(shuffled, key=order_key) == ordered
    for left, right in pairwise(ordered):
        stages = [STAGE_ORDER[one.lifecycle_stage] for one in (left, right)]
        standings = [AUTHORITY_ORDER[one.facets.authority] for one in (left, right)]
        assert stages == sorted(stages)
        if stages[0] == stages[1]:
            assert standings == sorted(standings)
            if standings[0] == standings[1]:
                assert left.active_at >= right.active_at
                if left.active_at == right.active_at:
                    assert left.canonical_address < right.canonical_address


@given(listed=members)
def test_every_pack_has_the_fifteen_keys_and_cites_exactly_its_units(listed: list[Member]) -> None:
    """Mandated by seed 4.4 and 4.13: (address, revision) of delivered units, nothing else."""
    pack = made_of(*listed)
    assert set(FIFTEEN) <= pack.model_dump().keys()
    delivered = {
        one.canonical_address: one.revision
        for shown in (pack.canonical_units, pack.supporting_units, pack.latest_reports)
        for one in shown
    }
    assert pack.source_revisions == delivered
    assert list(pack.source_revisions) == sorted(delivered)
    steps = pack.recommended_reading_order
    assert sorted(_addresses(steps)) == sorted(delivered)
    assert [step.position for step in steps] == list(range(1, len(delivered) + 1))


@given(listed=members)
def test_roles_decide_where_a_unit_stands(listed: list[Member]) -> None:
    """A link that was declared wrong makes no unit part of the thread."""
    pack = made_of(*listed)
    sound = [one for one in listed if one.link.status != "wrong_link"]
    core = {m.unit.canonical_address for m in sound if m.link.role == "canonical"}
    assert set(_addresses(pack.canonical_units)) == core
    second = {m.unit.canonical_address for m in sound if m.link.role == "supporting"}
    assert set(_addresses(pack.supporting_units)) <= second
    assert len(pack.supporting_units) == min(3, len(second))
    ages = [
        next(m.unit.active_at for m in listed if m.unit.id == one.unit_id)
        for one in pack.latest_reports
    ]
    assert ages == sorted(ages, reverse=True)
    assert len(ages) <= 2


@given(listed=members)
def test_every_doubtful_link_is_surfaced(listed: list[Member]) -> None:
    """Mandated by seed 4.6; an unknown status is doubtful, too."""
    pack = made_of(*listed)
    doubtful = {
        m.unit.canonical_address
        for m in listed
        if m.link.status != "active" or m.link.confidence < 0.6
    }
    assert _addresses(pack.suspect_links) == sorted(doubtful)


@pytest.mark.parametrize(
    ("status", "confidence", "reason"),
    [
        ("active", 0.6, None),
        ("active", 0.59, "low_confidence"),
        ("needs_human", 1.0, "needs_human"),
        ("wrong_link", 0.1, "wrong_link"),
        ("unheard_of", 1.0, "needs_human"),
    ],
)
def test_the_gravest_doubt_is_named(status: str, confidence: float, reason: str | None) -> None:
    """One reason a link."""
    link = member(unit(1), status=status, confidence=confidence).link
    assert suspicion(link, DEFAULTS) == reason


@given(listed=members)
def test_aggregates_are_over_delivered_units(listed: list[Member]) -> None:
    """The strongest authority and the strictest risk that the reader holds in hands."""
    pack = made_of(*listed)
    risk = pack.authority_or_risk_level
    delivered = [*pack.canonical_units, *pack.supporting_units, *pack.latest_reports]
    if not delivered:
        assert (risk.authority, risk.risk_class) == (None, None)
        return
    assert risk.authority == min((u.authority for u in delivered), key=AUTHORITY_ORDER.__getitem__)
    assert risk.risk_class == max((u.risk_class for u in delivered), key=RISK_ORDER.__getitem__)


@pytest.mark.parametrize(
    ("members_of", "gaps"),
    [
        ([], ["artifact 1", "artifact 3", "artifact 2"]),
        ([member(unit(1, stage="test", kind="test"))], ["artifact 1", "artifact 2"]),
        (
            [member(unit(1, stage="test", kind="report"))],
            ["artifact 1", "artifact 3", "artifact 2"],
        ),
        (
            [member(unit(1, stage="test", kind="test"), status="wrong_link")],
            ["artifact 1", "artifact 3", "artifact 2"],
        ),
        ([member(unit(1, stage="incident", kind="sop"))], ["artifact 1", "artifact 3"]),
        ([member(unit(1, stage="test", kind="test"), role="supporting", confidence=0.1)],
         ["artifact 1", "artifact 2"]),
    ],
)  # fmt: skip
def test_a_gap_is_an_artifact_that_no_member_fills(
    members_of: list[Member], gaps: list[str]
) -> None:
    """By stage and kind; kind `other` asks for the stage alone; a wrong link fills nothing."""
    expected = (
        artifact(2, stage="incident", kind="other"),
        artifact(3, stage="test", kind="test"),
        artifact(1, stage="design", kind="design"),
    )
    made = material(*members_of, artifacts=expected)
    pack = _made(made)
    assert [gap.title for gap in pack.known_gaps] == gaps


def test_links_lead_to_design_and_code_from_what_was_delivered() -> None:
    """Mandated by seed 4.4; an edge between two answers is no such link."""
    design, code, faq, other = (
        unit(1, stage="design", kind="design"),
        unit(2, stage="code", kind="code"),
        unit(3),
        unit(4),
    )
    edges = (related(code, design), related(faq, other), related(design, faq, "answers"))
    made = material(member(faq), member(design), edges=edges)
    pack = _made(made)
    links = [(x.relation, x.from_address, x.to_address) for x in pack.related_design_code_links]
    assert links == [("answers", "u:001", "u:003"), ("implements", "u:002", "u:001")]


@pytest.mark.parametrize(("days", "told"), [(0, True), (89, True), (90, False), (400, False)])
def test_a_wrong_link_is_told_while_it_is_news(days: int, told: bool) -> None:
    """Mandated by seed 4.6, recent wrong_link; the policy says how recent."""
    pack = made_of(member(unit(1), status="wrong_link", judged_days=days))
    assert [one.reason for one in pack.suspect_links] == (["wrong_link"] if told else [])
    assert pack.canonical_units == ()


def test_texts_are_cut_by_whole_units_from_the_end() -> None:
    """A bound that is told: what stays is whole, and first in the order."""
    listed = [member(unit(number, body="é" * 200)) for number in range(4)]
    pack = made_of(*listed, member(unit(9), role="supporting"), bytes_max=1024)
    assert _addresses(pack.canonical_units) == ["u:000", "u:001"]
    assert pack.supporting_units == ()
    assert all(one.text == "é" * 200 for one in pack.canonical_units)
    assert pack.cut == Cut(reason="bytes", omitted_units=3, max_bytes=1024)


@given(listed=members, k=st.integers(1, 6), bytes_max=st.integers(0, 60))
def test_a_cut_is_said_exactly_when_something_readable_is_left_out(
    listed: list[Member], k: int, bytes_max: int
) -> None:
    """And its number is that of the sound units that stand in no list."""
    pack = made_of(*listed, k=k, bytes_max=bytes_max)
    shown = [*pack.canonical_units, *pack.supporting_units, *pack.latest_reports]
    assert sum(len(one.text.encode()) for one in shown) <= bytes_max
    sound = {one.unit.id for one in listed if one.link.status != "wrong_link"}
    omitted = len(sound - {one.unit_id for one in shown})
    if omitted:
        assert pack.cut is not None
        assert (pack.cut.omitted_units, pack.cut.max_bytes) == (omitted, bytes_max)
        assert pack.cut.reason in ("bytes", "count")
    else:
        assert pack.cut is None


def test_several_packs_of_one_answer_share_its_budget() -> None:
    """The best thread's units first; a consumer with little room asks for little in all."""
    budget = Budget(1_000)
    first, second = (
        thread_pack(
            material(*(member(unit(number, body="x" * 400)) for number in numbers)),
            RESOLVED,
            subject=SUBJECT,
            k=9,
            settings=CAPS,
            thresholds=DEFAULTS,
            budget=budget,
            pack_id=PACK_ID,
        )
        for numbers in ((1, 2), (3, 4))
    )
    assert (len(first.canonical_units), first.cut) == (2, None)
    assert second.canonical_units == ()
    assert second.cut == Cut(reason="bytes", omitted_units=2, max_bytes=1_000)


@given(st.lists(units, max_size=8, unique_by=lambda one: one.id))
def test_a_fallback_pack_stands_in_rank_order_without_a_thread(ranked: list[UnitRow]) -> None:
    """Mandated by seed 4.7: thread fields are null and the signal says why."""
    hits = [Hit(one, 1.0 - place / 10) for place, one in enumerate(ranked)]
    pack = fallback_pack(
        hits,
        (),
        FallbackSignal(reason="missing_thread"),
        subject=SUBJECT,
        settings=CAPS,
        budget=Budget(1_000_000),
        pack_id=PACK_ID,
    )
    assert [u.unit_id for u in pack.canonical_units] == [one.id for one in ranked]
    assert [u.score for u in pack.canonical_units] == [hit.score for hit in hits]
    heads = (pack.thread_id, pack.thread_title, pack.purpose, pack.last_health_status)
    assert heads == (None,) * 4
    assert _addresses(pack.recommended_reading_order) == _addresses(pack.canonical_units)
    assert set(_addresses(pack.latest_reports)) <= set(_addresses(pack.canonical_units))
