"""A client that behaves as no good client does, and checks every answer that it gets.

Each connection plays a script drawn from a seed: sound requests of several people, unsound ones,
cut ones; sent in fragments with pauses, pipelined or one by one; ended properly, by a reset, half
closed, or by not reading. Whatever happens, an answer belongs to the request at its place, to its
caller and to its portal, or there is none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

PEOPLE: Final = ("customer", "partner", "employee", "agent", "")
PORTALS: Final = ("customer", "partner", "employee")
UNSOUND: Final = (
    b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /portal/customer/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /portal/customer/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    b"GET http://evil/portal/customer/x HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /portal/customer/x HTTP/1.1\nHost: a\n\n",
    b"GET /portal/customer/x HTTP/3.7\r\nHost: a\r\n\r\n",
    b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /portal/customer/x HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 120 + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    b"\x00" * 200,
    b"\r\n" * 50 + b"BROKEN\r\n\r\n",
)
"""Each ends its connection: what stands behind it is answered to nobody."""
_READ_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Sound:
    """One request with a decided answer."""

    who: str
    portal: str
    method: str
    marker: str
    body: bytes
    chunks: int
    filler: int

    @property
    def allowed(self) -> bool:
        anonymous = not self.who and self.portal == "customer" and self.method != "POST"
        return self.who == self.portal or anonymous

    @property
    def statuses(self) -> frozenset[int]:
        if self.allowed:
            return frozenset({200})
        return frozenset({403} if self.who else {401})

    def raw(self, tokens: Mapping[str, str]) -> bytes:
        path = f"/portal/{self.portal}/{self.marker}"
        lines = [f"{self.method} {path} HTTP/1.1", "Host: a", f"X-Marker: {self.marker}"]
        if self.filler:
            lines.append(f"X-Filler: {self.filler}")
        if self.who:
            lines.append(f"Authorization: Bearer {tokens[self.who]}")
        body = self.body
        if self.method == "POST":
            if self.chunks:
                lines.append("Transfer-Encoding: chunked")
                size = max(1, len(body) // self.chunks)
                cut = [body[at : at + size] for at in range(0, len(body), size)]
                body = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in cut) + b"0\r\n\r\n"
            else:
                lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    def fault(self, status: int, body: bytes) -> str:
        """What is wrong with this answer to it; empty when nothing is."""
        if status in {408, 503}:  # late, or one too many: refusals that are nobody's answer
            return ""
        if status not in self.statuses:
            return f"{status} for {self}"
        if not self.allowed or self.method == "HEAD":
            return ""
        said = json.loads(body)
        expected = {
            "portal": f"{self.portal}-portal",
            "method": self.method,
            "target": f"/portal/{self.portal}/{self.marker}",
            "audience": [self.portal],
            "marker": [self.marker],
            "body": hashlib.sha256(self.body).hexdigest(),
        }
        wrong = {name: said[name] for name, value in expected.items() if said[name] != value}
        return f"{wrong} for {self}" if wrong else ""


@dataclass
class Tally:
    """What became of everything that was sent."""

    sent: int = 0
    connections: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def answered(self) -> int:
        return self.statuses.total()


@dataclass(frozen=True, slots=True)
class Script:
    """One connection: requests, what is sent after them, how, and how it ends."""

    requests: tuple[Sound, ...]
    after: bytes
    end: str
    pipelined: bool
    fragments: int
    pause_s: float


def drawn(dice: random.Random, name: str) -> Script:
    """A script. ``name`` makes the markers of its requests its own."""
    count = dice.choice((1, 2, 5, 12, 30))
    requests = tuple(_sound(dice, f"{name}-{place}") for place in range(count))
    return Script(
        requests=requests,
        after=dice.choice((b"", b"", dice.choice(UNSOUND))),
        end=dice.choices(("read", "reset", "half", "leave", "deaf"), (12, 2, 2, 1, 1))[0],
        pipelined=dice.random() < 0.5,
        fragments=dice.choice((1, 1, 2, 5, 40)),
        pause_s=dice.choices((0, 0.001, 0.02), (12, 2, 1))[0],
    )


def _sound(dice: random.Random, marker: str) -> Sound:
    portal = dice.choice(PORTALS)
    # mostly somebody who may: a refused body ends its connection, and the script with it
    who = portal if dice.random() < 0.7 else dice.choice(PEOPLE)
    method = dice.choice(("GET", "GET", "GET", "HEAD", "POST"))
    size = (
        dice.choices((0, 1, 7, 300, 5_000, 70_000), (3, 3, 3, 3, 2, 1))[0]
        if method == "POST"
        else 0
    )
    return Sound(
        who=who,
        portal=portal,
        method=method,
        marker=marker,
        body=dice.randbytes(size),
        chunks=dice.choice((0, 0, 1, 3, 40)),
        filler=dice.choices((0, 10, 3_000, 200_000), (20, 5, 4, 1))[0],
    )


async def play(script: Script, port: int, tokens: Mapping[str, str], tally: Tally) -> None:
    """Play one script and add to the tally what came of it."""
    dice = random.Random(script.requests[0].marker)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tally.sent += len(script.requests)
    tally.connections += 1
    try:
        async with asyncio.timeout(_READ_S):
            tally.ends[await _played(script, dice, tokens, tally, reader, writer)] += 1
    except TimeoutError:
        tally.faults.append(f"no end of {script}")
    except OSError:
        tally.ends["cut"] += 1
    finally:
        writer.transport.abort()


async def _played(
    script: Script,
    dice: random.Random,
    tokens: Mapping[str, str],
    tally: Tally,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    raws = [request.raw(tokens) for request in script.requests]
    whole = b"".join(raws) + script.after
    if script.end in {"reset", "leave", "deaf"}:
        await _fragmented(whole[: dice.randrange(len(whole)) + 1], script, dice, writer)
        if script.end == "deaf":
            await asyncio.sleep(dice.random() * 0.3)
        elif script.end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return script.end
    if script.pipelined:
        sending = asyncio.create_task(_fragmented(whole, script, dice, writer))
        try:
            for request in script.requests:
                if not await _answered(request, tally, reader):
                    return "ended"
            await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    else:
        for request, raw in zip(script.requests, raws, strict=True):
            await _fragmented(raw, script, dice, writer)
            if not await _answered(request, tally, reader):
                return "ended"
        await _fragmented(script.after, script, dice, writer)
    if script.end == "half":
        writer.write_eof()
    if script.after:
        rest = await reader.read(-1)
        if rest and not rest.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")):
            tally.faults.append(f"{rest[:200]!r} after {script.after[:80]!r}")
    return script.end


async def _fragmented(
    data: bytes, script: Script, dice: random.Random, writer: asyncio.StreamWriter
) -> None:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(script.fragments - 1))
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        writer.write(data[begin:end])
        await writer.drain()
        if script.pause_s:
            await asyncio.sleep(script.pause_s)


async def _answered(request: Sound, tally: Tally, reader: asyncio.StreamReader) -> bool:
    """Read the answer of one request; False when the connection ended instead."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(":") for line in head[:-4].split("\r\n")]
        headers = {name.lower(): value.strip() for name, _, value in lines[1:]}
        size = 0 if request.method == "HEAD" else int(headers.get("content-length", "0"))
        body = await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            tally.ends["truncated"] += 1
        return False
    status = int(head.split()[1])
    tally.statuses[status] += 1
    if fault := request.fault(status, body):
        tally.faults.append(fault)
    return headers.get("connection") != "close"


async def fuzz(
    port: int,
    tokens: Mapping[str, str],
    *,
    seed: int,
    requests: int,
    at_once: int = 24,
    until: float = float("inf"),
) -> Tally:
    """Play scripts until so many requests were answered, or the loop's clock says ``until``."""
    dice, tally = random.Random(seed), Tally()
    loop = asyncio.get_running_loop()
    number = 0

    async def one() -> None:
        nonlocal number
        while tally.answered < requests and loop.time() < until and not tally.faults:
            number += 1
            await play(drawn(dice, f"{seed}-{number}"), port, tokens, tally)

    async with asyncio.TaskGroup() as together:
        for _ in range(at_once):
            together.create_task(one())
    return tally
