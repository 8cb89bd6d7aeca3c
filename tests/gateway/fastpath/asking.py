"""A caller that keeps its connection, and what a request leaves behind, less what is its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from gateway.decisions.writing import values_of
from gateway.telemetry.fields import RequestRecord, of_request
from policies.snapshot import Snapshot
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.stage import Stage

PATH = "/portal/customer/x"
_DATE = re.compile(rb"date: [^\r]+\r\n")
_ID = re.compile(rb"x-request-id: [^\r]+\r\n")
_OWN_ID = re.compile(rb'"request_id":"[^"]+"')
_TRACE = re.compile(rb"traceparent: [^\r]+\r\n")
_ASSERTION = re.compile(rb"x-gateway-assertion: ([^\r]+)\r\n")


def head(
    stage: Stage, target: str = PATH, *lines: str, audience: str = "customer", token: str = ""
) -> bytes:
    """A GET of this audience's caller with these further header lines."""
    token = token or (stage.issuers.token(audience) if audience else "")
    bearer = [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join(
        (f"GET {target} HTTP/1.1", "Host: gateway.test", *bearer, *lines, "", "")
    ).encode("latin-1")


class Caller:
    """One kept connection."""

    def __init__(self, stage: Stage, *, source: str = "127.0.0.1") -> None:
        self._address = ("127.0.0.1", stage.port)
        self._source = (source, 0)

    def __enter__(self) -> Self:
        self.sock = socket.create_connection(self._address, 10, self._source)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()

    def ask(self, raw: bytes) -> bytes:
        """The whole answer, as it came; what came until then if the gateway closes."""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            self.sock.sendall(raw)
        return self.answer()

    def answer(self) -> bytes:
        """The next whole answer."""
        received = b""
        try:
            while not whole(received):
                piece = self.sock.recv(65536)
                if not piece:
                    return received
                received += piece
        except ConnectionResetError:
            received += b"<reset>"
        return received


def whole(received: bytes) -> bool:
    """Whether an answer stands there to its end, as far as its framing tells."""
    head, found, rest = received.partition(b"\r\n\r\n")
    if not found:
        return False
    if b"\r\ntransfer-encoding: chunked" in head:
        return rest.endswith(b"0\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head)
    return length is None or len(rest) >= int(length[1])


@dataclass(frozen=True)
class Left:
    """What one request left: its answer, what its upstream got, what was recorded."""

    answer: bytes
    asked: tuple[bytes, ...]
    records: tuple[Any, ...]


def left_by(stage: Stage, caller: Caller, raw: bytes) -> Left:
    """Ask, and see what is left, less ids, dates, times and signatures."""
    stage.call(asyncio.sleep(0))
    stage.upstream.requests.clear()
    before = len(stage.records.all)
    answer = caller.ask(raw)
    stage.call(asyncio.sleep(0))  # what wrote it has recorded it
    return Left(
        _OWN_ID.sub(b"", _DATE.sub(b"", _ID.sub(b"", answer))),
        tuple(_plain(one) for one in stage.upstream.requests),
        tuple(_recorded(one) for one in stage.records.all[before:]),
    )


def _plain(request: bytes) -> bytes:
    request = _ID.sub(b"", _TRACE.sub(b"", request))
    return _ASSERTION.sub(lambda found: b"assertion: %b\r\n" % _claims(found[1]), request)


def _claims(token: bytes) -> bytes:
    text = token.split(b".")[1]
    claims = json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    return json.dumps({k: v for k, v in claims.items() if k not in {"iat", "exp", "rid"}}).encode()


def _recorded(record: RequestRecord) -> Any:
    values = {**of_request(record), **values_of(record, sampled=1.0)}
    own = ("gateway.request_id", "decision_id", "request_id", "trace_id", "at", "duration_us")
    stations = tuple(one.station for one in record.stations) if record.trace.sampled else ()
    linked = record.trace.peer, record.trace.continued
    sizes = record.bytes_in, record.bytes_out, record.peer
    return {k: v for k, v in values.items() if k not in own}, stations, linked, sizes


def forget(stage: Stage) -> None:
    """Make the stage know nobody."""

    async def forgotten() -> None:
        memory = stage.keeper.memory
        for name in list(memory._known):
            memory.forget(name)

    stage.call(forgotten())


def warm(stage: Stage, caller: Caller, raw: bytes) -> bytes:
    """Ask once, so that the next such request may be taken; the answer."""
    answer = caller.ask(raw)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return answer


class Portal:
    """An upstream that does what a script says on each connection, and records."""

    def __init__(self, script: Script) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, self.connections, self.requests)
        self.connections += 1
        try:
            await self._script(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway is gone: what it did is in the records
        finally:
            writer.close()


@contextlib.contextmanager
def playing(stage: Stage, script: Script) -> Iterator[Portal]:
    """The stage with an upstream of this script, no connection to an earlier one, and nobody
    known."""
    ordinary, portal = stage.upstream, Portal(script)
    forget(stage)
    cut(stage)
    stage.upstream = portal  # type: ignore[assignment]  # serves, and that is all
    try:
        yield portal
    finally:
        stage.upstream = ordinary
        cut(stage)


def cut(stage: Stage) -> None:
    """Cut every connection that is kept to an upstream."""

    async def all_cut() -> None:
        for transport in stage.hop._transports.values():
            await transport.aclose()

    stage.call(all_cut())


def enforce(stage: Stage, snapshot: Snapshot) -> None:
    """Bring a policy into force, as a prepared one comes."""

    async def advance() -> None:
        stage.holder.prepare(snapshot)
        assert stage.holder.advance(snapshot.digest)

    stage.call(advance())
