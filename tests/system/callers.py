"""Callers of a running gateway: a few kept connections each, one request after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tests.system.steady import steady

CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    request_id: str

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def unnamed(self) -> bytes:
        """The body without the ids of request and packs: what must not depend on anything
        hidden. A pack's id is drawn for each delivery."""
        return steady(self.body, self.request_id)


def unit(address: str) -> Request:
    return Request("GET", f"/v1/units/{quote(address)}")


def pack(reference: str) -> Request:
    return Request("GET", f"/v1/threads/{quote(reference, safe='')}/pack")


def retrieve(query: str, **more: object) -> Request:
    return Request("POST", "/v1/retrieve", json.dumps({"query": query, **more}).encode())


@dataclass(frozen=True, slots=True)
class Caller:
    """One bearer token against one gateway."""

    url: str
    token: str

    async def ask(self, request: Request) -> Reply:
        (reply,) = await self.ask_all([request])
        return reply

    async def ask_all(self, requests: Sequence[Request]) -> list[Reply]:
        """The replies, in order; asked over several connections at once."""
        replies: list[Reply | None] = [None] * len(requests)
        waiting = iter(enumerate(requests))
        async with asyncio.TaskGroup() as together:
            for _ in range(min(CONNECTIONS, len(requests))):
                together.create_task(self._work(waiting, replies))
        return [reply for reply in replies if reply is not None]

    async def _work(
        self, waiting: Iterable[tuple[int, Request]], replies: list[Reply | None]
    ) -> None:
        parts = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            for place, request in waiting:
                writer.write(self._head(request, parts.netloc) + request.body)
                replies[place] = await _reply(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    def _head(self, request: Request, host: str) -> bytes:
        lines = [
            f"{request.method} {request.target} HTTP/1.1",
            f"host: {host}",
            f"authorization: Bearer {self.token}",
        ]
        if request.body:
            lines += ["content-type: application/json", f"content-length: {len(request.body)}"]
        return "\r\n".join([*lines, "", ""]).encode()


async def _reply(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = head.split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Reply(int(status.split()[1]), body, headers["x-request-id"])
