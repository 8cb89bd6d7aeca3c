"""What ends a remembered judgement: at once, and for the very next request."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gateway.authn.key_ring import RingKey
from gateway.relay.hop import Target
from gateway.relay.pool import Address, Pool
from gateway.surfaces import openapi
from policies.snapshot import Snapshot
from tests.gateway.fastpath.asking import PATH, Caller, enforce, forget, head, warm
from tests.gateway.stage import OK, Stage


def claims(token: bytes, part: int) -> dict[str, Any]:
    """Header (0) or claims (1) of a JWT."""
    text = token.split(b".")[part]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    return found


def taken(stage: Stage, caller: Caller, raw: bytes) -> tuple[int, bool]:
    """The status of the answer, and whether the lane gave it."""
    before = stage.lane.taken
    answer = caller.ask(raw)
    return int(answer.split()[1]), stage.lane.taken > before


@contextmanager
def later(stage: Stage, seconds: float) -> Iterator[None]:
    """The gateway's clocks, so much ahead."""
    keeper, authenticator = stage.keeper, stage.authenticator
    before = keeper.clock, authenticator._wall_clock
    keeper.clock = authenticator._wall_clock = lambda: time.time() + seconds
    try:
        yield
    finally:
        keeper.clock, authenticator._wall_clock = before


def test_token_that_ends_is_refused_from_then_on(stage: Stage) -> None:
    """Its leeway included, as the authenticator counts it, and never later than that."""
    forget(stage)
    token = stage.issuers.token("customer", exp=int(time.time()) + 20)
    raw = head(stage, token=token)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        assert taken(stage, caller, raw) == (200, True)
        ends_s = stage.keeper.memory.get(next(iter(stage.keeper.memory._known))).until - time.time()  # type: ignore[union-attr]
        with later(stage, ends_s - 0.5):
            assert taken(stage, caller, raw) == (200, True)
        with later(stage, ends_s + 0.1):
            assert taken(stage, caller, raw)[1] is False
        with later(stage, 120):
            assert taken(stage, caller, raw) == (401, False)


def test_nothing_is_known_for_longer_than_a_minute(stage: Stage) -> None:
    """Nor is it remembered: the sweep lets go of it though nobody asks."""
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        with later(stage, 51):
            assert taken(stage, caller, raw) == (200, False)
    memory = stage.keeper.memory
    assert len(memory) == 1

    async def look() -> int:
        memory._clock = lambda: time.time() + 115
        memory._look()
        memory._clock = time.time
        return len(memory)

    assert stage.call(look()) == 0
    assert memory.held_bytes == 0


def test_no_credential_stays_in_memory(stage: Stage) -> None:
    """Neither a token nor one of its parts: what is known has a name that tells nothing."""
    forget(stage)
    token = stage.issuers.token("customer")
    with Caller(stage) as caller:
        warm(stage, caller, head(stage, PATH, token=token))
        caller.ask(head(stage, PATH, token=token))
    (known,) = stage.keeper.memory._known.values()
    words = token.encode().split(b".")
    held = repr([known, [repr(one.granted) for one in known.courses.values()]]).encode()  # type: ignore[attr-defined]
    assert b"x-gateway" not in held.lower()
    assert all(word not in held for word in words)


def test_other_keys_of_an_issuer_void_what_was_believed(stage: Stage) -> None:
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        assert taken(stage, caller, raw) == (200, True)
        source = next(iter(stage.authenticator._sources.values()))
        source.generation += 1
        assert taken(stage, caller, raw) == (200, False)
        assert taken(stage, caller, raw) == (200, True)


def test_token_of_older_keys_is_not_remembered_under_newer_ones(stage: Stage) -> None:
    """Keys may change between the moment in which a caller is identified and the one in which
    its block is learnt, and nobody be identified since."""
    token = stage.issuers.token("customer")
    with Caller(stage) as caller:
        warm(stage, caller, head(stage, token=token))
    authenticator, digest = stage.authenticator, stage.snapshot.digest
    assert authenticator.believed_until(token.encode(), digest=digest) > time.time()
    source = next(iter(authenticator._sources.values()))
    source.generation += 1
    assert authenticator.believed_until(token.encode(), digest=digest) == 0


def test_what_the_gateway_publishes_is_asked_of_no_upstream(
    stage: Stage, covering: Snapshot
) -> None:
    """Though a route of the policy covers it, and its caller is known."""
    forget(stage)
    token = stage.issuers.token("customer")
    raw, published = (head(stage, one, token=token) for one in (PATH, "/v1/openapi.json"))
    enforce(stage, covering)
    try:
        with Caller(stage) as caller:
            warm(stage, caller, raw)
            assert taken(stage, caller, raw) == (200, True)
            stage.upstream.requests.clear()
            assert caller.ask(published).endswith(openapi.document())
            assert taken(stage, caller, published) == (200, False)
    finally:
        enforce(stage, stage.snapshot)
    assert stage.upstream.requests == []


def test_policy_that_narrows_is_in_force_for_the_next_request(
    stage: Stage, others: dict[str, Snapshot]
) -> None:
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        assert taken(stage, caller, raw) == (200, True)
        enforce(stage, others["no customer portal"])
        assert taken(stage, caller, raw) == (403, False)
        enforce(stage, stage.snapshot)
        assert taken(stage, caller, raw)[0] == 200


def test_policy_that_moves_a_route_asks_the_other_upstream(
    stage: Stage, others: dict[str, Snapshot]
) -> None:
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        warm(stage, caller, raw)
        enforce(stage, others["other upstream"])
        try:
            assert taken(stage, caller, raw) == (200, False)
        finally:
            enforce(stage, stage.snapshot)
    token = stage.upstream.requests[-1].split(b"x-gateway-assertion: ")[1].split(b"\r\n")[0]
    assert claims(token, 1)["aud"] == "urn:portal:partner"


def test_next_request_is_signed_by_the_key_in_front(stage: Stage) -> None:
    forget(stage)
    raw = head(stage)
    keys = stage.keys.keys
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        fresh = RingKey.fresh()
        stage.keys.replace([fresh, *keys])
        try:
            assert taken(stage, caller, raw) == (200, True)
        finally:
            stage.keys.replace(list(keys))
    request = stage.upstream.requests[-1]
    token = request.split(b"x-gateway-assertion: ")[1].split(b"\r\n")[0]
    assert claims(token, 0)["kid"] == fresh.kid


def test_upstream_that_moved_is_asked_where_it_is(stage: Stage) -> None:
    forget(stage)
    raw = head(stage)
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    async def move() -> tuple[Any, Any, Any]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        was = stage.hop._targets
        there = Target(address.authority, lambda: Pool(address=address))
        left = stage.hop.retarget({**was, "customer-portal": there}, {"customer-portal"})
        return server, was, left

    async def back(server: Any, was: Any, left: Any) -> None:
        gone = stage.hop.retarget(was, {"customer-portal"})
        for transport in [one for of in (left, gone) for two in of.values() for one in two]:
            await transport.aclose()
        server.close()

    with Caller(stage) as caller:
        warm(stage, caller, raw)
        warm(stage, caller, raw)
        before = len(stage.upstream.requests)
        moved = stage.call(move())
        try:
            assert taken(stage, caller, raw) == (200, False)
        finally:
            stage.call(back(*moved))
    assert len(stage.upstream.requests) == before
    assert len(asked) == 1


def test_smaller_limits_of_the_listener_count_at_once(stage: Stage) -> None:
    forget(stage)
    raw = head(stage, PATH, "X-Long: " + "x" * 500)
    limits = stage.keeper.plane.limits
    before = replace(limits)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        assert taken(stage, caller, raw) == (200, True)
        limits.take_over(replace(before, header_bytes=600))
        try:
            assert taken(stage, caller, raw) == (431, False)
        finally:
            limits.take_over(before)


def test_limit_of_a_route_is_asked_in_the_ordinary_way(stage: Stage) -> None:
    from gateway.relay.admission import Admission, RouteLimits

    forget(stage)
    raw = head(stage)
    plane = stage.keeper.plane
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        plane.admit_by(Admission({"portal-customer": RouteLimits(at_once=0)}))
        try:
            assert taken(stage, caller, raw) == (503, False)
        finally:
            plane.admit_by(None)
        assert taken(stage, caller, raw) == (200, True)


def test_too_many_connections_are_refused_though_their_caller_is_known(stage: Stage) -> None:
    forget(stage)
    raw = head(stage)
    limits = stage.keeper.plane.limits
    before = replace(limits)
    with Caller(stage) as caller, Caller(stage) as other:
        warm(stage, caller, raw)
        warm(stage, other, raw)
        limits.take_over(replace(before, connections=1))
        try:
            assert taken(stage, caller, raw) == (503, False)
        finally:
            limits.take_over(before)
