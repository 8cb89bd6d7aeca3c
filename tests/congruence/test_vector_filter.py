"""The pushed filter on the real engine admits exactly what the scope permits.

Mandated by promise G1; every class, profile, consent value and compartment case.
"""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from policies.decision import Scope
from policies.snapshot import Snapshot
from retrieval.stores.points import IndexLabel, IndexPoint
from retrieval.stores.qdrant import QdrantIndex
from tests.retrieval.index.collections import collection, raw_client, scope, using
from tests.services import VectorService

WHERE = ("*", "own", "other")
CASES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    (("own",), ("own",)),
    (("own", "second"), ()),
)
BATCH = 2_000


def labels_of_every_state(class_count: int) -> list[IndexLabel]:
    """One unit for every class (unclassed too) in every compartment case."""
    return [
        IndexLabel(UUID(int=number), 1, class_id, tenant, jurisdiction)
        for number, (class_id, tenant, jurisdiction) in enumerate(
            product(range(-1, class_count), WHERE, WHERE), 1
        )
    ]


def scopes_of(snapshot: Snapshot, labels: list[IndexLabel]) -> list[Scope]:
    consented = tuple(label.unit_id for label in labels[:: len(labels) // 400])
    every_profile = [snapshot.grant([profile]) for profile in snapshot.vocabulary.profiles]
    narrowed = snapshot.grant(["employee", "customer"])
    return [
        Scope(grant, tenants, jurisdictions, units)
        for grant in [*every_profile, narrowed]
        for (tenants, jurisdictions), units in [
            *((case, ()) for case in CASES),
            (CASES[1], consented),
        ]
    ]


def test_filter_admits_exactly_the_permitted_states_of_every_profile(
    sidecar: VectorService, snapshot: Snapshot
) -> None:
    """All classes x compartments x profiles x consent, by scrolling the real engine (G1)."""
    labels = labels_of_every_state(snapshot.vocabulary.class_count)

    async def run(index: QdrantIndex) -> None:
        for start in range(0, len(labels), BATCH):
            await index.upsert(
                [IndexPoint(label, b"\0\0", (), ()) for label in labels[start : start + BATCH]]
            )
        for asked in scopes_of(snapshot, labels):
            admitted = {held.unit_id for held in await index.admitted(asked)}
            permitted = {label.unit_id for label in labels if permits(asked, label)}
            assert admitted == permitted
            assert await index.count(asked) == len(permitted)

    using(sidecar, run, dims=1)


def permits(asked: Scope, label: IndexLabel) -> bool:
    return asked.permits(
        unit_id=label.unit_id,
        class_id=label.class_id,
        tenant=label.tenant,
        jurisdiction=label.jurisdiction,
    )


BAD: dict[str, list[Any]] = {
    "class_id": [None, [], {}, "", "7", "seven", True, 7.5, {"value": 7}, [8]],
    "tenant": [None, [], {}, "", " *", "* ", "OWN", "own ", 7, {"own": "*"}],
    "jurisdiction": [None, [], {}, "", " *", "OWN", 0, False, ["other"]],
    "unit_id": [None, [], "", "*", 7],
}
LISTS: list[dict[str, Any]] = [{"class_id": [7]}, {"class_id": [8, 7]}, {"tenant": ["own", "x"]}]


async def corrupt(sidecar: VectorService, index: QdrantIndex, payloads: list[Any]) -> None:
    """One point of class 7 for each payload, which is laid over a sound one."""
    sound = {"class_id": 7, "tenant": "own", "jurisdiction": "own", "revision": 1}
    async with raw_client(sidecar) as client:
        for number, payload in enumerate(payloads, 1):
            label = IndexLabel(UUID(int=number), 1, 7, "own", "own")
            await index.upsert([IndexPoint(label, b"\0\0", (1,), (1.0,))])
            whole = {**sound, "unit_id": str(label.unit_id), **payload}
            await client.overwrite_payload(
                index.collection,
                {key: value for key, value in whole.items() if value != "absent"},
                [str(label.unit_id)],
            )


@pytest.mark.parametrize("name", ["class_id", "tenant", "jurisdiction"])
def test_corrupt_payload_is_never_admitted(sidecar: VectorService, name: str) -> None:
    """Missing, null, empty, mis-cased, padded, list, object, other type: nothing is found."""
    payloads = [{name: value} for value in [*BAD[name], "absent"]]

    async def run() -> None:
        async with collection(sidecar, dims=1) as index:
            await corrupt(sidecar, index, payloads)
            asked = scope(7, tenants=["own"], jurisdictions=["own"])
            assert await index.admitted(asked) == []
            assert await index.sparse([1], [1.0], asked, limit=50) == []

    asyncio.run(run())


def test_corrupt_unit_id_never_opens_by_consent(sidecar: VectorService) -> None:
    """The consent branch of the filter reads the payload's unit id; a broken one is nobody's."""

    async def run() -> None:
        async with collection(sidecar, dims=1) as index:
            payloads = [{"unit_id": value} for value in [*BAD["unit_id"], "absent"]]
            await corrupt(sidecar, index, payloads)
            units = [UUID(int=number) for number in range(1, 20)]
            asked = scope(consented=[7], units=units, tenants=["own"], jurisdictions=["own"])
            assert await index.admitted(asked) == []

    asyncio.run(run())


def test_list_in_a_payload_is_never_taken_for_a_label(sidecar: VectorService) -> None:
    """The engine matches any element of a list (pins a gap of Qdrant): an audit sees no label
    there, a search gets no label at all, and the record of truth decides."""

    async def run() -> None:
        async with collection(sidecar, dims=1) as index:
            await corrupt(sidecar, index, LISTS)
            asked = scope(7, tenants=["own"], jurisdictions=["own"])
            assert [held.label for held in await index.admitted(asked)] == [None] * len(LISTS)
            found = await index.sparse([1], [1.0], asked, limit=50)
            assert {(one.unit_id.int, one.score) for one in found} == {(1, 1), (2, 1), (3, 1)}

    asyncio.run(run())
