"""The sidecar under the reference client: every operation that the product's store uses.

Source: the shapes that ``qdrant-client`` 1.20 sends and expects (design, libraries).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from tests.services import VectorService

IDS = [str(UUID(int=number)) for number in range(1, 6)]
Using = Callable[[AsyncQdrantClient, str], Awaitable[Any]]


def using(sidecar: VectorService, work: Using, *, filled: bool = True) -> Any:
    """Run ``work`` with a client and a collection of its own (five points unless told not)."""

    async def run() -> Any:
        client = AsyncQdrantClient(
            url=sidecar.url, headers={"api-key": sidecar.api_key}, trust_env=False
        )
        name = f"c_{uuid4().hex[:12]}"
        try:
            await create(client, name)
            if filled:
                await client.upsert(name, points())
            return await work(client, name)
        finally:
            await client.delete_collection(name)
            await client.close()

    return asyncio.run(run())


async def create(client: AsyncQdrantClient, name: str) -> None:
    await client.create_collection(
        name,
        vectors_config={"dense": models.VectorParams(size=3, distance=models.Distance.DOT)},
        sparse_vectors_config={"lexical": models.SparseVectorParams()},
    )
    await client.create_payload_index(name, "class_id", models.PayloadSchemaType.INTEGER)


def points() -> list[models.PointStruct]:
    return [
        models.PointStruct(
            id=unit,
            vector={
                "dense": [float(number), 1.0, 0.0],
                "lexical": models.SparseVector(indices=[number, 2**31 - 1], values=[2.0, 1.0]),
            },
            payload={"class_id": number, "tenant": "*", "revision": 1},
        )
        for number, unit in enumerate(IDS)
    ]


def in_class(*ids: int) -> models.FieldCondition:
    return models.FieldCondition(key="class_id", match=models.MatchAny(any=list(ids)))


def of_class(*ids: int) -> models.Filter:
    return models.Filter(must=[in_class(*ids)])


def test_a_dense_search_returns_permitted_points_by_exact_dot_product(
    sidecar: VectorService,
) -> None:
    """The reference answer is five dot products, computed by hand."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return await client.query_points(
            name,
            query=[1.0, 0.0, 0.0],
            using="dense",
            query_filter=of_class(1, 2, 4),
            search_params=models.SearchParams(exact=True),
            with_payload=["class_id"],
            limit=2,
        )

    found = using(sidecar, work).points
    assert [(point.id, point.score, point.payload) for point in found] == [
        (IDS[4], 4.0, {"class_id": 4}),
        (IDS[2], 2.0, {"class_id": 2}),
    ]


def test_a_sparse_search_sums_the_products_of_shared_terms(sidecar: VectorService) -> None:
    """No inverse document frequency of the engine's: the score is the plain sum."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return await client.query_points(
            name,
            query=models.SparseVector(indices=[3, 2**31 - 1], values=[0.5, 0.25]),
            using="lexical",
            query_filter=of_class(3, 4),
            limit=5,
        )

    found = using(sidecar, work).points
    assert [(point.id, point.score) for point in found] == [(IDS[3], 1.25), (IDS[4], 0.25)]


def test_several_searches_in_one_request_are_answered_in_order(sidecar: VectorService) -> None:
    """One list per search."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return await client.query_batch_points(
            name,
            [
                models.QueryRequest(query=[1.0, 0, 0], using="dense", filter=of_class(one), limit=3)
                for one in (2, 0)
            ],
        )

    found = using(sidecar, work)
    assert [[point.id for point in answer.points] for answer in found] == [[IDS[2]], [IDS[0]]]


def test_nested_filters_join_classes_and_ids_as_a_scope_does(sidecar: VectorService) -> None:
    """(class plain, or class consented and the unit consented) and compartment."""
    consented = models.Filter(must=[in_class(3, 4), models.HasIdCondition(has_id=[IDS[4]])])
    scope = models.Filter(
        must=[
            models.Filter(should=[in_class(0), consented]),
            models.FieldCondition(key="tenant", match=models.MatchAny(any=["*", "acme"])),
        ]
    )

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return (await client.count(name, scope)).count, await client.scroll(name, scope)

    count, (found, after) = using(sidecar, work)
    assert count == 2
    assert [point.id for point in found] == [IDS[0], IDS[4]]
    assert after is None


def test_a_scroll_pages_through_everything_once(sidecar: VectorService) -> None:
    """The offset of the next page is the id that it begins with."""

    async def work(client: AsyncQdrantClient, name: str) -> list[Any]:
        seen, offset = [], None
        while True:
            page, offset = await client.scroll(name, limit=2, offset=offset)
            seen += [point.id for point in page]
            if offset is None:
                return seen

    assert using(sidecar, work) == IDS


def test_a_point_is_found_by_id_with_its_payload_and_no_vector(sidecar: VectorService) -> None:
    """Unknown ids are left out."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return await client.retrieve(name, [IDS[3], str(uuid4())])

    (found,) = using(sidecar, work)
    assert found.payload == {"class_id": 3, "tenant": "*", "revision": 1}
    assert found.vector is None


def test_points_are_deleted_by_id_and_by_filter(sidecar: VectorService) -> None:
    """An id that is not there is no error."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        await client.delete(name, [IDS[0], str(uuid4())])
        await client.delete(name, models.FilterSelector(filter=of_class(1, 2)))
        return (await client.scroll(name))[0]

    assert [point.id for point in using(sidecar, work)] == IDS[3:]


def test_a_payload_is_merged_by_id_or_filter_and_replaced_on_demand(
    sidecar: VectorService,
) -> None:
    """A label change rewrites payload fields only."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        await client.set_payload(name, {"class_id": 9}, [IDS[0]])
        await client.set_payload(name, {"tenant": "acme"}, of_class(9))
        await client.overwrite_payload(name, {"class_id": 7}, [IDS[1]])
        return await client.retrieve(name, IDS[:2])

    found = {point.id: point.payload for point in using(sidecar, work)}
    assert found[IDS[0]] == {"class_id": 9, "tenant": "acme", "revision": 1}
    assert found[IDS[1]] == {"class_id": 7}


def test_a_batch_applies_its_updates_in_order(sidecar: VectorService) -> None:
    """Upsert, then payload, then delete, in one request."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        await client.batch_update_points(
            name,
            [
                models.UpsertOperation(upsert=models.PointsList(points=points())),
                models.SetPayloadOperation(
                    set_payload=models.SetPayload(payload={"class_id": 5}, points=[IDS[0]])
                ),
                models.DeleteOperation(delete=models.PointIdsList(points=list(IDS[1:]))),
            ],
        )
        return (await client.scroll(name))[0]

    (left,) = using(sidecar, work, filled=False)
    assert (left.id, left.payload["class_id"]) == (IDS[0], 5)


def test_a_conditional_upsert_leaves_a_newer_point_alone(sidecar: VectorService) -> None:
    """The revision fence of the index writer: older never overwrites newer; new is written."""
    older = models.Filter(must=[models.FieldCondition(key="revision", range=models.Range(lte=1))])

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        await client.set_payload(name, {"revision": 5, "class_id": 50}, [IDS[0]])
        await client.delete(name, [IDS[4]])
        await client.batch_update_points(
            name,
            [
                models.UpsertOperation(
                    upsert=models.PointsList(points=points(), update_filter=older)
                )
            ],
        )
        return await client.retrieve(name, [IDS[0], IDS[4]])

    found = {point.id: point.payload["class_id"] for point in using(sidecar, work)}
    assert found == {IDS[0]: 50, IDS[4]: 4}


def test_an_upsert_in_columns_equals_one_in_rows(sidecar: VectorService) -> None:
    """The client sends ``Batch`` as columns."""
    rows = points()
    vectors: list[Any] = [row.vector for row in rows]

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        await client.upsert(
            name,
            models.Batch(
                ids=[row.id for row in rows],
                vectors={which: [one[which] for one in vectors] for which in ("dense", "lexical")},
                payloads=[row.payload or {} for row in rows],
            ),
        )
        return (await client.scroll(name))[0]

    found = using(sidecar, work, filled=False)
    assert [(point.id, point.payload) for point in found] == [(row.id, row.payload) for row in rows]


def test_a_facet_counts_permitted_points_only(sidecar: VectorService) -> None:
    """Exact, under the filter."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return await client.facet(name, "class_id", facet_filter=of_class(1, 2))

    hits = using(sidecar, work).hits
    assert sorted((hit.value, hit.count) for hit in hits) == [(1, 1), (2, 1)]


def test_a_collection_tells_its_shape_and_its_indexes(sidecar: VectorService) -> None:
    """What the store checks at start."""

    async def work(client: AsyncQdrantClient, name: str) -> Any:
        return await client.get_collection(name), await client.collection_exists(name)

    info, exists = using(sidecar, work)
    assert exists
    assert info.points_count == 5
    assert info.config.params.vectors["dense"].size == 3
    assert info.config.params.sparse_vectors["lexical"].modifier is None
    assert info.payload_schema["class_id"].data_type == models.PayloadSchemaType.INTEGER


def test_a_collection_is_made_once_and_gone_after_deletion(sidecar: VectorService) -> None:
    """409 on the second creation; 404 when there is none."""

    async def work(client: AsyncQdrantClient, name: str) -> list[int | None]:
        statuses = []
        for attempt in (create(client, name), client.get_collection("absent")):
            with pytest.raises(UnexpectedResponse) as caught:
                await attempt
            statuses.append(caught.value.status_code)
        await client.delete_collection(name)
        assert not await client.collection_exists(name)
        return statuses

    assert using(sidecar, work) == [409, 404]


def test_a_vector_of_the_wrong_length_is_refused(sidecar: VectorService) -> None:
    """The engine's own words do not come out."""

    async def work(client: AsyncQdrantClient, name: str) -> str:
        with pytest.raises(UnexpectedResponse) as caught:
            await client.upsert(name, [models.PointStruct(id=1, vector={"dense": [1.0]})])
        assert caught.value.status_code == 400
        return caught.value.content.decode()

    assert "Vector dimension error" in using(sidecar, work)


# --- refusals -----------------------------------------------------------------------------


def ask(sidecar: VectorService, path: str, content: bytes, *, key: str | None = None) -> int:
    """The status of one raw request to an existing collection (its name is ``refusals``)."""
    with httpx.Client(base_url=sidecar.url, trust_env=False) as client:
        headers = {"api-key": key if key is not None else sidecar.api_key}
        client.put(
            "/collections/refusals",
            json={"vectors": {"dense": {"size": 2, "distance": "Dot"}}},
            headers=headers,
        )
        return client.post(path, content=content, headers=headers).status_code


@pytest.mark.parametrize("path", ["/", "/collections", "/collections/refusals", "/healthz"])
@pytest.mark.parametrize("headers", [{}, {"api-key": "wrong"}, {"api-key": ""}])
def test_nothing_is_answered_without_the_key(
    sidecar: VectorService, path: str, headers: dict[str, str]
) -> None:
    """The version is behind the key, too; so is the existence of a path."""
    with httpx.Client(base_url=sidecar.url, trust_env=False) as client:
        assert client.get(path, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/points/count", b'{"filter": {}}'),
        ("/points/count", b'{"filter": {"must": []}}'),
        ("/points/count", b'{"filter": {"must": [{"should": []}]}}'),
        ("/points/count", b'{"filter": {"must": [{"key": "a", "match": {"any": []}}]}}'),
        ("/points/count", b'{"filter": {"must_not": [{"key": "a", "match": {"value": 1}}]}}'),
        ("/points/count", b'{"filter": {"must": [{"is_empty": {"key": "a"}}]}}'),
        ("/points/count", b'{"filter": {"must": [{"key": "a", "match": {"except": [1]}}]}}'),
        ("/points/count", b'{"filter": {"must": [{"key": "a", "match": {"any": [1, true]}}]}}'),
        ("/points/count", b'{"filter": {"must": [{"has_id": []}]}}'),
        ("/points/delete", b'{"filter": {}}'),
        ("/points/delete", b'{"points": []}'),
        ("/points/delete", b"{}"),
        ("/points/scroll", b'{"with_vector": true}'),
        ("/points/scroll", b'{"with_vector": ["dense"]}'),
        ("/points/scroll", b'{"limit": 0}'),
        ("/points/scroll", b'{"limit": 100000000}'),
        ("/points/scroll", b'{"order_by": "class_id"}'),
        ("/points", b'{"ids": [1], "with_vector": true}'),
        ("/points", b'{"ids": ["not-an-id"]}'),
        ("/points", b'{"ids": [-1]}'),
        ("/points/query", b'{"query": {"nearest": [1, 0]}, "using": "dense"}'),
        ("/points/query", b'{"query": {"fusion": "rrf"}, "prefetch": []}'),
        ("/facet", b'{"key": "class_id"}'),
        ("/points/count", b'{"filter": null, "filter": {"must": []}}'),
        ("/points/count", b'{"exact": NaN}'),
        ("/points/count", b"{} {}"),
        ("/points/count", b"[]"),
        ("/points/count", b""),
        ("/points/count", b"[" * 100_000),
        ("/points/count?anything=1", b"{}"),
    ],
)
def test_what_is_not_spoken_is_refused(sidecar: VectorService, path: str, content: bytes) -> None:
    """An empty filter means everything to the engine; here it means a mistake."""
    assert ask(sidecar, f"/collections/refusals{path}", content) == 400


@pytest.mark.parametrize(
    "path",
    ["/snapshots", "/collections/refusals/snapshots", "/collections/refusals/points/search",
     "/collections/refusals/points/vectors", "/telemetry", "/metrics"],
)  # fmt: skip
def test_no_other_path_exists(sidecar: VectorService, path: str) -> None:
    """Snapshots and metrics would carry vectors and counts."""
    assert ask(sidecar, path, b"{}") == 404


def test_a_body_beyond_the_cap_is_refused(sidecar: VectorService) -> None:
    """33 MiB, told by its length before anything is read."""
    assert ask(sidecar, "/collections/refusals/points/count", b" " * (33 << 20)) == 413
