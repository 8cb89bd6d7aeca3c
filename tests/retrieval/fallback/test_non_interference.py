"""Hidden units change no byte of what the vector path returns (promise G2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.fallback.fusion import Fusion, min_max, reciprocal_rank
from tests.retrieval.fallback.world import World, bytes_of, world
from tests.retrieval.index.collections import collection, raw_client
from tests.retrieval.truth import Unit
from tests.services import Database, VectorService

RNG_SEED = 11
QUERIES = 110
TIED = "the same sentence in every one of them"


def sentence(rng: np.random.Generator, length: int) -> str:
    return " ".join(f"w{int(n) % 400}" for n in rng.zipf(1.3, length))


def uuid_of(rng: np.random.Generator) -> UUID:
    return UUID(bytes=rng.bytes(16))


def permitted_units(snapshot: Snapshot, rng: np.random.Generator) -> list[Unit]:
    """230 units that a customer may read; every fourth text stands twice, to the letter, and
    one stands 70 times, more often than a branch has places."""
    classes = snapshot.grant(["customer"]).plain
    made: list[Unit] = []
    for number in range(230):
        body = made[-1].body if number % 4 == 3 else sentence(rng, int(rng.integers(5, 60)))
        body = TIED if number >= 160 else body
        made.append(Unit(uuid_of(rng), int(rng.choice(classes)), "", body))
    return made


def hidden_units(
    snapshot: Snapshot, rng: np.random.Generator, visible: Sequence[Unit]
) -> list[Unit]:
    """300 units that a customer may not read, for every reason there is: by class, unclassed,
    by tenant; a third of them word for word what a visible one says."""
    grant = snapshot.grant(["customer"])
    foreign = [c for c in range(snapshot.vocabulary.class_count) if c not in grant.consented]
    made: list[Unit] = []
    for number in range(300):
        copied = number % 3 == 0
        body = visible[-number % len(visible)].body if copied else sentence(rng, 40)
        unit = Unit(uuid_of(rng), int(rng.choice(foreign)), "", body)
        if number % 5 == 1:
            unit = replace(unit, class_id=-1)
        elif number % 5 == 2:
            unit = replace(unit, class_id=visible[0].class_id, tenant="somebody-else")
        made.append(unit)
    return made


async def answers(
    company: World, queries: Sequence[str], fusion: Fusion, **options: Any
) -> list[bytes]:
    return [bytes_of(await company.search(query, fusion=fusion, **options)) for query in queries]


@pytest.mark.timeout(600)  # some 400 searches in four states of one corpus
@pytest.mark.parametrize("fusion", [min_max, reciprocal_rank])
def test_hidden_units_change_no_byte(
    database: Database, sidecar: VectorService, snapshot: Snapshot, fusion: Fusion
) -> None:
    """Added in place, altered, in an index built afresh, and removed: 110 queries each (30 for the
    option), texts that tie exactly included."""
    rng = np.random.default_rng(RNG_SEED)
    visible = permitted_units(snapshot, rng)
    hidden = hidden_units(snapshot, rng, visible)
    queries = [sentence(rng, int(rng.integers(1, 6))) for _ in range(QUERIES - 30)]
    queries += [TIED, "same", *(unit.body for unit in visible[3::4][:28])]
    if fusion is not min_max:
        queries = queries[-30:]

    async def run() -> None:
        async with world(database, sidecar, snapshot, HashingEmbedder(24)) as company:
            company.record.put(visible)
            await company.settle()
            alone = await answers(company, queries, fusion)
            assert sum(len(answer) > 10 for answer in alone) > len(queries) * 0.9

            company.record.put(hidden)
            await company.settle()
            assert await answers(company, queries, fusion) == alone

            async with collection(sidecar, dims=24) as fresh:
                await company.another_index(fresh)
                assert await answers(company, queries[::2], fusion, index=fresh) == alone[::2]

            company.record.revise(
                [replace(unit, body=sentence(rng, 30)) for unit in hidden[:100]], revision=2
            )
            company.record.bury(hidden[150:])
            await company.settle()
            assert await answers(company, queries, fusion) == alone

    asyncio.run(run())


def test_units_not_yet_taken_out_of_the_index_change_no_byte(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """A stale index: what the truth withdrew is refused before scores are stretched, and its
    places are refilled. Each refusal is reported, once, with the layer that proposed it."""
    rng = np.random.default_rng(RNG_SEED)
    visible = permitted_units(snapshot, rng)
    withdrawn, rest = visible[:70], visible[70:]
    queries = [sentence(rng, 3) for _ in range(20)] + [withdrawn[0].body, withdrawn[4].body]

    async def run() -> None:
        async with world(database, sidecar, snapshot, HashingEmbedder(24)) as company:
            company.record.put(visible)
            await company.settle()
            company.record.relabel([replace(unit, class_id=-1) for unit in withdrawn])
            stale = [await company.search(query) for query in queries]
            gone = {unit.id for unit in withdrawn}
            for found in stale:
                assert not gone & {hit.unit.id for hit in found.hits}
                assert len(found.hits) == 10
            reported = [one for found in stale for one in found.discrepancies]
            assert {one.unit_id for one in reported} <= gone
            assert {one.layer for one in reported} == {"vector_index", "lexical_index"}
            assert all(one.pending and one.class_id == -1 for one in reported)
            await company.settle()
            settled = [await company.search(query) for query in queries]
            assert [bytes_of(found) for found in settled] == [bytes_of(f) for f in stale]
            assert all(found.discrepancies == () for found in settled)
            assert {unit.id for unit in rest} >= {h.unit.id for f in settled for h in f.hits}

    asyncio.run(run())


def test_point_relabelled_by_hand_is_refused_and_reported(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """Fault injection: the index is told that hidden units are readable, with a scalar and with
    a list. Nothing leaves, and no open update explains it."""
    rng = np.random.default_rng(RNG_SEED)
    visible = permitted_units(snapshot, rng)
    hidden = hidden_units(snapshot, rng, visible)[:40]
    lie = visible[0].class_id
    queries = [unit.body for unit in hidden[:9:3]]

    async def run() -> None:
        async with world(database, sidecar, snapshot, HashingEmbedder(24)) as company:
            company.record.put([*visible, *hidden])
            await company.settle()
            before = await answers(company, queries, min_max)
            async with raw_client(sidecar) as client:
                for number, unit in enumerate(hidden):
                    payload = {"class_id": lie if number % 2 else [lie], "tenant": "*"}
                    await client.set_payload(company.index.collection, payload, [str(unit.id)])
            found = [await company.search(query) for query in queries]
            assert [bytes_of(one) for one in found] == before
            reported = {one.unit_id: one for each in found for one in each.discrepancies}
            assert reported
            assert reported.keys() <= {unit.id for unit in hidden}
            assert not any(one.pending for one in reported.values())

    asyncio.run(run())


def test_excluded_units_are_as_if_they_had_never_existed_in_the_list(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    """The guard's second ask: no short page, no report of what it named itself."""
    rng = np.random.default_rng(RNG_SEED)
    visible = permitted_units(snapshot, rng)

    async def run() -> None:
        async with world(database, sidecar, snapshot, HashingEmbedder(24)) as company:
            company.record.put(visible)
            await company.settle()
            query = sentence(rng, 3)
            first = await company.search(query)
            excluded = [hit.unit.id for hit in first.hits[:3]]
            second = await company.search(query, exclude=excluded)
            assert len(second.hits) == 10
            assert not set(excluded) & {hit.unit.id for hit in second.hits}
            assert second.discrepancies == ()

    asyncio.run(run())
