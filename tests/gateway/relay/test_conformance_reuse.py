"""When a connection is kept, and whose bytes may come over it: the same for every transport.

Provenance: attack log fact 1, rows S12, S15; libraries Part B section 3.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from gateway.relay.pool import Pool
from tests.gateway.relay.asking import between, question, told
from tests.gateway.relay.clock import run
from tests.gateway.relay.conftest import Transport
from tests.gateway.relay.hostile import OK, Peer, Script, Upstream, answers, pieces_of

POISON = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON"
REQUESTS = 60


def _echo(request: bytes) -> bytes:
    name = request.split(b" ", 2)[1]
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(name) + name


def _every(third: Callable[[bytes], bytes]) -> Script:
    """Echoes the target, but every third answer of a connection is ``third`` instead."""

    async def script(peer: Peer) -> None:
        count = 0
        while request := await peer.request():
            count += 1
            await peer.say(_echo(request) if count % 3 else third(request))

    return script


VARIANTS = {
    "bytes after the body": _every(lambda request: _echo(request) + b"POISON"),
    "a second answer": _every(lambda request: _echo(request) + POISON),
    "a body on 204": _every(lambda _: b"HTTP/1.1 204 No Content\r\n\r\n" + POISON),
    "a body on 304": _every(
        lambda _: b"HTTP/1.1 304 Not Modified\r\ncontent-length: 6\r\n\r\nPOISON"
    ),
    "bytes after the last chunk": _every(
        lambda _: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + POISON
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_identities_never_get_each_others_bytes(transport: Transport, variant: str) -> None:
    """Fact 1: both ask at once, sixty times each; whatever comes is one's own or nothing.

    The transport of an identity sees only answers to what it asked for itself.
    """

    async def scenario() -> list[tuple[bytes, bytes]]:
        async with Upstream(VARIANTS[variant]) as upstream:
            clients = {name: transport(address=upstream.address) for name in (b"a", b"b")}
            seen: list[tuple[bytes, bytes]] = []

            async def asks(name: bytes, number: int) -> None:
                target = b"/%b/%d" % (name, number)
                answer = await told(clients[name], question(target=target))
                seen.append((target, answer.body))

            try:
                for start in range(0, REQUESTS, 4):
                    await asyncio.gather(
                        *(
                            asks(name, number)
                            for name in clients
                            for number in range(start, start + 4)
                        )
                    )
            finally:
                for client in clients.values():
                    await client.aclose()
            return seen

    seen = run(scenario())
    assert len(seen) == 2 * REQUESTS
    assert [(asked, got) for asked, got in seen if got not in {asked, b""}] == []
    assert sum(1 for asked, got in seen if asked == got) >= REQUESTS


def test_head_that_is_answered_with_a_body_poisons_nobody(transport: Transport) -> None:
    """S15: the connection of a HEAD serves no other request, so a late body meets nobody."""
    late = asyncio.Event()

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            if request.startswith(b"HEAD"):
                await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(POISON))
                await late.wait()
                await peer.say(POISON)
            else:
                await peer.say(_echo(request))

    async def scenario() -> tuple[int, list[bytes]]:
        async with between(transport, script) as (client, upstream):
            await told(client, question("HEAD"))
            first = await told(client, question(target=b"/1"))
            late.set()
            second = await told(client, question(target=b"/2"))
            return upstream.accepted, [first.body, second.body]

    assert run(scenario()) == (2, [b"/1", b"/2"])


def test_connection_is_kept_after_a_whole_exchange_and_only_then(transport: Transport) -> None:
    """Kept: length, chunks, 204. Not kept: close, 1.0, until the end, a body that is not read."""
    cases = [
        (OK, 1),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 3),
    ]

    async def scenario(answer: bytes) -> int:
        async with between(transport, answers(answer)) as (client, upstream):
            for _ in range(3):
                assert (await told(client, question())).error == ""
            return upstream.accepted

    assert [run(scenario(answer)) for answer, _ in cases] == [count for _, count in cases]


def test_unread_answer_ends_its_connection(transport: Transport) -> None:
    """A body that nobody wants is not read to keep a connection."""
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n" + b"x" * 1_000_000

    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.say(long if b"/long" in request else OK)
        await peer.gone()

    async def scenario() -> tuple[int, bytes]:
        async with between(transport, script) as (client, upstream):
            response = await client.request(question(target=b"/long"))
            await response.aclose()
            answer = await told(client, question())
            return upstream.accepted, answer.body

    assert run(scenario()) == (2, b"ok")


def test_answer_to_half_a_question_ends_its_connection(transport: Transport) -> None:
    """The rest of the body would be read as the next request."""

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await peer.gone()

    async def scenario() -> tuple[int, int, bool]:
        never = asyncio.Event()

        async def endless() -> asyncio.AsyncIterator[bytes]:  # type: ignore[name-defined]
            yield b"x" * 1000
            await never.wait()

        async with between(transport, script) as (client, upstream):
            first = await told(client, question("POST", body=endless(), body_bytes=10_000))
            second = await told(client, question())
            return upstream.accepted, first.status, second.status == 413

    assert run(scenario()) == (2, 413, True)


def test_whole_question_with_a_body_keeps_its_connection(transport: Transport) -> None:
    """Sized and chunked, one after the other, over one connection."""

    async def scenario() -> tuple[int, list[bytes]]:
        async with between(transport, answers(OK)) as (client, upstream):
            for number in range(4):
                body = pieces_of(b"abc", b"", b"de")
                size = 5 if number % 2 else None
                answer = await told(client, question("POST", body=body, body_bytes=size))
                assert answer.body == b"ok"
            return upstream.accepted, upstream.requests

    accepted, requests = run(scenario())
    assert accepted == 1
    assert requests[1].endswith(b"\r\n\r\nabcde")
    assert b"content-length: 5" in requests[1].lower()
    assert re.search(rb"\r\n\r\n(3\r\nabc\r\n2\r\nde\r\n|5\r\nabcde\r\n)0\r\n\r\n$", requests[0])


@pytest.mark.parametrize("pieces", [(b"abcdef",), (b"abc", b"def"), (b"ab",), ()], ids=len)
def test_body_of_another_length_than_declared_is_not_passed_on_as_whole(
    transport: Transport, pieces: tuple[bytes, ...]
) -> None:
    """A byte too many would be the start of the next request; too few would wait for ever."""
    whole: list[bytes] = []

    async def script(peer: Peer) -> None:
        whole.append(await peer.request())
        await peer.say(OK)

    async def scenario() -> str:
        async with between(transport, script) as (client, _):
            answer = await told(client, question("POST", body=pieces_of(*pieces), body_bytes=4))
            return answer.error

    assert run(scenario()) == "UpstreamInvalid"
    assert whole == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_dead_kept_connection_costs_an_idempotent_request_nothing(
    transport: Transport, method: str
) -> None:
    """The race of keep-alive: the upstream closes in the moment when it is asked."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.say(OK.removesuffix(b"ok") if request.startswith(b"HEAD") else OK)
        if peer.number == 0:
            await peer.head()  # read, and not answered: the close crosses the question

    async def scenario() -> tuple[int, int]:
        async with between(transport, script) as (client, upstream):
            await told(client, question())
            answer = await told(client, question(method))
            return answer.status, upstream.accepted

    assert run(scenario()) == (200, 2)


@pytest.mark.parametrize("body", [None, b"abc"])
def test_post_is_never_sent_twice(transport: Transport, body: bytes | None) -> None:
    """Nobody knows whether the upstream has begun to act on it."""

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number == 0:
            await peer.say(OK)
            await peer.request()

    async def scenario() -> tuple[str, list[bytes]]:
        async with between(transport, script) as (client, upstream):
            await told(client, question())
            sent = None if body is None else pieces_of(body)
            answer = await told(client, question("POST", body=sent, body_bytes=3 if body else None))
            return answer.error, upstream.requests

    error, requests = run(scenario())
    assert error == "UpstreamUnavailable"
    assert [request[:4] for request in requests] == [b"GET ", b"POST"]


def test_put_whose_body_was_partly_sent_is_never_sent_twice(transport: Transport) -> None:
    """A body can be read once: a repetition would send the rest of it as the whole."""

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.request()
            await peer.say(OK)
        await peer.head()
        await peer.read(3)

    async def scenario() -> tuple[str, int]:
        async with between(transport, script) as (client, upstream):
            await told(client, question())
            body = pieces_of(b"abc", b"def")
            answer = await told(client, question("PUT", body=body, body_bytes=6))
            return answer.error, upstream.accepted

    error, accepted = run(scenario())
    assert error in {"UpstreamUnavailable", "UpstreamInvalid"}
    assert accepted == 1


def test_answer_that_began_is_never_asked_for_again(transport: Transport) -> None:
    """One byte of a status line on a kept connection, then its end."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await peer.request()
        await peer.say(b"H")

    async def scenario() -> tuple[str, int]:
        async with between(transport, script) as (client, upstream):
            await told(client, question())
            answer = await told(client, question())
            return answer.error, upstream.accepted

    error, accepted = run(scenario())
    if transport is Pool:
        assert (error, accepted) == ("UpstreamInvalid", 1)
    else:  # exemption: aiohttp asks once more while no header block is complete
        assert (error, accepted) == ("", 2)


def test_unasked_answer_on_an_idle_connection_reaches_nobody(transport: Transport) -> None:
    """S15: it is there before the next question, which goes over another connection."""
    whispered = asyncio.Event()

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            await peer.say(_echo(request))
            if peer.number == 0:
                await peer.say(POISON)
                whispered.set()

    async def scenario() -> list[bytes]:
        async with between(transport, script) as (client, _):
            first = await told(client, question(target=b"/1"))
            await whispered.wait()
            await asyncio.sleep(0)
            second = await told(client, question(target=b"/2"))
            return [first.body, second.body]

    assert run(scenario()) == [b"/1", b"/2"]


def test_answers_sent_before_any_question_are_nobodys(transport: Transport) -> None:
    """An upstream that talks at once gets one exchange at most, and no second one."""

    async def script(peer: Peer) -> None:
        await peer.say(POISON + POISON)
        while request := await peer.request():
            await peer.say(_echo(request))

    async def scenario() -> list[bytes]:
        async with between(transport, script) as (client, _):
            told_all = [await told(client, question(target=b"/%d" % n)) for n in range(4)]
            return [answer.body for answer in told_all]

    # its own words, to whoever asked it; never those meant for another question
    assert set(run(scenario())) <= {b"POISON", b""}


def test_limit_bounds_what_an_upstream_sees_at_once(transport: Transport) -> None:
    """Four ask, two may: the others wait for their turn, and all are answered."""
    open_now = most = 0

    async def script(peer: Peer) -> None:
        nonlocal open_now, most
        while await peer.request():
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(1)
            open_now -= 1
            await peer.say(OK)

    async def scenario() -> list[bytes]:
        async with between(transport, script, limit=2) as (client, _):
            return [
                a.body for a in await asyncio.gather(*(told(client, question()) for _ in range(4)))
            ]

    assert run(scenario()) == [b"ok"] * 4
    assert most == 2
