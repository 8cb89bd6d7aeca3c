"""The vector index: a Qdrant server or the embedded sidecar, over one code path.

Laws
    * This is the only module that imports ``qdrant_client``; no exception of it leaves.
    * Every read carries the filter that the policy emitted for the scope. No filter means
      that nothing is permitted: no call is made.
    * The index proposes, it never decides: no text comes from it, its order is never used,
      and what it returns is complete down to the cut, ties included (`cut.py`).
    * Payload indexes stand before the first point: a collection that has points and lacks
      one is refused (filtered search over it would lose recall without a word).

Ids of points are unit ids. Dense vectors are compared by plain dot product, always exactly
(no graph: hidden points change what a shared graph finds); sparse vectors without a
modifier, because the inverse document frequency is the caller's own and comes in the query.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import httpx
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import (
    ApiException,
    ResponseHandlingException,
    UnexpectedResponse,
)

from policies.decision import Scope
from policies.emit import qdrant as emitted
from retrieval.embed.quantise import engine_form
from retrieval.errors import IndexUnavailable, Store
from retrieval.stores.cut import closed, first_fetch, next_fetch
from retrieval.stores.payload import is_ours, label_of
from retrieval.stores.points import (
    Candidate,
    DenseSearch,
    Held,
    IndexLabel,
    IndexPoint,
    Search,
    SparseSearch,
)

DENSE: Final = "dense"
LEXICAL: Final = "lexical"
PAYLOAD_INDEXES: Final = {
    "class_id": models.PayloadSchemaType.INTEGER,
    "tenant": models.PayloadSchemaType.KEYWORD,
    "jurisdiction": models.PayloadSchemaType.KEYWORD,
    "unit_id": models.PayloadSchemaType.KEYWORD,
    "revision": models.PayloadSchemaType.INTEGER,
}

PAGE: Final = 1000
"""Points that are read at once."""
_TIMEOUT_S: Final = 10
_CONFLICT: Final = 409

T = TypeVar("T")
_Operation = models.UpsertOperation | models.SetPayloadOperation


class QdrantIndex:
    """One collection. Made once per process and event loop; connections are kept."""

    def __init__(self, url: str, api_key: str, collection: str, dims: int) -> None:
        self.collection: Final = collection
        self.dims: Final = dims
        self._client: Final = _client(url, api_key)

    # --- life ---------------------------------------------------------------------------

    async def close(self) -> None:
        await self._client.close()

    async def ping(self) -> None:
        """Returns when the collection can be read. Raises ``IndexUnavailable``."""
        await self._call(lambda: self._client.get_collection(self.collection))

    async def check(self) -> None:
        """Returns when the collection is there and has our shape. Raises ``IndexUnavailable``."""
        info = await self._call(lambda: self._client.get_collection(self.collection))
        self._check_shape(info)

    async def ensure(self) -> None:
        """Makes the collection and its payload indexes; checks one that exists already.

        Raises ``IndexUnavailable`` for a collection of another shape, or one that holds points
        without the payload indexes: its remedy is to delete it and have it filled anew.
        """
        name = self.collection
        if not await self._call(lambda: self._client.collection_exists(name)):
            await self._call(lambda: self._create())
        info = await self._call(lambda: self._client.get_collection(name))
        self._check_shape(info)
        schema = info.payload_schema or {}
        missing = [
            field
            for field, wanted in PAYLOAD_INDEXES.items()
            if field not in schema or schema[field].data_type != wanted
        ]
        if missing and info.points_count:
            raise IndexUnavailable(
                Store.QDRANT,
                f"collection `{name}` holds points but no payload index on `{missing[0]}`; "
                "delete the collection and let the outbox fill it anew",
            )
        for field in missing:
            await self._index(field)

    # --- reading ------------------------------------------------------------------------

    async def search(
        self, searches: Sequence[Search], scope: Scope, *, exclude: Collection[UUID] = ()
    ) -> list[list[Candidate]]:
        """See ``points.CandidateIndex.search``: exact, over the permitted points, until each
        search is complete down to its cut, the ties there included."""
        found: list[list[Candidate]] = [[] for _ in searches]
        permitted = _filter(scope)
        if permitted is None:
            return found
        excluded = frozenset(exclude)
        fetch = {
            number: first_fetch(one.limit, excluded)
            for number, one in enumerate(searches)
            if one.limit > 0 and not (isinstance(one, SparseSearch) and not one.terms)
        }
        while fetch:
            asked = list(fetch.items())
            answers = await self._query([(searches[n], wanted) for n, wanted in asked], permitted)
            for (number, wanted), answer in zip(asked, answers, strict=True):
                whole = closed(answer, searches[number].limit, wanted, excluded)
                if whole is not None:
                    found[number] = whole
                    del fetch[number]
                else:
                    fetch[number] = next_fetch(wanted)
        return found

    async def dense(
        self, vector: bytes, scope: Scope, *, limit: int, exclude: Collection[UUID] = ()
    ) -> list[Candidate]:
        """One ``DenseSearch``."""
        (found,) = await self.search([DenseSearch(vector, limit)], scope, exclude=exclude)
        return found

    async def sparse(
        self,
        terms: Sequence[int],
        weights: Sequence[float],
        scope: Scope,
        *,
        limit: int,
        exclude: Collection[UUID] = (),
    ) -> list[Candidate]:
        """One ``SparseSearch``."""
        (found,) = await self.search([SparseSearch(terms, weights, limit)], scope, exclude=exclude)
        return found

    async def count(self, scope: Scope) -> int:
        """How many points the pushed filter admits, exactly."""
        permitted = _filter(scope)
        if permitted is None:
            return 0
        answer = await self._call(
            lambda: self._client.count(self.collection, count_filter=permitted, exact=True)
        )
        return answer.count

    async def admitted(self, scope: Scope) -> list[Held]:
        """Every point that the pushed filter admits, for audits of the filter itself."""
        permitted = _filter(scope)
        return [] if permitted is None else await self._scroll(permitted, wanted=None)

    async def held(self, unit_ids: Collection[UUID]) -> dict[UUID, IndexLabel | None]:
        """What the index holds of these units; a unit that it does not hold is not a key.

        For the writer only: no scope applies.
        """
        found: dict[UUID, IndexLabel | None] = {}
        ids = [str(unit_id) for unit_id in unit_ids]
        for start in range(0, len(ids), PAGE):
            chosen = models.HasIdCondition(has_id=list(ids[start : start + PAGE]))
            for held in await self._scroll(models.Filter(must=[chosen]), wanted=PAGE):
                found[held.unit_id] = held.label
        return found

    async def held_from(self, first: UUID, limit: int = PAGE) -> list[Held]:
        """The next points from this id on, in the order of ids; fewer than ``limit`` are the last
        ones. For the writer only: no scope applies. Raises IndexUnavailable."""
        page, _ = await self._page(None, limit, str(first))
        ids = [held.unit_id for held in page]
        if ids and (ids[0] < first or any(a >= b for a, b in pairwise(ids))):
            raise IndexUnavailable(Store.QDRANT, "points were not read in the order of their ids")
        return page

    async def strangers(self) -> int:
        """How many points no gateway wrote: their payload is none of ours, for their own id."""
        found, offset = 0, None
        while True:
            page, offset = await self._call(
                partial(
                    self._client.scroll,
                    self.collection,
                    limit=PAGE,
                    offset=offset,
                    with_payload=True,
                    with_vectors=False,
                )
            )
            found += sum(not is_ours(point.id, point.payload) for point in page)
            if offset is None:
                return found

    # --- writing ------------------------------------------------------------------------

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        """Writes points whole; returns when the index has acknowledged them.

        Fence: a point that the index holds at a newer revision is left as it is.
        """
        by_revision: dict[int, list[models.PointStruct]] = defaultdict(list)
        for point in points:
            by_revision[point.label.revision].append(_struct(point))
        await self._write(
            models.UpsertOperation(
                upsert=models.PointsList(points=structs, update_filter=_not_newer_than(revision))
            )
            for revision, structs in sorted(by_revision.items())
        )

    async def relabel(self, labels: Sequence[IndexLabel]) -> None:
        """Writes labels only; vectors are not touched, and no point is created.

        Fence: a point that the index holds at another revision is left as it is.
        """
        groups: dict[tuple[int, int, str, str], list[str]] = defaultdict(list)
        for one in labels:
            key = (one.revision, one.class_id, one.tenant, one.jurisdiction)
            groups[key].append(str(one.unit_id))
        await self._write(
            models.SetPayloadOperation(
                set_payload=models.SetPayload(
                    payload={"class_id": class_id, "tenant": tenant, "jurisdiction": jurisdiction},
                    filter=models.Filter(
                        must=[
                            models.HasIdCondition(has_id=list(ids)),
                            models.FieldCondition(
                                key="revision", match=models.MatchValue(value=revision)
                            ),
                        ]
                    ),
                )
            )
            for (revision, class_id, tenant, jurisdiction), ids in sorted(groups.items())
        )

    async def delete(self, unit_ids: Collection[UUID]) -> None:
        """Removes points; unknown ids are no error."""
        if not unit_ids:
            return
        chosen = models.PointIdsList(points=[str(unit_id) for unit_id in unit_ids])
        await self._call(lambda: self._client.delete(self.collection, chosen, wait=True))

    # --- inside -------------------------------------------------------------------------

    async def _query(
        self, searches: Sequence[tuple[Search, int]], permitted: models.Filter
    ) -> list[list[Candidate]]:
        """What is proposed for some searches, each with how many points it may bring, in one
        call."""
        requests = [_request(search, limit, permitted) for search, limit in searches]
        batch = models.QueryRequestBatch(searches=requests)
        # The client's own wire layer: its `query_batch_points` copies every request deeply,
        # 1.5 ms for a filter of a thousand classes.
        wire = self._client.http.search_api
        answer = await self._call(
            lambda: wire.query_batch_points(
                collection_name=self.collection, query_request_batch=batch
            )
        )
        answers = answer.result or []
        if len(answers) != len(requests):
            raise IndexUnavailable(Store.QDRANT, "not every search was answered")
        return [
            [Candidate(UUID(str(point.id)), point.score) for point in one.points] for one in answers
        ]

    async def _scroll(self, chosen: models.Filter | None, *, wanted: int | None) -> list[Held]:
        found: list[Held] = []
        offset: Any = None
        while True:
            page, offset = await self._page(chosen, wanted or PAGE, offset)
            found.extend(page)
            if offset is None:
                return found

    async def _page(
        self, chosen: models.Filter | None, limit: int, offset: Any
    ) -> tuple[list[Held], Any]:
        """Points by id, from ``offset`` on, and where the next page begins."""
        page, following = await self._call(
            lambda: self._client.scroll(
                self.collection,
                scroll_filter=chosen,
                limit=limit,
                offset=offset,
                with_payload=True,
                with_vectors=False,
            )
        )
        ids = [UUID(str(point.id)) for point in page]
        found = [
            Held(one, label_of(one, point.payload)) for one, point in zip(ids, page, strict=True)
        ]
        return found, following

    async def _write(self, operations: Iterable[_Operation]) -> None:
        todo = list(operations)
        if todo:
            await self._call(
                lambda: self._client.batch_update_points(self.collection, todo, wait=True)
            )

    async def _create(self) -> None:
        try:
            await self._client.create_collection(
                self.collection,
                vectors_config={
                    DENSE: models.VectorParams(size=self.dims, distance=models.Distance.DOT)
                },
                sparse_vectors_config={LEXICAL: models.SparseVectorParams()},
            )
        except UnexpectedResponse as fault:
            if fault.status_code != _CONFLICT:  # another replica made it meanwhile
                raise
        for field in PAYLOAD_INDEXES:
            await self._index(field)

    async def _index(self, field: str) -> None:
        await self._call(
            lambda: self._client.create_payload_index(
                self.collection, field, field_schema=PAYLOAD_INDEXES[field], wait=True
            )
        )

    def _check_shape(self, info: models.CollectionInfo) -> None:
        vectors = info.config.params.vectors
        dense = vectors.get(DENSE) if isinstance(vectors, dict) else None
        sparse = info.config.params.sparse_vectors or {}
        if dense is None or LEXICAL not in sparse:
            reason = f"has no vectors `{DENSE}` and `{LEXICAL}`"
        elif dense.size != self.dims or dense.distance != models.Distance.DOT:
            reason = (
                f"was made for {dense.size} dimensions by {dense.distance}, "
                f"the embedder needs {self.dims} by Dot"
            )
        else:
            return
        raise IndexUnavailable(
            Store.QDRANT,
            f"collection `{self.collection}` {reason}; name another collection, "
            "or delete it and let the outbox fill it anew",
        )

    async def _call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Every call to the client. All of them are idempotent, so a connection that the other
        side closed while it was idle costs one more try, not an error."""
        try:
            try:
                return await make()
            except ResponseHandlingException as fault:
                if not isinstance(fault.source, httpx.RemoteProtocolError | httpx.ReadError):
                    raise
                return await make()
        except ResponseHandlingException as fault:
            raise IndexUnavailable(Store.QDRANT, _reason(fault.source)) from fault
        except UnexpectedResponse as fault:
            raise IndexUnavailable(Store.QDRANT, f"answered {fault.status_code}") from fault
        except (ApiException, httpx.HTTPError, ValueError) as fault:
            raise IndexUnavailable(Store.QDRANT, _reason(fault)) from fault


def _client(url: str, api_key: str) -> AsyncQdrantClient:
    # The client drops keep-alive on loopback and warns of a key over plain HTTP there; the
    # sidecar is loopback, so the key travels as a header and the connections are kept.
    loopback = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
    return AsyncQdrantClient(
        url=url,
        api_key=None if loopback else api_key,
        headers={"api-key": api_key} if loopback else None,
        timeout=_TIMEOUT_S,
        check_compatibility=False,
        limits=httpx.Limits(max_connections=64, max_keepalive_connections=32),
        trust_env=not loopback,
    )


@lru_cache(maxsize=128)
def _filter(scope: Scope) -> models.Filter | None:
    rest = emitted.filter(scope)
    if rest is None:
        return None
    made = models.Filter.model_validate(rest)
    if not made.must:
        raise IndexUnavailable(Store.QDRANT, "the emitted filter has no `must`: not asked")
    return made


def _request(search: Search, limit: int, permitted: models.Filter) -> models.QueryRequest:
    dense = isinstance(search, DenseSearch)
    wanted = (
        engine_form(search.vector)
        if isinstance(search, DenseSearch)
        else models.SparseVector(indices=list(search.terms), values=list(search.weights))
    )
    return models.QueryRequest(
        query=models.NearestQuery(nearest=wanted),
        using=DENSE if dense else LEXICAL,
        filter=permitted,
        params=models.SearchParams(exact=True) if dense else None,
        limit=limit,
        with_payload=False,
    )


def _not_newer_than(revision: int) -> models.Filter:
    return models.Filter(
        must=[models.FieldCondition(key="revision", range=models.Range(lte=revision))]
    )


def _struct(point: IndexPoint) -> models.PointStruct:
    vectors: dict[str, Any] = {}
    if point.vector is not None:
        vectors[DENSE] = engine_form(point.vector)
    if point.terms:
        vectors[LEXICAL] = models.SparseVector(
            indices=list(point.terms), values=list(point.weights)
        )
    label = point.label
    return models.PointStruct(
        id=str(label.unit_id),
        vector=vectors,
        payload={
            "class_id": label.class_id,
            "tenant": label.tenant,
            "jurisdiction": label.jurisdiction,
            "unit_id": str(label.unit_id),
            "revision": label.revision,
        },
    )


def _reason(fault: Exception) -> str:
    return f"{type(fault).__name__}: {str(fault)[:200]}"
