"""The public contract as OpenAPI 3.1, made from the models that requests and answers are read by.

``GET /v1/openapi.json`` serves it to everybody: it says what may be asked of any gateway, and
nothing of a policy, a corpus or a caller. Paths are those of the shipped policy. The file beside
this module is the same text; ``gateway openapi --into`` writes it anew.

Source: OpenAPI Specification 3.1.1; RFC 9457 (problem details).
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.egress.cursors import FORM as CURSOR
from gateway.errors import PROBLEM_JSON, Code
from retrieval.contract import (
    CheckRequest,
    CheckResponse,
    DeliveryResponse,
    FeedbackRequest,
    FeedbackResponse,
    Response,
    RetrieveRequest,
    UnitResponse,
    UnitsRequest,
    UnitsResponse,
)

PATH: Final = b"/v1/openapi.json"
FILE: Final = Path(__file__).with_name("openapi.json")
VERSION: Final = "1"
"""Of the public contract: it may gain paths, fields that may be left out, and codes."""
_REF: Final = "#/components/schemas/{model}"
_Node = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """One thing that may be asked: ``answer`` None is the scope document."""

    name: str
    method: Literal["get", "post"]
    path: str
    summary: str
    answer: type[BaseModel] | None
    body: type[BaseModel] | None = None
    parameters: tuple[str, ...] = ()


_WISHES: Final = ("audience", "task_scope", "purpose")
OPERATIONS: Final = (
    _Operation(
        name="retrieve",
        method="post",
        path="/v1/retrieve",
        summary="Context packs for a question",
        body=RetrieveRequest,
        answer=Response,
    ),
    _Operation(
        name="pack",
        method="get",
        path="/v1/threads/{reference}/pack",
        summary="The context pack of a thread",
        parameters=("reference", *_WISHES),
        answer=Response,
    ),
    _Operation(
        name="unit",
        method="get",
        path="/v1/units/{address}",
        summary="One unit by canonical address; `#` is written `%23`, `/` as it is",
        parameters=("address", *_WISHES),
        answer=UnitResponse,
    ),
    _Operation(
        name="units",
        method="get",
        path="/v1/units",
        summary="The caller's units by canonical address, page by page",
        parameters=("limit", "cursor", "kind", "lifecycle_stage", "label", "text", *_WISHES),
        answer=UnitsResponse,
    ),
    _Operation(
        name="delivery",
        method="get",
        path="/v1/packs/{pack_id}",
        summary="What of a delivered pack may be cited now",
        parameters=("pack_id", *_WISHES),
        answer=DeliveryResponse,
    ),
    _Operation(
        name="check",
        method="post",
        path="/v1/answers/check",
        summary="Whether an answer cites and surfaces what it must",
        body=CheckRequest,
        answer=CheckResponse,
    ),
    _Operation(
        name="feedback",
        method="post",
        path="/v1/feedback",
        summary="What a delivered pack was worth",
        body=FeedbackRequest,
        answer=FeedbackResponse,
    ),
    _Operation(
        name="scope",
        method="get",
        path="/v1/scope",
        summary="What the policy says about the caller's own grant",
        parameters=_WISHES,
        answer=None,
    ),
)


@functools.cache
def document() -> bytes:
    """The document as it is served and kept in the file. Cost: some 20 ms, once a process."""
    return (json.dumps(tree(), indent=1, ensure_ascii=False) + "\n").encode()


def tree() -> _Node:
    """The document as a tree."""
    models = {
        model: mode
        for one in OPERATIONS
        for model, mode in ((one.body, "validation"), (one.answer, "serialization"))
        if model is not None
    }
    _, definitions = models_json_schema(list(models.items()), ref_template=_REF)  # type: ignore[arg-type]  # both modes are literals
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "audience-gateway",
            "version": VERSION,
            "description": "Retrieval behind one policy. An answer holds what its caller may see;"
            " hidden and absent are the same.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
            "parameters": _PARAMETERS,
            "responses": {
                "Refused": {
                    "description": "Refused, with a code of the closed list",
                    "content": {PROBLEM_JSON.decode(): {"schema": _ref("Problem")}},
                }
            },
            "schemas": {**definitions["$defs"], "Problem": _PROBLEM, "Scope": _SCOPE},
        },
    }


def _paths() -> _Node:
    paths: _Node = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return paths


def _operation(one: _Operation) -> _Node:
    answer = _ref(one.answer.__name__ if one.answer is not None else "Scope")
    node: _Node = {"operationId": one.name, "summary": one.summary}
    if one.parameters:
        node["parameters"] = [
            {"$ref": f"#/components/parameters/{name}"} for name in one.parameters
        ]
    if one.body is not None:
        content = {"application/json": {"schema": _ref(one.body.__name__)}}
        node["requestBody"] = {"required": True, "content": content}
    node["responses"] = {
        "200": {"description": one.summary, "content": {"application/json": {"schema": answer}}},
        "default": {"$ref": "#/components/responses/Refused"},
    }
    return node


def _ref(name: str) -> _Node:
    return {"$ref": _REF.format(model=name)}


def _parameter(name: str, schema: _Node, description: str, *, in_path: bool = False) -> _Node:
    return {
        "name": name,
        "in": "path" if in_path else "query",
        "required": in_path,
        "schema": schema,
        "description": description,
    }


def _field(model: type[BaseModel], name: str) -> _Node:
    """The schema of a field, without what makes it optional: a parameter is left out instead."""
    schema = model.model_json_schema()["properties"][name]
    choices = [one for one in schema.get("anyOf", [schema]) if one != {"type": "null"}]
    kept = {key: value for key, value in choices[0].items() if key not in {"title", "default"}}
    return kept | ({"default": schema["default"]} if schema.get("default") is not None else {})


_PARAMETERS: Final[_Node] = {
    "reference": _parameter(
        "reference", {"type": "string"}, "id or canonical address of a thread", in_path=True
    ),
    "address": _parameter("address", {"type": "string"}, "canonical address", in_path=True),
    "pack_id": _parameter(
        "pack_id",
        {"type": "string", "format": "uuid"},
        "of a pack that was delivered",
        in_path=True,
    ),
    "cursor": _parameter(
        "cursor",
        {"type": "string", "pattern": f"^{CURSOR.pattern}$"},
        "`next_cursor` of the page before",
    ),
    "limit": _parameter("limit", _field(UnitsRequest, "limit"), "units of a page"),
    "text": _parameter("text", _field(UnitsRequest, "text"), "whether texts are wanted"),
    "kind": _parameter(
        "kind", _field(UnitsRequest, "kind"), "of this kind only; an unknown one finds nothing"
    ),
    "lifecycle_stage": _parameter(
        "lifecycle_stage",
        _field(UnitsRequest, "lifecycle_stage"),
        "of this stage only; an unknown one finds nothing",
    ),
    "label": _parameter(
        "label", _field(UnitsRequest, "label"), "with this term of the vocabulary only"
    ),
    "audience": _parameter(
        "audience", _field(CheckRequest, "audience"), "a profile to narrow oneself to"
    ),
    "task_scope": _parameter(
        "task_scope", _field(CheckRequest, "task_scope"), "one of the caller's verified tasks"
    ),
    "purpose": _parameter(
        "purpose", _field(CheckRequest, "purpose"), "selects which consents count"
    ),
}
_WORDS: Final[_Node] = {"type": "array", "items": {"type": "string"}}
_PROBLEM: Final[_Node] = {
    "type": "object",
    "description": "RFC 9457. Nothing depends on what is hidden; `code` may be branched on.",
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "enum": [str(code) for code in Code]},
        "request_id": {"type": "string"},
        "detail": {
            "type": "string",
            "description": "With `bad_body` and `bad_query` only: which part of the caller's own"
            " body or query it was.",
        },
    },
    "required": ["type", "title", "status", "code", "request_id"],
    "additionalProperties": False,
}
_SCOPE: Final[_Node] = {
    "type": "object",
    "properties": {
        "audience": {"type": "string"},
        "profiles": _WORDS,
        "task_scope": {"type": "string"},
        "task_scopes": _WORDS,
        "tenants": _WORDS,
        "jurisdictions": _WORDS,
        "purpose": {"type": "string"},
        "purposes": _WORDS,
        "acting_upstream": {"type": ["string", "null"]},
        "policy_digest": {"type": "string"},
        "readable": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "consent": {"enum": ["none", "granted"]},
                    "facets": {"type": "object", "additionalProperties": _WORDS},
                },
                "required": ["consent", "facets"],
            },
        },
    },
    "required": ["audience", "profiles", "policy_digest", "readable"],
}
