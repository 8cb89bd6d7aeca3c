"""The published contract is the truth: what it allows is never called malformed, what it forbids
always is, and every answer is one that it describes.

Provenance: issue 4, part 2; RFC 9457; OpenAPI Specification 3.1.1. Requests are made from the
document itself, so that a field which is added is attacked, too.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from gateway.errors import Code, status_of
from gateway.surfaces.openapi import document
from retrieval.embedded import Embedded
from retrieval.ingest.identity import thread_id, unit_id
from tests.json_schema import fits
from tests.services import Database
from tests.system.composed import Composed, Reply
from tests.system.test_consumer import run

TREE: Final[dict[str, Any]] = json.loads(document())
NOBODYS: Final = "00000000-0000-4000-8000-000000000000"
JUNK: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1, 1.5, 10**30, "", " ", "x", "X Y", "a\n", "a" * 301, "a" * 4001, NOBODYS,
    [], [None], ["x"], [NOBODYS], [NOBODYS] * 201, {}, {"x": 1}, [{}], "\u202e",
)  # fmt: skip
WORDS: Final = ("", "x", "X", " x", "x\n", "0", "1", "-1", "201", "1.5", "true", "false", "TRUE",
                "a" * 301, "a" * 5000, "\u00e9", "\x00")  # fmt: skip

Ask = Callable[..., Awaitable[Reply]]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of everything that may be asked."""
    for path, node in TREE["paths"].items():
        for method, operation in node.items():
            yield method, path, operation


def described(operation: dict[str, Any], reply: Reply) -> None:
    """Assert that an answer is one that the document describes."""
    responses = operation["responses"]
    said = responses.get(str(reply.status))
    kind = reply.headers["content-type"]
    if said is None:
        said = TREE["components"]["responses"]["Refused"]
        problem = reply.json
        assert reply.status == problem["status"] == status_of(Code(problem["code"]))
        assert problem["request_id"] == reply.request_id
    assert fits(said["content"][kind]["schema"], reply.json, TREE), (reply.status, reply.body)
    assert reply.headers["cache-control"] == "private, no-store"


def parameters(operation: dict[str, Any]) -> list[dict[str, Any]]:
    names = [one["$ref"].rpartition("/")[2] for one in operation.get("parameters", ())]
    return [TREE["components"]["parameters"][name] for name in names]


def askers(stage: Composed) -> Iterator[dict[str, str]]:
    """A credential of another customer each time: some operations are rationed."""
    for number in itertools.count():
        yield {"authorization": f"Bearer {stage.issuers.token('customer', sub=f'c-{number}')}"}


def changed(value: Any, at: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The value with one thing at any depth replaced, left out or added."""

    def put(new: Any) -> Any:
        if not at:
            return new
        whole = copy.deepcopy(value)
        inner = whole
        for step in at[:-1]:
            inner = inner[step]
        inner[at[-1]] = new
        return whole

    here = value
    for step in at:
        here = here[step]
    for junk in JUNK:
        yield put(junk)
    if isinstance(here, dict):
        yield put({**here, "unheard_of": 1})
        for name in here:
            yield put({key: one for key, one in here.items() if key != name})
    for step in (
        here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
    ):
        yield from changed(value, (*at, step))


def bodies(pack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A full body of each operation that takes one."""
    cited = {"pack_id": pack["pack_id"], "canonical_address": "law/returns", "source_revision": 1}
    wishes = {"audience": None, "task_scope": None, "purpose": None}
    return {
        "retrieve": {
            "query": "returning goods", "turns": ["goods"], "thread": None, "k": 3,
            "max_bytes": 4096, "mode": "auto", **wishes,
        },
        "check": {"claims": [{"citations": [cited]}], "surfaced": [NOBODYS], **wishes},
        "feedback": {
            "pack_id": pack["pack_id"], "kind": "sufficient",
            "unit_ids": [str(unit_id("law/returns"))], **wishes,
        },
    }  # fmt: skip


def targets(pack: dict[str, Any]) -> dict[str, str]:
    """A path of each operation that names something."""
    return {
        "/v1/threads/{reference}/pack": f"/v1/threads/{thread_id('thread/returns')}/pack",
        "/v1/units/{address}": "/v1/units/law/returns",
        "/v1/packs/{pack_id}": f"/v1/packs/{pack['pack_id']}",
    }


def test_every_operation_gives_what_the_contract_describes(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """A good answer of each, and its refusals: no credential, a bad one, somebody without an
    audience, another method, another media type, something that is not there."""

    async def act(stage: Composed) -> None:
        pack = (await stage.retrieve("returning goods")).json["packs"][0]
        good = targets(pack)
        for method, path, operation in operations():
            name = operation["operationId"]
            target, body = good.get(path, path), bodies(pack).get(name)
            seen = {}
            for why, headers in (
                ("good", {}),
                ("absent", {"authorization": ""}),
                ("bad", {"authorization": "Bearer x"}),
                (
                    "nobody",
                    {"authorization": f"Bearer {stage.issuers.token('customer', groups=[])}"},
                ),
                ("media", {"content-type": "text/plain"}),
            ):
                reply = await stage._send(method.upper(), target, "customer", body, headers)
                described(operation, reply)
                seen[why] = reply.status
            assert seen == {"good": 200, "absent": 401, "bad": 401, "nobody": 403,
                            "media": 415 if body else 200}, name  # fmt: skip
            other = await stage._send("DELETE", target, "customer", None, {})
            described(operation, other)
            assert other.status == 405
            if "{" in path:
                hidden = re.sub(r"{\w+}", NOBODYS, path)
                absent = await stage._send(method.upper(), hidden, "customer", body, {})
                described(operation, absent)
                assert absent.status == 404

    run(act, services, database, tmp_path)


def test_body_is_refused_as_bad_if_and_only_if_the_contract_forbids_it(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """One thing wrong at a time, at every depth, and the values in between that are not wrong."""

    async def act(stage: Composed) -> None:
        credentials = askers(stage)
        pack = (await stage.retrieve("returning goods")).json["packs"][0]
        seen = {200: 0, 400: 0}
        for method, path, operation in operations():
            if "requestBody" not in operation:
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for body in changed(bodies(pack)[operation["operationId"]]):
                if body is None:  # which our client sends as no body at all
                    continue
                reply = await stage._send(method.upper(), path, "customer", body, next(credentials))
                described(operation, reply)
                seen[reply.status] = seen.get(reply.status, 0) + 1
                refused = reply.status == 400 and reply.code == "bad_body"
                assert refused is not fits(schema, body, TREE), (path, body, reply.body)
        assert seen[200] > 20, seen
        assert seen[400] > 200, seen

    run(act, services, database, tmp_path)


def test_query_is_refused_as_bad_if_and_only_if_the_contract_forbids_it(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Each parameter with words that it takes and words that it does not, twice, and beside an
    unknown one. A cursor is never made by a caller."""

    async def act(stage: Composed) -> None:
        pack = (await stage.retrieve("returning goods")).json["packs"][0]
        good = targets(pack)
        seen = {True: 0, False: 0}
        for method, path, operation in operations():
            if method != "get":
                continue
            target = good.get(path, path)
            for parameter in parameters(operation):
                if parameter["in"] == "path":
                    continue
                name, schema = parameter["name"], parameter["schema"]
                for word in WORDS:
                    reply = await stage.get(f"{target}?{name}={quote(word, safe='')}")
                    described(operation, reply)
                    allowed = fits(schema, meant(schema, word)) and name != "cursor"
                    refused = reply.status == 400 and reply.code == "bad_query"
                    assert refused is not allowed, (target, name, word, reply.body)
                    seen[allowed] += 1
                for query in (f"{name}=x&{name}=x", f"{name}", f"{name}=1&unheard_of=1"):
                    reply = await stage.get(f"{target}?{query}")
                    described(operation, reply)
                    assert (reply.status, reply.code) == (400, "bad_query"), (target, query)
        assert min(seen.values()) > 40, seen

    run(act, services, database, tmp_path)


def meant(schema: dict[str, Any], word: str) -> Any:
    """A word of a query as the value that its schema speaks of."""
    match schema["type"]:
        case "integer" if re.fullmatch(r"-?\d+", word, re.ASCII):
            return int(word)
        case "boolean" if word in {"true", "false"}:
            return word == "true"
    return word


def test_every_path_of_the_contract_is_tried() -> None:
    """A new operation must be given a target or a body here."""
    pack = {"pack_id": NOBODYS}
    named = {path for _, path, _ in operations() if "{" in path}
    taking = {one["operationId"] for _, _, one in operations() if "requestBody" in one}
    assert targets(pack).keys() == named
    assert bodies(pack).keys() == taking
    for _, _, operation in operations():
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert fits(schema, bodies(pack)[operation["operationId"]], TREE)
