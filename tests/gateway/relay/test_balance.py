"""Several processes behind one upstream: who is asked, who is spared, what is sent twice.

Provenance: issue 4 (round-robin or least-request, passive and active health, one retry).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from gateway.relay.balance import Balance
from gateway.relay.fleet import Client, Fleet
from gateway.relay.health import HealthCheck
from gateway.relay.upstream import UpstreamTimes, UpstreamTransport
from tests.gateway.relay.asking import question, told
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import Transport
from tests.gateway.relay.hostile import Peer, Script, Upstream, pieces_of

TIMES = UpstreamTimes(first_byte_s=5)


def named(letter: bytes) -> Script:
    """Answers every request with its letter."""

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n" + letter)

    return script


async def dead(peer: Peer) -> None:
    """Reads a request and resets."""
    await peer.request()
    peer.reset()


async def mute(peer: Peer) -> None:
    """Reads a request and says nothing."""
    await peer.request()
    await peer.gone()


@contextlib.asynccontextmanager
async def fleet_of(
    *scripts: Script, **options: Any
) -> AsyncIterator[tuple[Fleet, UpstreamTransport, Sequence[Upstream]]]:
    async with contextlib.AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream(script)) for script in scripts]
        fleet = Fleet(
            addresses=[upstream.address for upstream in upstreams],
            times=TIMES,
            clock=asyncio.get_running_loop().time,
            **options,
        )
        transport = fleet.transport()
        try:
            yield fleet, transport, upstreams
        finally:
            await transport.aclose()


async def letters(transport: UpstreamTransport, count: int) -> str:
    answers = [await told(transport, question()) for _ in range(count)]
    return b"".join(answer.body or b"-" for answer in answers).decode()


@pytest.fixture
def client(transport: Transport) -> Client:
    return Client.POOL if transport.__name__ == "Pool" else Client.AIOHTTP


def test_round_robin_asks_one_after_the_other(client: Client) -> None:
    """Each gets its turn, in the order of the settings."""

    async def scenario() -> str:
        async with fleet_of(named(b"a"), named(b"b"), named(b"c"), client=client) as (_, one, _u):
            return await letters(one, 7)

    assert run(scenario()) == "abcabca"


def test_least_requests_spares_the_busy_one() -> None:
    """An answer that is still being read counts, until it is closed."""

    async def scenario() -> tuple[str, str]:
        options = {"balance": Balance.LEAST_REQUESTS}
        async with fleet_of(named(b"a"), named(b"b"), **options) as (_, one, _u):
            first = await one.request(question())
            busy = await letters(one, 3)
            await first.aclose()
            return busy, await letters(one, 4)

    busy, free = run(scenario())
    assert busy == "bbb"
    assert sorted(free) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_request_without_a_byte_of_an_answer_goes_to_another(client: Client, method: str) -> None:
    """One retry, elsewhere; each backend saw it once.

    Exemption: aiohttp itself asks the same backend once more, so there it ends.
    """

    async def scenario() -> tuple[bytes, list[int]]:
        async with fleet_of(dead, named(b"b"), client=client) as (_, one, upstreams):
            answer = await told(one, question(method))
            return answer.body, [len(upstream.requests) for upstream in upstreams]

    assert run(scenario()) == ((b"b", [1, 1]) if client is Client.POOL else (b"", [2, 0]))


def test_post_goes_to_another_only_when_nothing_was_sent(client: Client) -> None:
    """Nobody listening: elsewhere. Reset after reading: an error, and nobody else sees it."""

    async def scenario() -> list[object]:
        found: list[object] = []
        async with fleet_of(dead, named(b"b"), client=client) as (_, one, upstreams):
            answer = await told(one, question("POST", body=pieces_of(b"x"), body_bytes=1))
            found += [answer.error, len(upstreams[1].requests)]
        async with fleet_of(dead, named(b"b"), client=client) as (_, one, upstreams):
            assert upstreams[0]._server is not None
            upstreams[0]._server.close()
            await upstreams[0]._server.wait_closed()
            answer = await told(one, question("POST", body=pieces_of(b"x"), body_bytes=1))
            found += [answer.body, len(upstreams[1].requests)]
        return found

    assert run(scenario()) == ["UpstreamUnavailable", 0, b"b", 1]


def test_silence_is_not_asked_for_again(client: Client) -> None:
    """It may be at work: a timeout goes to the caller."""

    async def scenario() -> tuple[str, int]:
        async with fleet_of(mute, named(b"b"), client=client) as (_, one, upstreams):
            answer = await told(one, question())
            return answer.error, len(upstreams[1].requests)

    assert run(scenario()) == ("UpstreamTimeout", 0)


def test_single_backend_is_asked_once_more_over_a_new_connection() -> None:
    """It may have restarted in that moment; twice in all, never three times."""

    async def scenario() -> tuple[str, int]:
        async with fleet_of(dead) as (_, one, upstreams):
            answer = await told(one, question())
            return answer.error, len(upstreams[0].requests)

    assert run(scenario()) == ("UpstreamUnavailable", 2)


def test_dead_backend_is_left_alone_until_its_time_then_tried_once() -> None:
    """The breaker is the backend's, so what one audience learnt spares all the others."""

    async def scenario() -> list[object]:
        found: list[object] = []
        async with fleet_of(dead, named(b"b"), failures_max=2, open_s=30) as (fleet, one, both):
            found.append(await letters(one, 6))
            other = fleet.transport()
            before = len(both[0].requests)
            found += [await letters(other, 4), len(both[0].requests) - before]
            both[0].script = named(b"a")
            await asyncio.sleep(31)
            found.append(sorted(await letters(one, 4)))
            await other.aclose()
        return found

    assert run(scenario()) == ["bbbbbb", "bbbb", 0, ["a", "a", "b", "b"]]


def test_all_dead_is_a_clear_refusal_without_a_connection() -> None:
    """While every breaker is open nobody waits for a time to pass."""

    async def scenario() -> tuple[str, int]:
        async with fleet_of(dead, dead, failures_max=2, open_s=30) as (_, one, both):
            for _ in range(4):
                await told(one, question())
            before = sum(upstream.accepted for upstream in both)
            answer = await told(one, question())
            return answer.error, sum(upstream.accepted for upstream in both) - before

    assert run(scenario()) == ("UpstreamUnavailable", 0)


def test_answers_never_open_a_breaker_whatever_they_are() -> None:
    """A caller that asks for errors must not close an upstream to everybody."""

    async def odd(peer: Peer) -> None:
        while request := await peer.request():
            if b"/bad" in request:
                await peer.say(b"nonsense\r\n\r\n")
                return
            await peer.say(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

    async def scenario() -> int:
        async with fleet_of(odd, failures_max=2) as (_, one, _u):
            for _ in range(5):
                await told(one, question(target=b"/bad"))
            return (await told(one, question())).status

    assert run(scenario()) == 503


def test_callers_that_leave_never_open_a_breaker() -> None:
    """A slow upstream is not ill because somebody did not wait."""

    async def scenario() -> str:
        async with fleet_of(mute, failures_max=2) as (fleet, one, _u):
            for _ in range(5):
                asking = asyncio.create_task(told(one, question()))
                await asyncio.sleep(1)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            assert fleet.backends[0].under_way == 0
            return fleet.backends[0].breaker.state

    assert run(scenario()) == "closed"


def test_checks_take_a_backend_out_and_back_in() -> None:
    """Two failures in a row are needed, one pass is enough; callers notice nothing."""
    ill = False

    async def moody(peer: Peer) -> None:
        while request := await peer.request():
            if b"/healthz" in request and ill:
                await peer.say(b"HTTP/1.1 500 Ill\r\ncontent-length: 0\r\n\r\n")
            else:
                await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")

    check = HealthCheck(path="/healthz", host=b"u.test", interval_s=10, failures=2)

    async def scenario() -> list[str]:
        nonlocal ill
        found = []
        async with fleet_of(moody, named(b"b"), check=check) as (_, one, upstreams):
            await asyncio.sleep(5)
            found.append(await letters(one, 4))
            ill = True
            await asyncio.sleep(10)
            found.append(await letters(one, 4))
            await asyncio.sleep(10)
            found.append(await letters(one, 4))
            ill = False
            await asyncio.sleep(10)
            found.append(await letters(one, 4))
            checks = [r for r in upstreams[0].requests if b"/healthz" in r]
            assert all(b"host: u.test\r\n" in check for check in checks)
        return found

    assert run(scenario()) == ["abab", "abab", "bbbb", "abab"]


def test_silent_check_is_a_failed_check_and_ends_with_the_last_transport() -> None:
    """``timeout_s`` is the check's own; nothing goes on asking when nobody uses the fleet."""
    check = HealthCheck(path="/", host=b"u", interval_s=10, timeout_s=2, failures=1)

    async def scenario() -> tuple[bool, int]:
        async with fleet_of(mute, check=check) as (fleet, one, upstreams):
            await asyncio.sleep(5)
            well, before = fleet.backends[0].well, upstreams[0].accepted
            await one.aclose()
            await asyncio.sleep(100)
            return well, upstreams[0].accepted - before

    assert run(scenario()) == (False, 0)


def test_own_limit_is_overload_and_no_fault_of_the_backend() -> None:
    """Who waits in vain for a turn learns that we are busy; the breaker stays closed."""

    async def scenario() -> tuple[str, str]:
        async with fleet_of(mute, connections_max=1, failures_max=1) as (fleet, one, _u):
            first = asyncio.create_task(told(one, question()))
            await asyncio.sleep(0.1)
            answer = await told(one, question())
            state = fleet.backends[0].breaker.state
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            return answer.error, state

    assert run(scenario()) == ("UpstreamBusy", "closed")


def test_answer_of_a_balanced_upstream_is_the_backends_own() -> None:
    """Wrapped once for counting, unchanged for the relay."""

    async def scenario() -> tuple[int, bytes, bool]:
        async with fleet_of(named(b"a")) as (_, one, _u):
            response = await one.request(question())
            body = b"".join([piece async for piece in response])
            done = response.done
            await response.aclose()
            await response.aclose()
            return response.status, body, done

    assert run(scenario()) == (200, b"a", True)
