"""What can be asked of one collection: a table of (method, path) to a function of the engine.

A path that is not in the table does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import qdrant_edge as edge

from retrieval.embedded.sidecar.collections import Collection
from retrieval.embedded.sidecar.wire import (
    PointId,
    Refused,
    fields,
    filter_of,
    limit_of,
    listed,
    needed,
    no_vectors,
    payload_of,
    payload_selector,
    point_id,
    point_ids,
    points_of,
    spelled,
    text,
    vector_of,
    whole,
)

DONE: Final = {"operation_id": 0, "status": "completed"}
INDEXES: Final = {
    "integer": edge.PayloadSchemaType.Integer,
    "keyword": edge.PayloadSchemaType.Keyword,
    "uuid": edge.PayloadSchemaType.Uuid,
    "bool": edge.PayloadSchemaType.Bool,
}
Update = edge.UpdateOperation


# --- writing ------------------------------------------------------------------------------


def create_index(collection: Collection, body: object) -> Any:
    given = fields(body, "field_name", "field_schema", where="an index")
    schema = needed(given, "field_schema", where="an index")
    if isinstance(schema, dict):
        schema = fields(
            schema, "type", "is_tenant", "is_principal", "lookup", "range", "on_disk", where="index"
        ).get("type")
    if schema not in INDEXES:
        raise Refused(400, f"an index must be of type {sorted(INDEXES)}")
    name = text(needed(given, "field_name", where="an index"), where="an index's field")
    collection.shard.update(Update.create_field_index(name, INDEXES[schema]))
    return DONE


def upsert(collection: Collection, body: object) -> Any:
    points, condition = points_of(body)
    collection.shard.update(Update.upsert_points(points, condition))
    return DONE


def delete(collection: Collection, body: object) -> Any:
    given = fields(body, "points", "filter", where="a deletion")
    ids, chosen = _selection(given)
    collection.shard.update(
        Update.delete_points(ids) if chosen is None else Update.delete_points_by_filter(chosen)
    )
    return DONE


def set_payload(collection: Collection, body: object) -> Any:
    given = fields(body, "payload", "points", "filter", where="a payload update")
    payload = payload_of(needed(given, "payload", where="a payload update"))
    ids, chosen = _selection(given)
    collection.shard.update(
        Update.set_payload(ids, payload)
        if chosen is None
        else Update.set_payload_by_filter(chosen, payload)
    )
    return DONE


def overwrite_payload(collection: Collection, body: object) -> Any:
    given = fields(body, "payload", "points", where="a payload update")
    payload = payload_of(needed(given, "payload", where="a payload update"))
    ids = point_ids(given.get("points"), where="points")
    collection.shard.update(Update.overwrite_payload(ids, payload))
    return DONE


def _selection(given: dict[str, Any]) -> tuple[list[PointId], edge.Filter | None]:
    """Which points an update means: by id or by filter, exactly one of the two."""
    if ("points" in given) == ("filter" in given):
        raise Refused(400, "exactly one of `points` and `filter` is needed")
    if "filter" in given:
        return [], filter_of(given["filter"])
    return point_ids(given["points"], where="points"), None


BATCH: Final[dict[str, Callable[[Collection, object], Any]]] = {
    "upsert": upsert,
    "delete": delete,
    "set_payload": set_payload,
    "overwrite_payload": overwrite_payload,
}


def batch(collection: Collection, body: object) -> Any:
    """Several updates in order. Like a server's, it is not one transaction."""
    given = fields(body, "operations", where="a batch")
    operations = listed(given.get("operations"), where="operations")
    for one in operations:
        if len(fields(one, *BATCH, where="an operation")) != 1:
            raise Refused(400, "an operation must be exactly one update")
    return [BATCH[name](collection, update) for one in operations for name, update in one.items()]


# --- reading ------------------------------------------------------------------------------


def retrieve(collection: Collection, body: object) -> Any:
    given = fields(body, "ids", "with_payload", "with_vector", where="a look-up")
    no_vectors(given)
    ids = point_ids(given.get("ids"), where="ids")
    found = collection.shard.retrieve(ids, payload_selector(given, default=True), False)
    return [_record(point) for point in found]


def scroll(collection: Collection, body: object) -> Any:
    given = fields(
        body, "offset", "limit", "filter", "with_payload", "with_vector", where="a scroll"
    )
    no_vectors(given)
    points, after = collection.shard.scroll(
        edge.ScrollRequest(
            offset=point_id(given["offset"]) if "offset" in given else None,
            limit=limit_of(given),
            filter=filter_of(given["filter"]) if "filter" in given else None,
            with_payload=payload_selector(given, default=True),
            with_vector=False,
        )
    )
    return {
        "points": [_record(point) for point in points],
        "next_page_offset": None if after is None else spelled(after),
    }


def count(collection: Collection, body: object) -> Any:
    given = fields(body, "filter", "exact", where="a count")
    chosen = filter_of(given["filter"]) if "filter" in given else None
    return {"count": collection.shard.count(edge.CountRequest(exact=True, filter=chosen))}


def facet(collection: Collection, body: object) -> Any:
    given = fields(body, "key", "limit", "filter", "exact", where="a facet")
    answer = collection.shard.facet(
        edge.FacetRequest(
            key=text(needed(given, "key", where="a facet"), where="a facet's key"),
            limit=limit_of(given),
            exact=True,
            filter=filter_of(needed(given, "filter", where="a facet")),
        )
    )
    return {"hits": [{"value": hit.value, "count": hit.count} for hit in answer.hits]}


def query(collection: Collection, body: object) -> Any:
    found = collection.shard.query(_query(body))
    return {"points": [_scored(point) for point in found]}


def query_batch(collection: Collection, body: object) -> Any:
    searches = listed(fields(body, "searches", where="a batch").get("searches"), where="searches")
    found = [collection.shard.query(one) for one in map(_query, searches)]
    return [{"points": [_scored(point) for point in points]} for points in found]


def _query(body: object) -> edge.QueryRequest:
    """One exact nearest-neighbour search. Without a filter it is refused: it would see all."""
    given = fields(
        body,
        *("query", "using", "filter", "limit", "offset", "params", "score_threshold"),
        *("with_payload", "with_vector"),
        where="a query",
    )
    no_vectors(given)
    fields(given.get("params", {}), "exact", "hnsw_ef", "indexed_only", where="params")
    asked = needed(given, "query", where="a query")
    if isinstance(asked, dict) and "indices" not in asked:
        asked = fields(asked, "nearest", where="a query's `query`").get("nearest")
    threshold = given.get("score_threshold")
    if threshold is not None and type(threshold) not in (int, float):
        raise Refused(400, "score_threshold must be a number")
    name = text(needed(given, "using", where="a query"), where="using")
    return edge.QueryRequest(
        limit=limit_of(given),
        offset=whole(given.get("offset", 0), least=0, most=1_000_000, where="offset"),
        query=edge.Query.Nearest(vector_of(asked), using=name),
        filter=filter_of(needed(given, "filter", where="a query")),
        params=edge.SearchParams(exact=True),
        score_threshold=threshold,
        with_payload=payload_selector(given, default=False),
        with_vector=False,
    )


def _scored(point: edge.ScoredPoint) -> dict[str, Any]:
    shown = {"id": spelled(point.id), "version": point.version, "score": point.score}
    return shown if point.payload is None else {**shown, "payload": point.payload}


def _record(point: edge.Record) -> dict[str, Any]:
    shown = {"id": spelled(point.id)}
    return shown if point.payload is None else {**shown, "payload": point.payload}


# --- the collection itself ----------------------------------------------------------------


def describe(collection: Collection) -> Any:
    """What ``GET /collections/{name}`` answers."""
    info = collection.shard.info()
    return {
        "status": "green",
        "optimizer_status": "ok",
        "points_count": info.points_count,
        "indexed_vectors_count": info.indexed_vectors_count,
        "segments_count": info.segments_count,
        "config": {
            "params": collection.declared,
            "hnsw_config": {"m": 0, "ef_construct": 100, "full_scan_threshold": 10_000},
            "optimizer_config": {
                "deleted_threshold": 0.2,
                "vacuum_min_vector_number": 1000,
                "default_segment_number": 0,
                "flush_interval_sec": 5,
            },
        },
        "payload_schema": {
            name: {
                "data_type": str(index.data_type).rpartition(".")[2].lower(),
                "points": index.points,
            }
            for name, index in info.payload_schema.items()
        },
    }


OPERATIONS: Final[dict[tuple[str, str], Callable[[Collection, object], Any]]] = {
    ("PUT", "/index"): create_index,
    ("PUT", "/points"): upsert,
    ("POST", "/points/delete"): delete,
    ("POST", "/points/payload"): set_payload,
    ("PUT", "/points/payload"): overwrite_payload,
    ("POST", "/points/batch"): batch,
    ("POST", "/points"): retrieve,
    ("POST", "/points/scroll"): scroll,
    ("POST", "/points/count"): count,
    ("POST", "/points/query"): query,
    ("POST", "/points/query/batch"): query_batch,
    ("POST", "/facet"): facet,
}
