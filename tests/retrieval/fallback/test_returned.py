"""Nothing that is returned is forbidden: generated corpora and callers, on the real engines.

What may be returned is asked of Casbin itself, row by row of the policy, and of nothing that the
search uses. The index is stale on purpose: labels change all the time and are never carried over.
The deep profile looks at 1,000,000 returned units.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pytest

from policies.kinds import SHAPES, Kind
from policies.oracle import Oracle
from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from tests.retrieval.fallback.world import World, world
from tests.retrieval.truth import FACETS, Unit
from tests.services import Database, VectorService

TENANTS: Final = ("*", "acme", "globex")
WORDS: Final = 300
K: Final = 50
"""The most that a caller may ask for over the wire."""
K_DEEP: Final = 500
CALLERS: Final = 8
"""Asking at once, each as somebody else."""
CHANGED: Final = 1 / 15
"""The share of units whose label is another one after every round, in the truth only."""


class Asked(NamedTuple):
    """One request of one caller."""

    query: str
    profile: str
    tenants: Sequence[str]
    k: int


class Judge:
    """Casbin's verdict on one class for one profile, without consent."""

    def __init__(self, snapshot: Snapshot) -> None:
        oracle = Oracle(SHAPES[Kind.UNITS], snapshot.table.units.rows)

        @cache
        def allows(profile: str, class_id: int) -> bool:
            words = snapshot.vocabulary.facets_of(class_id)
            return oracle.allows(profile, *(words[facet] for facet in FACETS), "none")

        self._allows = allows

    def forbidden(self, unit: Unit, profile: str, tenants: Sequence[str]) -> bool:
        return (
            unit.class_id < 0
            or unit.tenant not in ("*", *tenants)
            or not self._allows(profile, unit.class_id)
        )


def text(rng: np.random.Generator, words: int) -> str:
    return " ".join(f"w{int(one) % WORDS}" for one in rng.zipf(1.3, words))


def labels(snapshot: Snapshot, rng: np.random.Generator) -> list[int]:
    """Classes to draw from: half are such that somebody reads them, else most would be nobody's."""
    profiles = list(snapshot.vocabulary.profiles)
    read = sorted({c for profile in profiles for c in snapshot.grant([profile]).plain})
    drawn = [*rng.choice(read, 60), *rng.integers(0, snapshot.vocabulary.class_count, 60)]
    return [*map(int, drawn), -1]


def corpus(classes: Sequence[int], rng: np.random.Generator, size: int) -> dict[UUID, Unit]:
    made = [
        Unit(
            UUID(bytes=rng.bytes(16)),
            int(rng.choice(classes)),
            "",
            text(rng, int(rng.integers(4, 40))),
            tenant=str(rng.choice(TENANTS)),
        )
        for _ in range(size)
    ]
    return {unit.id: unit for unit in made}


def question(profiles: Sequence[str], rng: np.random.Generator, limits: Sequence[int]) -> Asked:
    """Anything, asked by anybody."""
    return Asked(
        query=text(rng, int(rng.integers(1, 6))),
        profile=str(rng.choice(profiles)),
        tenants=[one for one in TENANTS[1:] if rng.random() < 0.3],
        k=int(rng.choice(limits)),
    )


async def answered(company: World, judge: Judge, asked: Asked, units: dict[UUID, Unit]) -> int:
    """How many units came back, each of which its caller may see."""
    query, profile, tenants, k = asked
    found = await company.search(query, profile=profile, tenants=tenants, k=k)
    leaked = [h for h in found.hits if judge.forbidden(units[h.unit.id], profile, tenants)]
    assert leaked == []
    return len(found.hits)


async def look(
    company: World,
    judge: Judge,
    rng: np.random.Generator,
    classes: Sequence[int],
    *,
    size: int,
    limits: Sequence[int],
    wanted: int,
) -> int:
    """Asks as random callers until so many units were returned; how many that were."""
    units = corpus(classes, rng, size)
    await asyncio.to_thread(company.record.put, list(units.values()))
    await company.settle()
    profiles = list(company.snapshot.vocabulary.profiles)
    returned = 0
    while returned < wanted:
        for _ in range(6):
            crowd = [question(profiles, rng, limits) for _ in range(CALLERS)]
            returned += sum(
                await asyncio.gather(*(answered(company, judge, one, units) for one in crowd))
            )
        changed = rng.choice(
            np.array(list(units), dtype=object), int(size * CHANGED), replace=False
        )
        moved = [
            replace(units[unit], class_id=int(rng.choice(classes)), tenant=str(rng.choice(TENANTS)))
            for unit in changed
        ]
        await asyncio.to_thread(company.record.relabel, moved)
        units.update({unit.id: unit for unit in moved})
    await asyncio.to_thread(company.record.bury, list(units.values()))
    await company.settle()
    return returned


@pytest.mark.parametrize(
    ("corpora", "size", "limits", "wanted"),
    [
        (1, 600, (K,), 1_500),
        pytest.param(
            10, 2_000, (K, K_DEEP), 100_000, marks=[pytest.mark.slow, pytest.mark.timeout(7_200)]
        ),
    ],
)
def test_no_returned_unit_is_forbidden(
    database: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
    corpora: int,
    size: int,
    limits: Sequence[int],
    wanted: int,
) -> None:
    """``corpora`` worlds one after another, ``wanted`` units of each."""
    judge = Judge(snapshot)

    async def run() -> int:
        returned = 0
        async with world(database, sidecar, snapshot, HashingEmbedder(24)) as company:
            for seed in range(corpora):
                rng = np.random.default_rng(100 + seed)
                classes = labels(snapshot, rng)
                returned += await look(
                    company, judge, rng, classes, size=size, limits=limits, wanted=wanted
                )
        return returned

    assert asyncio.run(run()) >= corpora * wanted
