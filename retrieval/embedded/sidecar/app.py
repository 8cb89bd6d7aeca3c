"""The sidecar's door: a raw ASGI callable. Key first, then size, then JSON, then the table.

Everything is answered in Qdrant's own shapes. What the engine says when it fails goes to
the sidecar's log as a type name only; the caller gets a fixed sentence.
"""

from __future__ import annotations

import hmac
import json
import re
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

import orjson

from retrieval.embedded.sidecar.collections import Collections
from retrieval.embedded.sidecar.operations import OPERATIONS, describe
from retrieval.embedded.sidecar.wire import Refused

VERSION: Final = "1.20.0"
"""The server version whose shapes are spoken; the client compares it with its own."""
BODY_BYTES: Final = 32 * 1024 * 1024
PARAMETERS: Final = frozenset({"wait", "ordering", "timeout", "consistency"})
COLLECTION: Final = re.compile(r"/collections/(?P<name>[^/]+)(?P<rest>/.*)?")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Sidecar:
    """The ASGI application over one folder's collections."""

    def __init__(self, collections: Collections, *, api_key: str) -> None:
        if not api_key:
            raise ValueError("the sidecar is not served without a key")
        self._collections = collections
        self._api_key = api_key.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            self._authenticate(scope["headers"])
            body = await _read(scope["headers"], receive)
            status, answer = 200, self._answer(scope, body)
        except Refused as refusal:
            status, answer = refusal.status, _refusal(str(refusal))
        except Exception as error:  # noqa: BLE001 - the engine raises bare Exception
            status, answer = _engine_refusal(error)
        data = orjson.dumps(answer)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    def _authenticate(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Refuse everything, the version included, without exactly one right key."""
        given = [value for name, value in headers if name == b"api-key"]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._api_key):
            raise Refused(401, "Must provide an API key")

    def _answer(self, scope: Message, body: bytes) -> Any:
        unknown = parse_qs(scope["query_string"].decode("latin-1")).keys() - PARAMETERS
        if unknown:
            raise Refused(400, f"unsupported parameters {sorted(unknown)[:5]}")
        if scope["path"] == "/" and scope["method"] == "GET":
            return {"title": "qdrant-edge sidecar", "version": VERSION}
        return {
            "result": self._result(scope["method"], scope["path"], body),
            "status": "ok",
            "time": 0.0,
        }

    def _result(self, method: str, path: str, body: bytes) -> Any:
        if path == "/collections" and method == "GET":
            return {"collections": [{"name": name} for name in self._collections]}
        found = COLLECTION.fullmatch(path)
        if found is None:
            raise Refused(404, "no such path")
        name, rest = found["name"], found["rest"] or ""
        match (method, rest):
            case ("GET", ""):
                return describe(self._collections[name])
            case ("PUT", ""):
                self._collections.create(name, parse(body))
                return True
            case ("DELETE", ""):
                return self._collections.drop(name)
            case ("GET", "/exists"):
                return {"exists": name in self._collections}
        operation = OPERATIONS.get((method, rest))
        if operation is None:
            raise Refused(404, "no such path")
        return operation(self._collections[name], parse(body))


def parse(body: bytes) -> Any:
    """The JSON of a request: no doubled names, no NaN, nothing behind it."""
    try:
        return json.loads(body, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is given twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(name)


async def _read(headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
    """The whole body, or 413 as soon as it is known to be too long."""
    told = [value for name, value in headers if name == b"content-length"]
    if told and int(told[0]) > BODY_BYTES:
        raise Refused(413, f"the body is longer than {BODY_BYTES} bytes")
    parts, size = [], 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Refused(400, "the caller left")
        part = event.get("body", b"")
        size += len(part)
        if size > BODY_BYTES:
            raise Refused(413, f"the body is longer than {BODY_BYTES} bytes")
        parts.append(part)
        if not event.get("more_body"):
            return b"".join(parts)


def _refusal(message: str) -> dict[str, Any]:
    return {"status": {"error": message}, "time": 0.0, "result": None}


def _engine_refusal(error: Exception) -> tuple[int, dict[str, Any]]:
    """Map what the engine raised. It has one exception type for everything: go by its words."""
    said = str(error)
    if "dimension" in said:
        return 400, _refusal("Wrong input: Vector dimension error")
    if "Not existing vector name" in said or "vector name" in said.lower():
        return 400, _refusal("Wrong input: Not existing vector name error")
    print(f"sidecar: {type(error).__name__} from the engine", file=sys.stderr, flush=True)
    if "No space left" in said:
        return 507, _refusal("no space left for the index")
    return 500, _refusal("the engine failed")
