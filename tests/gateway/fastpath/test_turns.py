"""What one turn of the loop brings is asked together: a request that cannot be asked then, or
whose caller is gone by then, costs nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.fastpath.crossing import Crossing
from gateway.relay.hop import Identity
from gateway.relay.loan import Loan
from tests.gateway.fastpath.asking import Caller, cut, forget, head, warm
from tests.gateway.fastpath.test_handed_over import assert_all_given_back
from tests.gateway.stage import Stage, parse


@contextlib.contextmanager
def held(stage: Stage) -> Iterator[None]:
    """The stage's loop does nothing until the end: what is sent meanwhile comes in one turn."""
    stands, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        stands.set()
        goes_on.wait(10)

    stage.loop.call_soon_threadsafe(hold)
    assert stands.wait(10)
    try:
        yield
    finally:
        goes_on.set()


def test_caller_that_leaves_before_its_upstream_is_asked_is_recorded_and_asks_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends in the turn that brought the request."""
    forget(stage)
    raw, left = head(stage), asyncio.Event()
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        before = len(stage.upstream.requests)
        ordinary = Crossing.lend

        def leaving(crossing: Crossing) -> bool:
            crossing._way.lost()
            left.set()
            return ordinary(crossing)

        with monkeypatch.context() as changed:
            changed.setattr(Crossing, "lend", leaving)
            caller.sock.sendall(raw)
            stage.call(asyncio.wait_for(left.wait(), 10))
    last = stage.records.all[-1]
    assert (last.status, last.code, last.decision) == (499, "caller_gone", "allow")
    assert len(stage.upstream.requests) == before
    assert_all_given_back(stage)


def test_request_for_which_no_connection_is_idle_is_answered_in_the_ordinary_way(
    stage: Stage,
) -> None:
    forget(stage)
    raw = head(stage)
    with Caller(stage) as caller:
        warm(stage, caller, raw)
        cut(stage)
        taken, asked = stage.lane.taken, len(stage.upstream.requests)
        (reply,) = parse(caller.ask(raw))
    assert (reply.status, reply.body) == (200, b"ok")
    assert (stage.lane.taken, len(stage.upstream.requests)) == (taken + 1, asked + 1)
    assert_all_given_back(stage)


@pytest.mark.parametrize(("of", "name"), [(Identity, "lines"), (Loan, "ask")])
def test_request_that_cannot_be_asked_keeps_no_other_of_its_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, of: type, name: str
) -> None:
    """Two callers in one turn; for one of them the signature or the question fails once."""
    forget(stage)
    mine, theirs = head(stage), head(stage, audience="partner", target="/portal/partner/x")
    ordinary = getattr(of, name)
    failed: list[object] = []

    def failing(self: Any, *words: Any) -> Any:
        if not failed:
            failed.append(self)
            raise GatewayError("a defect")
        return ordinary(self, *words)

    with Caller(stage) as caller, Caller(stage) as other:
        warm(stage, caller, mine)
        warm(stage, other, theirs)
        with monkeypatch.context() as changed:
            changed.setattr(of, name, failing)
            with held(stage):
                caller.sock.sendall(mine)
                other.sock.sendall(theirs)
            answers = [parse(one.answer())[0] for one in (caller, other)]
    assert [(one.status, one.body) for one in answers] == [(200, b"ok")] * 2
    assert len(failed) == 1
    assert_all_given_back(stage)
