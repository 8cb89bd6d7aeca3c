"""One second listener for all workers: readiness and metrics together, operators passed on.

Laws
    * The address is ready while one worker is; it is degraded while one is missing or degraded.
    * A sample keeps its worker: counts of one process start at zero with it, and only who reads
      them can add them up rightly.
    * What a worker says is passed on, never interpreted further.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import GatewayError, Headers, Refusal, status_of
from gateway.ingress.body import Body
from gateway.ingress.limits import Limits
from gateway.relay.address import Address
from gateway.relay.pool import Pool
from gateway.relay.upstream import CallerGone, UpstreamRequest, UpstreamTimes

OPERATORS: Final = b"/admin/"
_LIMITS: Final = Limits(body_bytes=4 * 1024 * 1024)
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_TIMES: Final = UpstreamTimes(connect_s=1.0, first_byte_s=60.0, idle_s=10.0, write_s=10.0)
_ASK_S: Final = 4.0
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.+)")
_TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
_JSON: Final = b"application/json"
_HOP: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length"})
_RANK: Final = ("ready", "degraded", "not_ready")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker's second listener answered."""

    status: int
    headers: Headers
    body: bytes


async def ask(
    port: int, target: bytes, *, method: str = "GET", headers: Headers = (), body: bytes = b""
) -> Answer:
    """One question to one worker. Raises: GatewayError."""
    address = Address(host="127.0.0.1", port=port)

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    pool = Pool(address=address, times=_TIMES, limit=1)
    try:
        response = await pool.request(
            UpstreamRequest(
                method=method,
                target=target,
                headers=((b"host", address.authority), *headers),
                body=pieces() if body else None,
                body_bytes=len(body) if body else None,
            )
        )
        found = b""
        async for piece in response:
            found += piece
            if len(found) > _ANSWER_BYTES_MAX:
                raise GatewayError("the answer of a worker is too large")
        return Answer(response.status, tuple(response.headers), found)
    finally:
        await pool.aclose()


class Telling:
    """The ASGI application of the supervisor's listener. ``drain()`` makes it unready for good."""

    def __init__(self, ports: Callable[[], Mapping[int, int]], *, count: int) -> None:
        self._ports = ports
        self._count = count
        self._draining = False
        self._turn = 0
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def drain(self) -> None:
        self._draining = True

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path, method = bytes(scope.get("raw_path") or b""), scope["method"]
        if path.startswith(OPERATORS):
            await self._passed_on(scope, receive, send)
        elif method not in {"GET", "HEAD"}:
            await _answer(send, 405, _JSON, b'{"status":"method_not_allowed"}')
        elif path == b"/livez":
            await _answer(send, 200, _JSON, b'{"status":"alive"}')
        elif path == b"/readyz":
            status, document = readiness(
                await self._all(b"/readyz"), count=self._count, draining=self._draining
            )
            await _answer(send, status, _JSON, json.dumps(document).encode())
        elif path == b"/metrics":
            texts = {
                number: found.body.decode()
                for number, found in (await self._all(b"/metrics")).items()
                if found.status == 200
            }
            await _answer(send, 200, _TEXT, (merged(texts) + self._own()).encode())
        else:
            await _answer(send, 404, _JSON, b'{"status":"not_found"}')

    async def _all(self, target: bytes) -> dict[int, Answer]:
        """What each worker answers; one that does not is left out."""

        async def one(number: int, port: int) -> tuple[int, Answer | None]:
            try:
                async with asyncio.timeout(_ASK_S):
                    return number, await ask(port, target)
            except (GatewayError, TimeoutError):
                return number, None

        found = await asyncio.gather(*(one(*entry) for entry in sorted(self._ports().items())))
        return {number: answer for number, answer in found if answer is not None}

    async def _passed_on(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """An operator's question, to the next worker."""
        ports = sorted(self._ports().items())
        if not ports:
            await _answer(send, 503, _JSON, b'{"status":"not_ready"}')
            return
        try:
            body = await Body(receive, scope["headers"], _LIMITS).whole()
        except Refusal as refusal:
            told = json.dumps({"status": refusal.code}).encode()
            await _answer(send, status_of(refusal.code), _JSON, told)
            return
        except CallerGone:
            return
        self._turn += 1
        query = bytes(scope["query_string"])
        target = bytes(scope["raw_path"]) + (b"?" + query if query else b"")
        headers = tuple(
            (bytes(name), bytes(value))
            for name, value in scope["headers"]
            if name not in _HOP and name != b"host"
        )
        try:
            found = await ask(
                ports[self._turn % len(ports)][1],
                target,
                method=scope["method"],
                headers=headers,
                body=body,
            )
        except GatewayError:
            await _answer(send, 503, _JSON, b'{"status":"not_ready"}')
            return
        kept = [one for one in found.headers if one[0] not in _HOP and one[0] != b"date"]
        await _send(send, found.status, kept, found.body)

    def _own(self) -> str:
        lines: list[str] = []
        for name, (help_text, read) in sorted(self.gauges.items()):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {read():g}"]
        return "".join(f"{line}\n" for line in lines)


def readiness(
    answers: Mapping[int, Answer], *, count: int, draining: bool
) -> tuple[int, dict[str, object]]:
    """The readiness of the address: the best worker decides whether, the worst one how well."""
    told = [json.loads(answer.body) for answer in answers.values() if answer.status in {200, 503}]
    checks: dict[str, str] = {}
    for one in told:
        for name, code in one["checks"].items():
            if checks.get(name, "ok") == "ok":
                checks[name] = code
    ready = [one for one in told if one["status"] != "not_ready"]
    if draining or not ready:
        status = "not_ready"
    else:
        status = max((one["status"] for one in told), key=_RANK.index)
        status = "degraded" if status == "not_ready" or len(told) < count else status
    checks["workers"] = "ok" if len(ready) == count else "workers_missing"
    if draining:
        checks["drain"] = "draining"
    return (503 if status == "not_ready" else 200), {
        "status": status,
        "checks": checks,
        "workers": {"ready": len(ready), "wanted": count},
    }


def merged(texts: Mapping[int, str]) -> str:
    """Several expositions as one: each family once, each sample with the label ``worker``."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, text in sorted(texts.items()):
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                if line not in heads.setdefault(family, []):
                    heads[family].append(line)
            elif (match := _SAMPLE.fullmatch(line)) is not None:
                labels = f'worker="{number}"' + (f",{match[2]}" if match[2] else "")
                samples.setdefault(family, []).append(f"{match[1]}{{{labels}}} {match[3]}")
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "".join(f"{line}\n" for line in lines)


async def _answer(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
    await _send(send, status, headers, body)


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
