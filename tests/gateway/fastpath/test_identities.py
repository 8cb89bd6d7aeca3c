"""Two identities at once, over kept connections: no answer ever reaches the other one.

The upstream says whom it answered, after a while, in pieces, or not at all; callers leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re

from tests.gateway.fastpath.asking import PATH, forget, head, playing
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.stage import Stage

CALLERS = 12
REQUESTS = 60
_SUBJECT = re.compile(rb"x-gateway-subject: ([^\r]*)\r\n")


def naming(seed: int) -> Script:
    """An upstream that answers each request with its target and subject, in some fashion."""
    chance = random.Random(seed)

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            subject = _SUBJECT.search(request)
            assert subject is not None
            body = request.split()[1] + b" " + subject[1]
            length = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.005)))
            match chance.randrange(12):
                case 0:
                    await peer.say(length + body[:3])
                    peer.reset()
                    return
                case 1:
                    peer.reset()
                    return
                case 2:
                    await peer.say(length, body[:2], body[2:])
                case 3:
                    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                    await peer.say(chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
                case 4:
                    await peer.say(length.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
                    await peer.say(body)
                    return
                case 5:
                    await peer.say(length + body + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    return
                case _:
                    await peer.say(length + body)

    return script


async def _caller(stage: Stage, number: int, raw: bytes, own: bytes) -> tuple[int, int]:
    """Answers that were this caller's own, and answers that were lost."""
    chance, sound, lost = random.Random(number), 0, 0
    reader = writer = None
    for count in range(REQUESTS):
        if reader is None or writer is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        path = raw.split()[1]
        target = path + b"-%d-%d" % (number, count % 5)
        writer.write(raw.replace(path, target, 1))
        if chance.randrange(10) == 0:  # leaves while its answer is on its way
            await asyncio.sleep(chance.choice((0, 0.001, 0.003)))
            await _leave(writer)
            reader = writer = None
            continue
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer)
            if length is not None:
                body = await reader.readexactly(int(length[1]))
            else:
                body = await reader.readuntil(b"0\r\n\r\n")
                body = body.split(b"\r\n")[1]
        except (asyncio.IncompleteReadError, ConnectionError):
            lost += 1
            await _leave(writer)
            reader = writer = None
            continue
        if answer.startswith(b"HTTP/1.1 502"):
            lost += 1
        else:
            assert body == target + b" " + own
            sound += 1
        if b"connection: close" in answer:
            await _leave(writer)
            reader = writer = None
    if writer is not None:
        await _leave(writer)
    return sound, lost


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_answers_reach_whom_they_are_for(stage: Stage) -> None:
    """Of 720 requests of four identities on two routes."""
    raws = [
        head(stage, PATH.replace("customer", audience), audience=audience, token=token)
        for audience in ("customer", "partner")
        for token in (
            stage.issuers.token(audience, sub="one"),
            stage.issuers.token(audience, sub="two"),
        )
    ]
    forget(stage)
    with playing(stage, naming(7)):
        before = stage.lane.taken

        async def all_at_once() -> list[tuple[int, int]]:
            owns = [await _own(stage, raw) for raw in raws]
            callers = []
            for number in range(CALLERS):
                which = number % len(raws)
                callers.append(_caller(stage, number, raws[which], owns[which]))
            return await asyncio.gather(*callers)

        found = asyncio.run(all_at_once())
        assert stage.lane.taken - before > 200
    assert sum(sound for sound, _ in found) > 400


async def _own(stage: Stage, raw: bytes) -> bytes:
    """The subject of this caller, as its upstream is told."""
    for _ in range(50):
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        writer.write(raw)
        try:
            answer = await asyncio.wait_for(reader.read(65536), 5)
            found = re.search(rb" (s\.[0-9a-f]+)", answer.partition(b"\r\n\r\n")[2])
        except ConnectionError:
            found = None
        await _leave(writer)
        if found is not None:
            return found[1]
    raise AssertionError("never answered")
