"""From the JSON of Qdrant's REST API to the engine's own types, strictly.

Laws
    * A field that is not known is refused, never ignored: an ignored narrowing would widen.
    * A filter with nothing in it is refused: the engine takes it for "everything".
    * ``must_not`` is not spoken: the product's filters are positive lists.
    * Vectors go in and never come out.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import qdrant_edge as edge

MAX_LIMIT: Final = 10_000
MAX_DEPTH: Final = 8
MAX_UNSIGNED: Final = 2**64 - 1


PointId = int | uuid.UUID | str
"""As the engine types it; a text never comes out of ``point_id``."""


class Refused(Exception):
    """The request is answered with ``status`` and this message; the engine is not asked."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


def fields(body: object, *known: str, where: str) -> dict[str, Any]:
    """The object's fields without nulls (which the client may send for "not given")."""
    if not isinstance(body, dict):
        raise Refused(400, f"{where} must be an object")
    unknown = sorted(body.keys() - set(known))
    if unknown:
        raise Refused(400, f"{where} has unsupported fields {unknown[:5]}")
    return {name: value for name, value in body.items() if value is not None}


def needed(body: Mapping[str, Any], name: str, *, where: str) -> Any:
    if name not in body:
        raise Refused(400, f"{where} lacks `{name}`")
    return body[name]


def listed(value: object, *, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise Refused(400, f"{where} must be a list that is not empty")
    return value


def whole(value: object, *, least: int, most: int, where: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Refused(400, f"{where} must be a whole number from {least} to {most}")
    return value


def point_id(value: object) -> PointId:
    """A point's id: an unsigned number, or a UUID in its usual spelling."""
    if type(value) is int and 0 <= value <= MAX_UNSIGNED:
        return value
    if isinstance(value, str):
        try:
            parsed = uuid.UUID(value)
        except ValueError:
            parsed = None
        if parsed is not None and str(parsed) == value.lower():
            return parsed
    raise Refused(400, "a point id must be an unsigned number or a UUID")


def point_ids(value: object, *, where: str) -> list[PointId]:
    return [point_id(one) for one in listed(value, where=where)]


def spelled(value: PointId) -> int | str:
    return value if isinstance(value, int) else str(value)


def text(value: object, *, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(400, f"{where} must be a text that is not empty")
    return value


# --- filters ------------------------------------------------------------------------------


def filter_of(value: object, *, depth: int = 0) -> edge.Filter:
    """A filter of ``must`` and ``should`` over ``has_id``, ``match``, ``range`` and filters."""
    body = fields(value, "must", "should", where="a filter")
    if not body:
        raise Refused(400, "a filter must not be empty")
    if depth > MAX_DEPTH:
        raise Refused(400, f"a filter must not be nested more than {MAX_DEPTH} times")
    parts = {name: _conditions(part, depth=depth) for name, part in body.items()}
    return edge.Filter(must=parts.get("must"), should=parts.get("should"))


def _conditions(value: object, *, depth: int) -> list[Any]:
    given = value if isinstance(value, list) else [value]
    return [_condition(one, depth=depth) for one in listed(given, where="a filter's list")]


def _condition(value: object, *, depth: int) -> Any:
    if isinstance(value, dict) and "has_id" in value:
        body = fields(value, "has_id", where="has_id")
        ids = listed(needed(body, "has_id", where="has_id"), where="has_id")
        return edge.HasIdCondition({point_id(one) for one in ids})
    if isinstance(value, dict) and "key" in value:
        body = fields(value, "key", "match", "range", where="a condition")
        key = text(body.get("key"), where="a condition's key")
        if len(body) != 2:
            raise Refused(400, "a condition needs exactly one of `match` and `range`")
        if "range" in body:
            return edge.FieldCondition(key=key, range=_range(body["range"]))
        return edge.FieldCondition(key=key, match=_match(body["match"]))
    return filter_of(value, depth=depth + 1)


def _range(value: object) -> edge.RangeFloat:
    body = fields(value, "gte", "gt", "lte", "lt", where="range")
    if not body or not {type(one) for one in body.values()} <= {int, float}:
        raise Refused(400, "range needs numbers under some of `gte`, `gt`, `lte`, `lt`")
    return edge.RangeFloat(**body)


def _match(value: object) -> Any:
    body = fields(value, "any", "value", where="match")
    if len(body) != 1:
        raise Refused(400, "match needs exactly one of `any` and `value`")
    if "value" in body:
        if type(body["value"]) not in (int, str, bool):
            raise Refused(400, "match.value must be a number, a text or a truth value")
        return edge.MatchValue(body["value"])
    values = listed(body["any"], where="match.any")
    kinds = {type(one) for one in values}
    if kinds not in ({int}, {str}):
        raise Refused(400, "match.any must hold whole numbers only, or texts only")
    return edge.MatchAny(values)


# --- vectors and points -------------------------------------------------------------------


def _numbers(value: object, *, where: str) -> list[float]:
    numbers = listed(value, where=where)
    if not {type(one) for one in numbers} <= {int, float}:
        raise Refused(400, f"{where} must hold numbers")
    return numbers


def vector_of(value: object) -> Any:
    """A dense vector (list of numbers) or a sparse one (``indices`` and ``values``)."""
    if not isinstance(value, dict):
        return _numbers(value, where="a vector")
    body = fields(value, "indices", "values", where="a sparse vector")
    indices, values = body.get("indices"), body.get("values")
    if not isinstance(indices, list) or not isinstance(values, list):
        raise Refused(400, "a sparse vector needs `indices` and `values`")
    if len(indices) != len(values) or len(set(indices)) != len(indices):
        raise Refused(400, "a sparse vector's `indices` must be distinct, one for each value")
    if not indices:
        return edge.SparseVector([], [])
    for index in indices:
        whole(index, least=0, most=2**32 - 1, where="a sparse vector's index")
    return edge.SparseVector(indices, _numbers(values, where="a sparse vector's values"))


def named_vectors(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, "a point needs its vectors by name")
    return {name: vector_of(one) for name, one in value.items()}


def payload_of(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, "a payload must be an object")
    return value


def points_of(value: object) -> tuple[list[edge.Point], edge.Filter | None]:
    """The points of an upsert, in either form: a list, or columns (``batch``).

    With them the condition that an existing point must meet to be replaced, if there is one.
    """
    body = fields(value, "points", "batch", "update_filter", where="an upsert")
    if ("points" in body) == ("batch" in body):
        raise Refused(400, "an upsert needs exactly one of `points` and `batch`")
    rows = _columns(body["batch"]) if "batch" in body else _rows(body["points"])
    points = [
        edge.Point(point_id(one), named_vectors(vectors), payload_of(payload))
        for one, vectors, payload in rows
    ]
    return points, filter_of(body["update_filter"]) if "update_filter" in body else None


def _rows(value: object) -> list[tuple[Any, Any, Any]]:
    rows = []
    for one in listed(value, where="points"):
        body = fields(one, "id", "vector", "payload", where="a point")
        rows.append((body.get("id"), body.get("vector"), body.get("payload", {})))
    return rows


def _columns(value: object) -> list[tuple[Any, Any, Any]]:
    body = fields(value, "ids", "vectors", "payloads", where="a batch")
    ids = listed(body.get("ids"), where="ids")
    vectors = body.get("vectors")
    payloads: Sequence[Any] = body.get("payloads") or [{}] * len(ids)
    columns = list(vectors.values()) if isinstance(vectors, dict) else []
    if not columns or any(
        not isinstance(column, list) or len(column) != len(ids) for column in [*columns, payloads]
    ):
        raise Refused(400, "a batch's columns must be as long as its `ids`")
    assert isinstance(vectors, dict)  # noqa: S101 - `columns` is empty otherwise
    return [
        (one, {name: column[row] for name, column in vectors.items()}, payloads[row] or {})
        for row, one in enumerate(ids)
    ]


# --- what may come back -------------------------------------------------------------------


def payload_selector(body: Mapping[str, Any], *, default: bool) -> bool | list[str]:
    """Which payload fields the answer holds."""
    value = body.get("with_payload", default)
    if isinstance(value, dict):
        value = fields(value, "include", where="with_payload").get("include")
    if isinstance(value, bool):
        return value
    return [text(one, where="with_payload") for one in listed(value, where="with_payload")]


def no_vectors(body: Mapping[str, Any]) -> None:
    """Refuse a request that asks for vectors: text can be computed back from them."""
    if body.get("with_vector", False) is not False:
        raise Refused(400, "vectors are never returned")


def limit_of(body: Mapping[str, Any]) -> int:
    return whole(body.get("limit", 10), least=1, most=MAX_LIMIT, where="limit")
