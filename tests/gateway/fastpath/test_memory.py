"""What is remembered is bounded, and nobody can displace others beyond its share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fastpath import memory as bounds
from gateway.fastpath.head import read, target_of
from gateway.fastpath.memory import Known, Memory
from policies.snapshot import Snapshot
from policies.subject import Principal


@dataclass
class Sized:
    size: int = 1_000


def known(memory: Memory, block: bytes, subject: str = "", peer: str = "127.0.0.1") -> Known:
    principal = Principal("idp:x", subject, {}, (), (), 0.0) if subject else None
    return Known(
        name=memory.name(block, peer),
        snapshot=cast(Snapshot, None),
        generation=0,
        until=time.time() + 50,
        principal=principal,
        headers=(),
        scheme="http",
        peer=None,
        named=False,
        header_bytes=0,
        header_count=0,
        size=1_000,
    )


def run(work: object) -> None:
    async def scenario() -> None:
        work()  # type: ignore[operator]

    asyncio.run(scenario())


def test_one_caller_displaces_its_own_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "KNOWN_OF_ONE_MAX", 4)

    def scenario() -> None:
        memory = Memory(clock=time.time)
        others = [known(memory, b"other %d" % one, f"s.{one}") for one in range(3)]
        for one in others:
            memory.put(one)
        many = [known(memory, b"mine %d" % one, "s.me") for one in range(20)]
        for one in many:
            memory.put(one)
        assert all(memory.get(one.name) is one for one in others)
        assert [memory.get(one.name) is one for one in many] == [False] * 16 + [True] * 4
        assert memory.held_bytes == 7_000

    run(scenario)


def test_one_caller_with_long_blocks_and_many_targets_displaces_its_own_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "BYTES_MAX", 50_000)
    monkeypatch.setattr(bounds, "BYTES_OF_ONE_MAX", 20_000)

    def scenario() -> None:
        memory = Memory(clock=time.time)
        other = known(memory, b"other", "s.other")
        memory.put(other)
        for one in range(9):
            mine = known(memory, b"mine %d" % one, "s.me")
            memory.put(mine)
            for line in range(9):
                memory.add(mine, b"line %d" % line, Sized(3_000))
        assert memory.get(other.name) is other
        assert memory.held_bytes <= 21_000
        for name in list(memory._known):
            memory.forget(name)
        assert (memory.held_bytes, memory._shares) == (0, {})

    run(scenario)


def test_visitors_without_a_token_share_what_their_site_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "KNOWN_OF_ONE_MAX", 2)

    def scenario() -> None:
        memory = Memory(clock=time.time)
        for peer in ("10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
            for one in range(5):
                memory.put(known(memory, b"%d" % one, peer=peer))
        assert len(memory) == 8

    run(scenario)


def test_blocks_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "KNOWN_MAX", 5)
    monkeypatch.setattr(bounds, "BYTES_MAX", 20_000)
    monkeypatch.setattr(bounds, "COURSES_MAX", 3)

    def scenario() -> None:
        memory = Memory(clock=time.time)
        for one in range(9):
            memory.put(known(memory, b"%d" % one, f"s.{one}"))
        assert len(memory) == 5
        last = known(memory, b"last", "s.last")
        memory.put(last)
        for one in range(9):
            memory.add(last, b"line %d" % one, Sized())
        assert len(last.courses) == 3
        assert last.size == 4_000
        memory.add(last, b"long", Sized(18_000))
        assert memory.held_bytes <= 20_000
        memory.forget(last.name)
        assert memory.held_bytes == sum(one.size for one in memory._known.values())

    run(scenario)


def test_same_block_from_another_address_is_another() -> None:
    memory = Memory(clock=time.time)
    assert memory.name(b"block", "10.0.0.1") != memory.name(b"block", "10.0.0.2")
    assert memory.name(b"block", "10.0.0.1") != Memory(clock=time.time).name(b"block", "10.0.0.1")


@given(st.binary(max_size=80), st.booleans())
def test_head_is_one_whole_get_or_nothing(junk: bytes, ended: bool) -> None:
    """Whatever else stands there: what is read ends with the only empty line."""
    data = b"GET /x HTTP/1.1\r\nHost: a\r\n" + junk + (b"\r\n\r\n" if ended else b"")
    found = read(data)
    if found is not None:
        assert data.endswith(b"\r\n\r\n")
        assert data.count(b"\r\n\r\n") == 1
        assert found.line == b"GET /x HTTP/1.1"


@given(
    st.text(alphabet="0123456789abcdef", min_size=32, max_size=32),
    st.text(alphabet="abcXYZ019_.-", min_size=8, max_size=64),
)
def test_what_is_each_requests_own_is_cut_by_its_length(trace: str, told: str) -> None:
    """Blocks that differ in these values alone are one block; another length is another."""

    def block(trace: str, told: str) -> bytes:
        lines = (
            f"GET / HTTP/1.1\r\nTraceparent: 00-{trace}-b7ad6b7169203331-01\r\nX-Request-Id: {told}"
        )
        found = read(lines.encode() + b"\r\nHost: a\r\n\r\n")
        assert found is not None
        assert found.traceparent == f"00-{trace}-b7ad6b7169203331-01".encode()
        assert found.request_id == told.encode()
        return found.block

    assert block(trace, told) == block("0" * 32, "a" * len(told))
    assert block(trace, told) != block(trace, told[:-1] if len(told) > 8 else told + "a")


@pytest.mark.parametrize(
    "line",
    [
        b"GET /a%2fb HTTP/1.1",
        b"GET /a#b HTTP/1.1",
        b"GET  /a HTTP/1.1",
        b"GET /a HTTP/1.0",
        b"get /a HTTP/1.1",
        b"GET /a;b HTTP/1.1",
        b'GET /a?"b HTTP/1.1',
        b"GET /a? HTTP/1.1",
        b"GET http://a/ HTTP/1.1",
    ],
)
def test_target_with_two_readings_is_left_to_the_parser(line: bytes) -> None:
    assert target_of(line) is None
