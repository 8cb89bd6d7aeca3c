"""Collections of a test's own on the shared engine, and scopes to search them with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID, uuid4

import numpy as np
from qdrant_client import AsyncQdrantClient

from policies.decision import Grant, PolicyDigest, Scope
from retrieval.embed.quantise import pack
from retrieval.stores.points import Held, IndexLabel, IndexPoint
from retrieval.stores.qdrant import PAGE, QdrantIndex
from tests.services import VectorService

T = TypeVar("T")


@asynccontextmanager
async def collection(sidecar: VectorService, *, dims: int = 4) -> AsyncIterator[QdrantIndex]:
    """An empty collection with its payload indexes, deleted afterwards."""
    index = QdrantIndex(sidecar.url, sidecar.api_key, f"c_{uuid4().hex[:12]}", dims)
    try:
        await index.ensure()
        yield index
    finally:
        await index.close()
        async with raw_client(sidecar) as client:
            await client.delete_collection(index.collection)


async def everything(index: QdrantIndex) -> list[Held]:
    """Every point of the collection, in the order of ids. Raises IndexUnavailable."""
    found: list[Held] = []
    first = UUID(int=0)
    while True:
        page = await index.held_from(first)
        found += page
        if len(page) < PAGE:
            return found
        first = UUID(int=page[-1].unit_id.int + 1)


@asynccontextmanager
async def raw_client(sidecar: VectorService) -> AsyncIterator[AsyncQdrantClient]:
    """The reference client, for what the product never does."""
    client = AsyncQdrantClient(
        url=sidecar.url,
        headers={"api-key": sidecar.api_key},
        trust_env=False,
        check_compatibility=False,
    )
    try:
        yield client
    finally:
        await client.close()


def using(
    sidecar: VectorService, work: Callable[[QdrantIndex], Awaitable[T]], *, dims: int = 4
) -> T:
    """Runs ``work`` on a collection of its own."""

    async def run() -> T:
        async with collection(sidecar, dims=dims) as index:
            return await work(index)

    return asyncio.run(run())


def scope(
    *classes: int,
    consented: Sequence[int] = (),
    units: Sequence[UUID] = (),
    tenants: Sequence[str] = (),
    jurisdictions: Sequence[str] = (),
) -> Scope:
    """A scope over these classes, and over ``consented`` for ``units``."""
    plain = tuple(sorted(classes))
    return Scope(
        grant=Grant(PolicyDigest("0" * 64), ("p",), plain, tuple(sorted({*plain, *consented}))),
        tenants=tuple(tenants),
        jurisdictions=tuple(jurisdictions),
        consented_units=tuple(sorted(units)),
    )


def point(
    number: int,
    class_id: int = 1,
    *,
    vector: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
    terms: Sequence[int] = (),
    weights: Sequence[float] = (),
    revision: int = 1,
    tenant: str = "*",
    jurisdiction: str = "*",
) -> IndexPoint:
    label = IndexLabel(UUID(int=number), revision, class_id, tenant, jurisdiction)
    row = np.asarray(vector, dtype=np.float32)
    return IndexPoint(label, pack(row), terms, weights)
