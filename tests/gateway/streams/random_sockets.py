"""A client of sockets that behaves as no good client does, and checks all that it gets.

Each connection plays a script drawn from a seed: messages in fragments with pings between them, in
pieces that are cut anywhere, with pauses; ended by a close, a reset, half a close, by not reading,
or by bytes that are no frame. What comes back are its own messages, whole and in order.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import WebSocketURI

from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.relay.sockets import Frames, accepted

BROKEN: Final = (
    (b"\x81\x05hello", 1002),
    (b"\xc1\x80\x00\x00\x00\x00", 1002),
    (b"\x83\x80\x00\x00\x00\x00", 1002),
    (b"\x80\x80\x00\x00\x00\x00", 1002),
    (b"\x81\x81\x00\x00\x00\x00\xff", 1007),
    (b"\x82\xff\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 1009),
    (b"\x88\x81\x00\x00\x00\x00\x03", 1002),
    (b"\x89\xfe\x00\x7e\x00\x00\x00\x00", 1002),
)
"""Bytes that end a socket, and the code that their sender is told."""
ENDS: Final = ("close", "broken", "reset", "half", "leave", "deaf")


@dataclass
class Tally:
    """What became of everything."""

    sockets: int = 0
    messages: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def echoes_in_pieces(seed: int) -> Script:
    """An upstream that sends each message back in fragments, with pings between, cut anywhere."""
    numbers = iter(range(1_000_000_000))

    async def script(peer: Peer) -> None:
        request = await peer.request()
        if not request:
            return
        dice = random.Random(f"{seed}-{next(numbers)}")
        await peer.say(accepted(request))
        frames = Frames(peer)
        while True:
            opcode, data = await frames.hear()
            if opcode is Opcode.CLOSE:
                await frames.say(opcode, data)
                return
            if opcode is Opcode.PING:
                await frames.say(Opcode.PONG, data)
            elif opcode is not Opcode.PONG:
                raw = fragmented(dice, opcode, data, mask=False)
                for piece in cut(dice, raw, dice.choice((1, 1, 1, 3))):
                    await peer.say(piece)

    return script


def fragmented(dice: random.Random, opcode: Opcode, data: bytes, *, mask: bool) -> bytes:
    """A message in some fragments, empty ones too, with pings between."""
    pieces = cut(dice, data, dice.choice((1, 1, 2, 5)))
    raw = b""
    for place, piece in enumerate(pieces):
        kind, fin = (Opcode.CONT if place else opcode), place == len(pieces) - 1
        raw += Frame(kind, piece, fin).serialize(mask=mask)
        if not fin and dice.random() < 0.3:
            raw += Frame(Opcode.PING, dice.randbytes(dice.randrange(126))).serialize(mask=mask)
    return raw


def cut(dice: random.Random, data: bytes, count: int) -> list[bytes]:
    places = sorted(dice.randrange(len(data) + 1) for _ in range(count - 1))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def messages_of(dice: random.Random, name: str) -> list[tuple[Opcode, bytes]]:
    """Messages that say whose they are."""
    found = []
    for number in range(dice.choice((1, 3, 10, 40))):
        size = dice.choices((0, 1, 100, 3_000, 70_000), (2, 2, 6, 3, 1))[0]
        if dice.random() < 0.5:
            text = f"{name} {number} " + dice.choice(("a", "é", "你", "🙂")) * (size // 4)
            found.append((Opcode.TEXT, text.encode()))
        else:
            found.append((Opcode.BINARY, f"{name} {number} ".encode() + dice.randbytes(size)))
    return found


class Heard:
    """What came, put together by somebody else's reader."""

    def __init__(self) -> None:
        self.messages: list[tuple[Opcode, bytes]] = []
        self.closed: int | None = None
        uri = WebSocketURI(False, "h", 1, "/", "")
        self._wire = ClientProtocol(uri, state=State.OPEN, max_size=200_000)
        self._parts: list[Frame] = []

    def take(self, data: bytes) -> None:
        self._wire.receive_data(data)
        if self._wire.parser_exc is not None:
            raise AssertionError(f"no frame: {self._wire.parser_exc}")
        for one in self._wire.events_received():
            assert isinstance(one, Frame)
            if one.opcode is Opcode.CLOSE:
                close = self._wire.close_rcvd
                self.closed = None if close is None else int(close.code)
            elif one.opcode < Opcode.CLOSE:
                self._parts.append(one)
                if one.fin:
                    whole = b"".join(bytes(part.data) for part in self._parts)
                    self.messages.append((self._parts[0].opcode, whole))
                    self._parts = []


async def play(name: str, port: int, head: bytes, tally: Tally) -> None:
    """One connection, from its handshake to its end."""
    dice = random.Random(name)
    said, end = messages_of(dice, name), dice.choices(ENDS, (10, 4, 3, 2, 2, 1))[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tally.sockets += 1
    heard = Heard()
    try:
        async with asyncio.timeout(60):
            writer.write(head)
            answer = await reader.readuntil(b"\r\n\r\n")
            if answer.startswith((b"HTTP/1.1 502", b"HTTP/1.1 503", b"HTTP/1.1 504")):
                end = "late"  # an upstream on a busy machine: a refusal that is nobody's fault
                return
            if not answer.startswith(b"HTTP/1.1 101"):
                raise AssertionError(answer[:80])
            await _talk(dice, said, end, reader, writer, heard)
    except AssertionError as fault:
        tally.faults.append(f"{name}: {fault}")
    except TimeoutError:
        tally.faults.append(f"{name}: no end after {len(heard.messages)} of {len(said)}, {end}")
    except (OSError, asyncio.IncompleteReadError):
        tally.ends["cut"] += 1
    finally:
        writer.transport.abort()
        tally.ends[end] += 1
    tally.messages += len(heard.messages)
    if heard.messages != said[: len(heard.messages)]:
        tally.faults.append(f"{name}: messages that are not its own")


async def _talk(
    dice: random.Random,
    said: list[tuple[Opcode, bytes]],
    end: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    heard: Heard,
) -> None:
    raw = b"".join(fragmented(dice, opcode, data, mask=True) for opcode, data in said)
    broken, code = dice.choice(BROKEN)
    if end == "broken":
        raw += broken
    elif end != "close":
        raw = raw[: dice.randrange(len(raw)) + 1]
    sending = asyncio.create_task(_sent(dice, raw, writer))
    try:
        match end:
            case "close":
                await _hear(reader, heard, len(said))
                await sending
                writer.write(Frame(Opcode.CLOSE, b"\x0f\xa1bye").serialize(mask=True))
                await _hear(reader, heard)
                assert heard.closed == 4001, heard.closed
            case "broken":
                await _hear(reader, heard)
                assert heard.closed == code, (heard.closed, broken)
            case "half":
                await sending
                writer.write_eof()
                await _hear(reader, heard)
            case "deaf":
                await asyncio.sleep(dice.random() * 0.5)
            case _:
                await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    if end == "reset":
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def _sent(dice: random.Random, raw: bytes, writer: asyncio.StreamWriter) -> None:
    pause_s = dice.choices((0, 0.001, 0.01), (12, 2, 1))[0]
    for piece in cut(dice, raw, dice.choice((1, 1, 2, 5, 40))):
        writer.write(piece)
        await writer.drain()
        if pause_s:
            await asyncio.sleep(pause_s)


async def _hear(reader: asyncio.StreamReader, heard: Heard, count: int = -1) -> None:
    """Take what comes until there are so many messages, or the end."""
    while len(heard.messages) != count and (data := await reader.read(65_536)):
        heard.take(data)


async def fuzz(port: int, heads: Mapping[str, bytes], *, seed: int, sockets: int) -> Tally:
    """Play so many connections, two dozen at once, each in the name of one of these people."""
    tally, people = Tally(), sorted(heads)
    numbers = iter(range(sockets))

    async def one() -> None:
        for number in numbers:
            if tally.faults:
                return
            who = people[number % len(people)]
            await play(f"{seed}-{number}-{who}", port, heads[who], tally)

    async with asyncio.TaskGroup() as together:
        for _ in range(24):
            together.create_task(one())
    return tally
