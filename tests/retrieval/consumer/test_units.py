"""The listing of units: every permitted one once, and nothing that tells of another."""

from __future__ import annotations

import pytest

from retrieval.contract import Answer, ListedUnit
from tests.retrieval.consumer.asking import Who, listed, units
from tests.retrieval.service.sample import SAMPLE
from tests.retrieval.stage import Prepared, Stage
from tests.retrieval.world import id_of

READABLE = {
    "customer": {"public"},
    "partner": {"public", "partner"},
}


async def everything(stage: Stage, who: Who, **page: object) -> list[ListedUnit]:
    """All pages, one after another."""
    found: list[ListedUnit] = []
    after: str | None = None
    while True:
        answer = listed(await units(stage, who, **page, after=after))
        found.extend(answer.units)
        after = answer.next_after
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 3, 200])
@pytest.mark.parametrize("who", sorted(READABLE))
def test_the_pages_hold_every_permitted_unit_once_in_order(
    sample: Prepared, who: str, limit: int
) -> None:
    """Whatever the size of a page; the labels of the sample say what is permitted."""
    wanted = sorted(
        (u.address.encode() for u in SAMPLE.units if u.label.visibility in READABLE[who]
         and u.label.readiness == u.label.publication_state == "published"
         and u.label.tenant == "*"),
    )  # fmt: skip

    async def act(stage: Stage) -> list[ListedUnit]:
        return await everything(stage, who, limit=limit)

    found = sample.run(act)
    assert [one.canonical_address.encode() for one in found] == wanted
    assert all(one.text is None for one in found)


def test_filters_narrow_and_an_unknown_word_finds_nothing(sample: Prepared) -> None:
    async def act(stage: Stage) -> list[list[ListedUnit]]:
        return [
            await everything(stage, "customer", kind="law"),
            await everything(stage, "customer", lifecycle_stage="report", limit=1),
            await everything(stage, "customer", kind="law", lifecycle_stage="report"),
            await everything(stage, "customer", kind="nothing"),
            await everything(stage, "customer", kind="sop"),
        ]

    found = [{one.canonical_address for one in page} for page in sample.run(act)]
    assert found == [
        {"law:refund-act"},
        {"report:refund-audit", "report:old-audit"},
        set(),
        set(),
        set(),
    ]


def test_a_label_narrows_only_when_it_may_be_seen_itself(own_sample: Prepared) -> None:
    """A hidden label is an absent one, although the units that bear it are readable."""

    async def act(stage: Stage) -> list[list[ListedUnit]]:
        for term, visibility in (("seen", "public"), ("dark", "restricted")):
            label = id_of(f"label {term}")
            await stage.sql(
                "insert into brain.label (id, term, visibility, readiness, publication_state,"
                " risk_class, authority, kind, tenant, jurisdiction) values"
                " (%s, %s, %s, 'published', 'published', 'low', 'enacted', 'faq', '*', '*')",
                (label, term, visibility),
            )
            await stage.sql(
                "insert into brain.unit_label (label_id, unit_id) values (%s, %s), (%s, %s)",
                (label, id_of("law:refund-act"), label, id_of("secret:fraud-rules")),
            )
        return [
            await everything(stage, "customer", label=term) for term in ("seen", "dark", "absent")
        ]

    found = [[one.canonical_address for one in page] for page in own_sample.run(act)]
    assert found == [["law:refund-act"], [], []]


def test_texts_are_whole_and_come_when_they_are_asked_for(sample: Prepared) -> None:
    async def act(stage: Stage) -> list[ListedUnit]:
        return await everything(stage, "customer", kind="law", text=True)

    (law,) = sample.run(act)
    assert law.text == "A buyer may return goods within 14 days."


def test_a_unit_that_the_guard_refused_leaves_a_full_page(sample: Prepared) -> None:
    """Excluded is hidden: the page goes on with the next one."""

    async def act(stage: Stage) -> tuple[Answer, Answer]:
        whole = await units(stage, limit=4)
        gone = listed(whole).units[0].unit_id
        asked = stage.envelope("units", "customer", units={"limit": 3}, exclude=(gone,))
        return whole, await stage.retrieval.ask(asked)

    whole, less = sample.run(act)
    assert listed(less).units == listed(whole).units[1:]
    assert {one.id for one in less.governed} == {one.unit_id for one in listed(less).units}


@pytest.mark.parametrize("after", ["\x00", "law:refund-act", "~~~", "'; drop table brain.unit"])
def test_any_address_can_be_gone_on_behind(sample: Prepared, after: str) -> None:
    async def act(stage: Stage) -> Answer:
        return await units(stage, after=after, limit=200)

    found = [one.canonical_address for one in listed(sample.run(act)).units]
    assert all(one > after for one in found)
    assert bool(found) == (after in {"law:refund-act", "'; drop table brain.unit"})
