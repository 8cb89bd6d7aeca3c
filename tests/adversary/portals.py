"""Three portals behind the gateway, on raw sockets: each records all that arrives.

An answer says which portal gave it and what it was asked, so that one which reaches the wrong
caller is seen by that caller.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

NAMES: Final = ("customer-portal", "partner-portal", "employee-portal")


@dataclass(frozen=True, slots=True)
class Arrived:
    """One request as an upstream read it. ``whole``: its body came to an end."""

    portal: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    whole: bool

    def values(self, name: str) -> list[str]:
        return [value for one, value in self.headers if one == name]

    def value(self, name: str) -> str:
        (found,) = self.values(name)
        return found

    def answer(self) -> bytes:
        """What the portal says about the request, as the body of its answer."""
        said = {
            "portal": self.portal,
            "method": self.method,
            "target": self.target,
            "audience": self.values("x-gateway-audience"),
            "subject": self.values("x-gateway-subject"),
            "marker": self.values("x-marker"),
            "body": hashlib.sha256(self.body).hexdigest(),
            "filler": "." * sum(int(one) for one in self.values("x-filler")),
        }
        return json.dumps(said).encode()


class Portals:
    """The portals, in a thread of their own. ``arrived`` is in the order of arrival.

    A request is written down when its header block is there and again (in place) when its body
    has ended, so that half of one is seen as well.
    """

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.addresses: dict[str, str] = {}
        self.open = 0
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="portals", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def settle(self) -> None:
        """Return when everything is read that stood in a socket of ours when this was called.

        A connection is accepted in one turn of the loop, read in the next, understood in a third.
        """

        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(turns(), self._loop).result(20)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        servers = []
        for name in NAMES:
            server = await asyncio.start_server(self._handler(name), "127.0.0.1", 0, backlog=1024)
            self.addresses[name] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            servers.append(server)
        self._up.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _handler(self, name: str):  # type: ignore[no-untyped-def]  # asyncio's own callback type
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            self.open += 1
            try:
                while await self._one(name, reader, writer):
                    pass
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass  # the gateway cut it, or the test ends
            finally:
                self.open -= 1
                self._tasks.discard(task)
                writer.close()

        return handle

    async def _one(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head[:-4].split("\r\n")
        method, target, _ = line.split(" ")
        pairs = (one.partition(":") for one in lines)
        headers = tuple((key.lower(), value.strip(" \t")) for key, _, value in pairs)
        begun = Arrived(name, method, target, headers, b"", whole=False)
        self.arrived.append(begun)
        place = len(self.arrived) - 1
        body = await _body(dict(headers), reader)
        whole = Arrived(name, method, target, headers, body, whole=True)
        if place < len(self.arrived) and self.arrived[place] is begun:
            self.arrived[place] = whole
        said = whole.answer()
        status = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        writer.write(f"{status}content-length: {len(said)}\r\n\r\n".encode())
        if method != "HEAD":
            writer.write(said)
        await writer.drain()
        return True


async def _body(headers: dict[str, str], reader: asyncio.StreamReader) -> bytes:
    if "transfer-encoding" not in headers:
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
