"""A running gateway on free ports: its listener, an upstream that records, a retrieval to script.

Everything real crosses a socket. Retrieval is an ASGI callable that answers what a test
scripts, by the contract; registry and journal are kept in memory (their Postgres forms have
tests of their own).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import uvloop

from gateway.app import DataPlane
from gateway.authn.bearer import Authenticator
from gateway.authn.own_keys import OwnKeys
from gateway.egress.guard import Guard
from gateway.egress.registry import Content, Key, Label, Registered, RegistryUnavailable
from gateway.fastpath.keeper import Keeper
from gateway.holder import SnapshotHolder
from gateway.ingress.door import Door
from gateway.ingress.limits import Limits
from gateway.ingress.provenance import trusted_peer
from gateway.ingress.shortcut import Lane, Way
from gateway.journal.contract import Breaches
from gateway.journal.event import JournalUnavailable, SecurityEvent
from gateway.relay.fleet import Fleet
from gateway.relay.hop import Hop, Target
from gateway.relay.pool import Address, Pool
from gateway.relay.retrieval import InProcessRetrieval
from gateway.relay.upstream import UpstreamTimes
from gateway.server import bind, serve
from gateway.surfaces.forward_auth.lane import lanes_of
from gateway.surfaces.forward_auth.plane import beside
from gateway.telemetry.fields import RequestRecord
from gateway.telemetry.trace import TraceContext, begin
from policies.snapshot import Snapshot
from retrieval.contract import Answer, Ask
from tests.gateway import answers
from tests.gateway.journal.made import MemoryJournal
from tests.gateway.tokens import Issuers

if TYPE_CHECKING:
    from gateway.relay.admission import Admission

T = TypeVar("T")
GATEWAY_ID = "urn:audience-gateway:test"
PORTALS = ("customer-portal", "partner-portal", "employee-portal")
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Reply:
    """One parsed response of the gateway."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name]
        return ", ".join(found) if found else None


def parse(raw: bytes) -> list[Reply]:
    """Every complete response in ``raw``; chunked ones are put together."""
    replies = []
    while raw.startswith(b"HTTP/1.1"):
        head, _, raw = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = [(k.lower(), v.strip()) for k, _, v in (one.partition(":") for one in lines[1:])]
        status = int(lines[0].split()[1])
        named = dict(headers)
        if "chunked" in named.get("transfer-encoding", ""):
            body = b""
            while True:
                size, _, raw = raw.partition(b"\r\n")
                count = int(size, 16)
                body, raw = body + raw[:count], raw[count + 2 :]
                if count == 0:
                    break
        else:
            length = int(named.get("content-length", "0"))
            body, raw = raw[:length], raw[length:]
        replies.append(Reply(status, headers, body))
    return replies


class Upstream:
    """Records every byte that arrives, per connection, and answers what it is told to."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer: bytes | Callable[[bytes], bytes] = OK
        self.after: bytes = b""
        self.close_after = False
        self.hold = False
        self.asked = threading.Event()
        self.lost = threading.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = head + await self._body(head, reader)
                self.requests.append(request)
                self.asked.set()
                answer = self.answer(request) if callable(self.answer) else self.answer
                writer.write(answer + self.after)
                await writer.drain()
                if self.hold:
                    await reader.read()
                    self.lost.set()
                    return
                if self.close_after:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost.set()
        finally:
            writer.close()

    async def _body(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return await reader.readexactly(int(line.partition(b":")[2]))
            if line.startswith(b"transfer-encoding:"):
                body = b""
                while not body.endswith(b"0\r\n\r\n"):
                    body += await reader.readuntil(b"\n")
                return body
        return b""


class ScriptedRetrieval:
    """An ASGI retrieval that answers with ``script(ask)`` and records what it was asked.

    ``withheld`` are the answers that were called back; with ``deaf`` it cannot write that down.
    """

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.withheld: list[UUID] = []
        self.deaf = False
        self.script: Callable[[Ask], Answer | bytes] = lambda _: Answer(status=404, code="none")

    async def __call__(
        self, _scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]
    ) -> None:
        ask = Ask.model_validate_json((await receive())["body"])
        if ask.operation == "withheld":
            self.withheld.append(UUID(ask.reference or ""))
            answer: Answer | bytes = Answer(status=503 if self.deaf else 200)
        else:
            self.asks.append(ask)
            answer = self.script(ask)
        body = answer if isinstance(answer, bytes) else answer.model_dump_json().encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


@dataclass
class MemoryRegistry:
    """Labels by id; whatever is not in it does not exist."""

    labels: dict[Key, Label] = field(default_factory=dict)
    contents: dict[UUID, Content] = field(default_factory=dict)
    consents: set[tuple[str, str, UUID]] = field(default_factory=set)
    digests: list[str] = field(default_factory=list)
    down: bool = False

    async def look_up(self, keys: Collection[Key], *, subject_id: str, purpose: str) -> Registered:
        if self.down:
            raise RegistryUnavailable("down")
        digest = self.digests.pop(0) if len(self.digests) > 1 else self.digests[0]
        consented = {one for s, p, one in self.consents if (s, p) == (subject_id, purpose)}
        return Registered(
            digest,
            {key: self.labels[key] for key in keys if key in self.labels},
            {
                one: self.contents[one]
                for sort, one in keys
                if sort == "unit" and (sort, one) in self.labels
            },
            tuple(sorted(consented & {one for _, one in keys})),
        )


class BreakableJournal(MemoryJournal):
    """A journal whose disk can be full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    async def record(self, event: SecurityEvent) -> None:
        if self.full:
            raise JournalUnavailable("disk full")
        await super().record(event)

    async def record_breaches(self, breaches: Breaches) -> None:
        if self.full:
            raise JournalUnavailable("disk full")
        await super().record_breaches(breaches)


class Records:
    """The records of all requests, and a way to wait for the next one."""

    def __init__(self) -> None:
        self.all: list[RequestRecord] = []
        self.some = threading.Event()
        self._under_way = 0
        self._changed = threading.Condition()

    def begin(self, traceparent: bytes | None, *, trusted: bool) -> TraceContext:
        with self._changed:
            self._under_way += 1
        return begin(traceparent, trusted=trusted, sample_ratio=0)

    def record(self, record: RequestRecord) -> None:
        self.all.append(record)
        self.some.set()
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def forget(self) -> None:
        """Nothing was recorded. What is still under way ends first: a record comes after its
        answer, so the last one of a test may come in the next. (A decision that leaves the short
        way begins twice and is recorded once: it is not waited for much longer.)"""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way <= 0, 0.5)
            self._under_way = 0
        self.all.clear()
        self.some.clear()


class Counted:
    """The lane of a stage, and how many requests it took."""

    def __init__(self, lane: Lane) -> None:
        self.taken = 0
        self._lane = lane

    def take(self, way: Way, data: bytes) -> bool:
        taken = self._lane.take(way, data)
        self.taken += taken
        return taken


class Stage:
    """The gateway under test. ``reset`` between tests; one per session is enough."""

    def __init__(
        self,
        snapshot: Snapshot,
        issuers: Issuers,
        limits: Limits,
        admission: Admission | None = None,
    ) -> None:
        self.admission = admission
        self.turned_away: list[tuple[str, str, str]] = []
        self.door = Door(
            limits,
            trusted=lambda client: (
                trusted_peer(client, self.holder.current.trusted_peers) is not None
            ),
            told=lambda *told: self.turned_away.append(told),
        )
        self.snapshot = snapshot
        self.issuers = issuers
        self.limits = limits
        self.keys = OwnKeys.generate()
        self.holder = SnapshotHolder(snapshot)
        self.upstream = Upstream()
        self.retrieval = ScriptedRetrieval()
        self.registry = MemoryRegistry()
        self.journal = BreakableJournal()
        self.records = Records()
        self.drained = threading.Event()
        self.data_socket, self.admin_socket = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
        self.port: int = self.data_socket.getsockname()[1]
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._handlers: set[asyncio.Task[Any]] = set()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stage", daemon=True)
        self.reset()

    def reset(self) -> None:
        self.records.forget()
        self.upstream.__init__()  # type: ignore[misc]
        self.retrieval.__init__()  # type: ignore[misc]
        self.registry.__init__(  # type: ignore[misc]
            digests=[self.snapshot.digest], contents=dict(answers.contents())
        )
        self.journal.__init__()  # type: ignore[misc]
        self.turned_away.clear()

    def __enter__(self) -> Stage:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the stage's loop."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve())
        finally:
            self.loop.close()

    async def _behind(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            await self.upstream.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the stage ends
        finally:
            self._handlers.discard(task)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        behind = await asyncio.start_server(self._behind, "127.0.0.1", 0)
        address = Address(host="127.0.0.1", port=behind.sockets[0].getsockname()[1])
        times = UpstreamTimes(connect_s=2, first_byte_s=2, idle_s=2, write_s=2)
        fleet = Fleet(addresses=[address], times=times)
        target = Target(address.authority, lambda: Pool(address=address, times=times), fleet.socket)
        self.hop = Hop(dict.fromkeys(PORTALS, target), keys=self.keys, gateway_id=GATEWAY_ID)
        app = DataPlane(
            snapshots=self.holder,
            authenticator=Authenticator(fetch=_no_fetch),
            keys=self.keys,
            guard=Guard(
                retrieval=InProcessRetrieval(self.retrieval),
                registry=self.registry,
                journal=self.journal,
            ),
            hop=self.hop,
            sink=self.records,
            limits=self.limits,
            gateway_id=GATEWAY_ID,
            admission=self.admission,
        )
        self.streams = app.streams
        self.keeper = Keeper(app)
        self.lane = Counted(lanes_of(self.keeper))
        self.authenticator = app.authenticator

        async def drain() -> None:
            self.drained.set()

        async def ready() -> None:
            self._up.set()

        await serve(
            beside(app),
            app,
            data_socket=self.data_socket,
            admin_socket=self.admin_socket,
            limits=self.limits,
            on_drain=drain,
            drain_wait_s=0,
            graceful_s=2,
            stop=self._stop,
            on_ready=ready,
            on_end=app.streams.drain,
            door=self.door,
            lane=self.lane,
        )
        await self.hop.aclose()
        behind.close()
        handlers = list(self._handlers)
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    # --- a raw client ---------------------------------------------------------------------

    def raw(self, data: bytes, *, half_close: bool = False, timeout_s: float = 10) -> bytes:
        """Send bytes, read until the gateway closes or nothing more can come."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as sock:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            received = b""
            try:
                while piece := sock.recv(65536):
                    received += piece
            except ConnectionResetError:
                received += b"<reset>"
            return received

    def ask(
        self,
        method: str,
        target: str,
        *,
        token: str | None = None,
        headers: Collection[tuple[str, str]] = (),
        body: bytes = b"",
        host: str = "gateway.test",
    ) -> Reply:
        """One request on a connection of its own."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        raw = self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        if method == "HEAD":
            head = raw.partition(b"\r\n\r\n")[0].replace(b"content-length", b"x-length")
            raw = head + b"\r\n\r\n"
        (reply,) = parse(raw)
        return reply


async def _no_fetch(url: str) -> bytes:
    raise AssertionError(f"an address was fetched: {url}")
