"""A release is built in another process; whatever becomes of it, whoever serves goes on.

Provenance: issue 3, "Must hold" on activation; point 6 (last good kept on any failure).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.reload.builder import Builder
from gateway.reload.job import BuildRefused, Job, RawRelease, Trust
from policies.files import digest_of
from policies.release import TrustAnchor
from policies.snapshot import Snapshot
from tests import large_policy
from tests.policies.release.made import ISSUERS, on_loopback

UNSIGNED = Trust.of(TrustAnchor.unsigned())
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.timeout(300)


def job(contents: Mapping[str, bytes], *, generation: int = 2, newer_than: int = 1) -> Job:
    files = json.dumps({path: text.decode() for path, text in contents.items()}).encode()
    return Job(RawRelease(generation, digest_of(contents), None, files), UNSIGNED, newer_than)


def small(note: str = "") -> dict[str, bytes]:
    return large_policy.contents(profiles=10, rules=120, note=note)


def long() -> dict[str, bytes]:
    """A policy whose proof takes longer than a test waits."""
    return large_policy.contents(profiles=120, rules=6_000)


def play(scene: Callable[[Builder], Awaitable[None]], builder: Builder | None = None) -> None:
    async def main() -> None:
        made = builder or Builder()
        await made.start()
        try:
            await scene(made)
        finally:
            await made.stop()

    asyncio.run(main())


async def built(builder: Builder, contents: Mapping[str, bytes]) -> Snapshot:
    snapshot, _ = await builder.build(job(contents))
    return snapshot


def refusal(code: str) -> pytest.RaisesContext[BuildRefused]:  # type: ignore[name-defined]
    return pytest.raises(BuildRefused, match=f"^{code}:")


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", f"{pid}"], capture_output=True, text=True, check=False)
    return [int(one) for one in found.stdout.split()]


def ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for somebody to ask how it ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}


async def busy(builder: Builder) -> int:
    """The process that builds, once it does."""
    async with asyncio.timeout(60):
        while True:
            process = builder.process
            found = children(process) if process is not None else []
            if found:
                return found[0]
            await asyncio.sleep(0.02)


def test_a_release_comes_back_as_a_proven_snapshot() -> None:
    async def scene(builder: Builder) -> None:
        for note in ("one", "two"):
            contents = small(note)
            snapshot, told = await builder.build(job(contents))
            assert snapshot.digest == digest_of(contents)
            assert len(snapshot.vocabulary.profiles) == 10
            assert snapshot.grant(["agent:desk000"]).plain
            assert told.questions > 1_000

    play(scene)


def test_every_fault_of_a_release_is_a_refusal_with_a_code() -> None:
    """And the same process goes on to build the next one."""

    async def scene(builder: Builder) -> None:
        with refusal("older_generation"):
            await builder.build(job(small(), newer_than=2))
        broken = small() | {"rules/units.csv": b"p, nonsense\n"}
        with refusal("policy_invalid"):
            await built(builder, broken)
        raw = RawRelease(2, "0" * 64, None, json.dumps({"rules/units.csv": "p"}).encode())
        with refusal("hash_mismatch"):
            await builder.build(Job(raw, UNSIGNED, 1))
        for files in (b"[]", b"{", b'{"a": 1}'):
            with refusal("unreadable"):
                await builder.build(Job(RawRelease(2, "0" * 64, None, files), UNSIGNED, 1))
        assert (await built(builder, small())).digest == digest_of(small())

    play(scene)


def test_a_build_knows_which_files_came_from_an_overlay() -> None:
    """A development provider on loopback is believed of an overlay, and of nothing else."""
    plain = job(on_loopback())
    laid = replace(plain, release=replace(plain.release, overlaid=[ISSUERS]))

    async def scene(builder: Builder) -> None:
        with refusal("policy_invalid"):
            await builder.build(plain)
        snapshot, _ = await builder.build(laid)
        assert snapshot.digest == plain.release.digest

    play(scene)


def test_a_build_that_is_killed_is_a_refusal() -> None:
    async def scene(builder: Builder) -> None:
        task = asyncio.create_task(built(builder, long()))
        os.kill(await busy(builder), signal.SIGKILL)
        with refusal("build_crashed"):
            await task
        assert (await built(builder, small())).digest == digest_of(small())

    play(scene)


def test_a_builder_that_died_is_started_anew_and_takes_its_child_along() -> None:
    """It is noticed at once, not when the child has written all that nobody reads."""

    async def scene(builder: Builder) -> None:
        task = asyncio.create_task(built(builder, long()))
        child = await busy(builder)
        assert builder.process is not None
        os.kill(builder.process, signal.SIGKILL)
        async with asyncio.timeout(10):  # its proof takes longer
            with refusal("builder_died"):
                await task
            while not ended(child):  # noqa: ASYNC110 - a process, not of ours to await
                await asyncio.sleep(0.01)
        assert (await built(builder, small())).digest == digest_of(small())

    play(scene)


def test_a_build_that_takes_too_long_is_given_up() -> None:
    async def scene(builder: Builder) -> None:
        with refusal("build_timed_out"):
            await built(builder, long())

    play(scene, Builder(build_s=2))


def test_a_build_that_nobody_wants_any_more_makes_way() -> None:
    """Cancelled, it ends in the other process as well; the next one does not wait for it."""

    async def scene(builder: Builder) -> None:
        task = asyncio.create_task(built(builder, long()))
        child = await busy(builder)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await built(builder, small())).digest == digest_of(small())
        assert child not in children(builder.process or 0)

    play(scene)


def test_a_build_given_up_before_the_process_was_there_keeps_nobody_waiting() -> None:
    """Its word that it is ready must still be there for the next build to hear."""

    async def scene(builder: Builder) -> None:
        first = asyncio.create_task(built(builder, small()))
        await asyncio.sleep(0)  # it waits for a process that takes a while to start
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        assert (await built(builder, small())).digest == digest_of(small())

    play(scene, Builder(build_s=30))


def test_a_casbin_that_disagrees_is_a_refusal() -> None:
    """A forge whose Casbin reads one word in another way: the policy is not served."""
    command = (sys.executable, str(Path(__file__).with_name("disagreeing_forge.py")), str(ROOT))

    async def scene(builder: Builder) -> None:
        with refusal("policy_incongruent"):
            await built(builder, small())

    play(scene, Builder(command=command))
