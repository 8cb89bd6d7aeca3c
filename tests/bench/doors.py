"""The two doors a question goes through: the retrieval service itself, and the gateway's socket."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from deploy.demo.stage import Stage
from deploy.demo.voice import Voice
from retrieval.contract import Ask, RetrieveRequest, SubjectWire
from retrieval.service import Retrieval


@dataclass(frozen=True, slots=True)
class Question:
    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """``phases``: milliseconds by phase, empty where the door hides them."""

    mode: str
    phases: dict[str, float]


class Door(Protocol):
    async def ask(self, question: Question) -> Reply:
        """Raises RuntimeError for anything but a good answer."""
        ...


@dataclass(slots=True)
class ServiceDoor:
    """``Retrieval.ask``, as the gateway would call it for each person."""

    retrieval: Retrieval
    subjects: dict[str, SubjectWire]
    _number: itertools.count[int] = field(default_factory=itertools.count)

    async def ask(self, question: Question) -> Reply:
        answer = await self.retrieval.ask(
            Ask(
                operation="retrieve",
                subject=self.subjects[question.who],
                request=RetrieveRequest(query=question.text),
                request_id=f"bench-{next(self._number)}",
                deadline_ms=30_000,
            )
        )
        if answer.response is None:
            raise RuntimeError(f"{answer.status} {answer.code} for {question}")
        return Reply(answer.response.mode, dict(answer.timings))


@dataclass(slots=True)
class GatewayDoor:
    """``POST /v1/retrieve`` over kept connections. Written by hand: a comfortable client costs
    more than the gateway does, and would be measured with it."""

    url: str
    tokens: dict[str, str]
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def ask(self, question: Question) -> Reply:
        address = urlsplit(self.url)
        reader, writer = await self._connection(address.hostname, address.port)
        body = json.dumps({"query": question.text}).encode()
        writer.write(
            f"POST /v1/retrieve HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"authorization: Bearer {self.tokens[question.who]}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("\r\ncontent-length:")[2].partition("\r\n")[0])
        answer = json.loads(await reader.readexactly(length))
        if " 200 " not in head.partition("\r\n")[0]:
            raise RuntimeError(f"{answer} for {question}")
        self._idle.append((reader, writer))
        return Reply(answer["mode"], {})

    async def _connection(
        self, host: str | None, port: int | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():  # else the gateway ended it while it was idle
                return reader, writer
            writer.close()
        return await asyncio.open_connection(host, port)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


@asynccontextmanager
async def opened(stage: Stage, people: Sequence[str]) -> AsyncIterator[tuple[Door, Door]]:
    """The service's door and the gateway's, for these people of the demo."""
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as http:
        voice = Voice(http, stage.gateway.url, stage.directory)
        subjects = {who: await _subject(voice, who) for who in people}
        tokens = {who: await voice.token(who) for who in people}
    gateway = GatewayDoor(stage.gateway.url, tokens)
    try:
        yield ServiceDoor(stage.gateway.retrieval, subjects), gateway
    finally:
        gateway.close()


async def _subject(voice: Voice, who: str) -> SubjectWire:
    """Where policy places this person, in the gateway's own words."""
    scope = (await voice.get(who, "/v1/scope")).json()
    wanted = ("audience", "profiles", "tenants", "jurisdictions", "task_scope", "purpose")
    return SubjectWire(
        subject_id=f"bench-{who}",
        policy_digest=scope["policy_digest"],
        **{name: scope[name] for name in wanted},
    )
