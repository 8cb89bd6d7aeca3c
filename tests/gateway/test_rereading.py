"""Settings read again while the loop has other work: long lists in turns, one reading at a time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from gateway.authn.bearer import Authenticator
from gateway.authn.claims import WORD_MAX
from gateway.authn.revoked import (
    BYTES_MAX,
    LINE_BYTES_MAX,
    TURN_LINES,
    BadRevocations,
    Revoked,
    name_of,
    read_revoked,
    read_revoked_in_turns,
)
from gateway.compose.failure import CannotStart
from gateway.compose.live import Live, Rereading
from gateway.compose.trust import revoked_anew, revoked_of
from gateway.ingress.limits import Limits
from gateway.settings import Settings
from gateway.settings.model import TokenSettings

T = TypeVar("T")
TURNS = 40


def lines(count: int, word: str = "jti") -> bytes:
    one = {"iss": "https://login.example/", "until": "2100-01-01T00:00:00Z"}
    return b"\r\n".join(json.dumps({**one, word: f"w-{at}"}).encode() for at in range(count))


async def counting(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """What came of it, and how often the loop turned to somebody else meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    found = await work
    other.cancel()
    return found, turns - before


def test_the_loop_goes_on_while_a_long_list_is_read() -> None:
    """Whoever asks waits for a turn, never for the list."""
    text = lines(TURNS * TURN_LINES)
    found, turns = asyncio.run(counting(read_revoked_in_turns(text, name_of(text))))
    assert turns >= TURNS
    assert (found, found.source) == (read_revoked(text), name_of(text))
    assert len(found.tokens) == TURNS * TURN_LINES


def test_a_list_that_did_not_change_is_the_list_that_is_there(tmp_path: Path) -> None:
    """Nobody's token is verified anew because the settings were read again."""
    file = tmp_path / "revoked.jsonl"
    settings = Settings(tokens=TokenSettings(revoked_file=file))

    async def scene() -> None:
        file.write_bytes(lines(3))
        first = await revoked_anew(settings, Revoked())
        assert await revoked_anew(settings, first) is first
        file.write_bytes(lines(3, "sub"))
        second = await revoked_anew(settings, first)
        assert (len(second.tokens), len(second.subjects)) == (0, 3)
        assert await revoked_anew(Settings(), second) == Revoked()
        none = Revoked()
        assert await revoked_anew(Settings(), none) is none

    asyncio.run(scene())


def live(authenticator: Authenticator, told: list[str]) -> Live:
    """What a reading changes of a gateway, as far as lists are concerned."""
    plane = SimpleNamespace(
        authenticator=authenticator,
        admission=None,
        admit_by=lambda _: None,
        limits=Limits(),
        streams=SimpleNamespace(look=lambda: told.append("streams")),
        snapshots=SimpleNamespace(current=SimpleNamespace(upstreams={}, issuers=(), routes=())),
    )
    upstreams = SimpleNamespace(prepared=dict, go_on=lambda *_: told.append("upstreams"))
    plane.hop = None
    samples = SimpleNamespace(sample_ratio=1.0)
    parts: Any = {"plane": plane, "upstreams": upstreams, "samples": samples}
    return Live(Settings(), **parts)


async def _no_fetch(_: str) -> bytes:
    raise AssertionError


def test_a_list_with_a_fault_leaves_the_last_good_one(tmp_path: Path) -> None:
    """Whatever its place in the list; nothing else of the same reading counts either."""
    file = tmp_path / "revoked.jsonl"
    settings = Settings(tokens=TokenSettings(revoked_file=file))

    async def scene() -> None:
        believer, told = Authenticator(fetch=_no_fetch), list[str]()
        running = live(believer, told)
        file.write_bytes(lines(2 * TURN_LINES))
        await running.apply(settings)
        good, generation = believer.revoked, believer.generation
        assert len(good.tokens) == 2 * TURN_LINES
        assert told == ["upstreams", "streams"]
        await running.apply(settings)
        assert (believer.revoked, believer.generation) == (good, generation)
        told.clear()
        for broken in (lines(2 * TURN_LINES) + b"\n{}", b"{}"):
            file.write_bytes(broken)
            with pytest.raises(CannotStart, match="revocations_unusable"):
                await running.apply(settings)
        file.unlink()
        with pytest.raises(CannotStart, match="revocations_unusable"):
            await running.apply(settings)
        assert believer.revoked is good
        assert (believer.generation, told) == (generation, [])

    asyncio.run(scene())


@pytest.mark.timeout(20)
@pytest.mark.parametrize("anew", [False, True])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, anew: bool) -> None:
    """Regression: a pipe in the list's place was read without end, so that no later list counted
    and the process did not end."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for file in (pipe, link, Path("/dev/zero"), tmp_path, Path("a\0b")):
        settings = Settings(tokens=TokenSettings(revoked_file=file))
        with pytest.raises(CannotStart, match="revocations_unusable"):
            asyncio.run(revoked_anew(settings, Revoked())) if anew else revoked_of(settings)


def test_a_link_to_a_file_is_the_file(tmp_path: Path) -> None:
    """As volumes of a cluster are mounted."""
    (tmp_path / "list").write_bytes(lines(3))
    (tmp_path / "link").symlink_to("list")
    settings = Settings(tokens=TokenSettings(revoked_file=tmp_path / "link"))
    assert asyncio.run(revoked_anew(settings, Revoked())) == read_revoked(lines(3))


def test_a_line_is_bounded_above_the_longest_words() -> None:
    """A line is read in one go, and the loop waits for it."""
    word = "\U0001f5dd" * WORD_MAX  # twelve bytes each, as JSON escapes it
    longest = json.dumps({"iss": word, "jti": word, "until": "2100-01-01T00:00:00Z"}).encode()
    assert len(longest) > 2 * 12 * WORD_MAX
    assert read_revoked(longest).issuers == {word}
    for text in (lines(3) + b"\n" + b" " * LINE_BYTES_MAX + b"\n", lines(1) + b" " * BYTES_MAX):
        with pytest.raises(BadRevocations, match="bytes"):
            read_revoked(text)


@pytest.mark.parametrize("asked", [1, 2, 5])
def test_settings_are_read_once_more_however_often_somebody_asks_meanwhile(asked: int) -> None:
    """Never two readings at once: the one that ended last would count, whatever it had read."""

    async def scene() -> None:
        seen: list[str] = []
        gate = asyncio.Event()

        async def apply(_: Settings) -> None:
            seen.append("begin")
            await gate.wait()
            seen.append("end")

        rereading = Rereading(Settings, apply)
        rereading.ask()
        await until(lambda: seen == ["begin"])
        for _ in range(asked):
            rereading.ask()
        await asyncio.sleep(0)
        assert seen == ["begin"]
        gate.set()
        await until(lambda: len(seen) == 4)
        assert seen == ["begin", "end"] * 2
        await asyncio.sleep(0)
        rereading.ask()
        await until(lambda: len(seen) == 6)

    asyncio.run(scene())


def test_a_fault_of_our_own_keeps_no_later_signal_unheard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where no thread can be had, say: it is told, and whoever asked meanwhile is heard."""

    async def scene() -> None:
        seen = 0

        async def apply(_: Settings) -> None:
            nonlocal seen
            seen += 1
            if seen == 1:
                rereading.ask()
                raise RuntimeError("can't start new thread")

        rereading = Rereading(Settings, apply)
        rereading.ask()
        await until(lambda: seen == 2)

    asyncio.run(scene())
    (told,) = [record for record in caplog.records if record.name == "gateway.settings"]
    assert (told.levelname, told.getMessage()) == ("ERROR", "settings: not taken over")
    assert told.exc_info is not None


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what a task does on its own
            await asyncio.sleep(0)
