"""Open streams under a policy that moves, credentials that end, a process that ends.

Provenance: architecture G5; attack log rows O15 and D5, section 4 ("WebSocket", "Drain").
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.authn.revoked import Revoked, read_revoked
from gateway.ingress.limits import Limits
from gateway.streams.register import End
from tests.gateway.relay.hostile import Peer
from tests.gateway.relay.sockets import accepted
from tests.gateway.stage import Stage
from tests.gateway.streams.staging import Scene, policy
from tests.gateway.tokens import URLS


def closed(caller: object) -> tuple[int | None, str | None]:
    """How the socket ends; waits for it."""
    with pytest.raises(ConnectionClosed):
        caller.recv(timeout=10)  # type: ignore[attr-defined]
    return caller.close_code, caller.close_reason  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", ["other origin", "no customer portal", "other upstream"])
def test_socket_that_would_not_be_opened_any_more_is_closed(scene: Scene, change: str) -> None:
    """G5: placed and decided anew at the activation, closed with 1008, and recorded."""
    scene.play()
    who = "customer"
    with scene.socket(who=who) as caller:
        caller.send("x")
        assert caller.recv() == "x"
        scene.enforce(scene.others[change])
        assert closed(caller) == (1008, "not allowed any more")
    record = scene.last()
    assert (record.code, record.status, record.decision) == ("stream_narrowed", 101, "allow")
    assert record.policy_digest == scene.open.digest


@pytest.mark.parametrize("change", ["unrelated", "partners only"])
def test_socket_that_would_still_be_opened_stays(scene: Scene, change: str) -> None:
    """G5: a change that takes nothing from this caller ends nothing."""
    scene.play()
    with scene.socket() as caller:
        scene.enforce(scene.others[change])
        scene.look()
        for number in range(20):
            caller.send(str(number))
            assert caller.recv() == str(number)
    assert scene.last().code == ""


def test_change_ends_the_sockets_that_it_takes_away_and_no_other(scene: Scene) -> None:
    """Two identities: what is closed for one stays open for the other."""
    scene.play()
    employee = {"path": "/portal/employee/live", "origin": "https://intranet.example"}
    with scene.socket() as one, scene.socket(who="employee", **employee) as other:  # type: ignore[arg-type]
        scene.enforce(scene.others["no customer portal"])
        assert closed(one)[0] == 1008
        other.send("still here")
        assert other.recv() == "still here"


def test_policy_that_narrows_while_the_upstream_is_dialled_opens_nothing(scene: Scene) -> None:
    """G5: the decision that counts is the one in force when the socket would be accepted."""
    narrowed, lost = threading.Event(), threading.Event()

    async def script(peer: Peer) -> None:
        request = await peer.request()
        asked.set()
        await asyncio.to_thread(narrowed.wait, 10)
        await peer.say(accepted(request))
        await peer.gone()
        lost.set()

    asked = threading.Event()
    scene.play(script)

    def narrow() -> None:
        assert asked.wait(10)
        scene.enforce(scene.others["no customer portal"])
        narrowed.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(narrow)
        with pytest.raises(InvalidStatus) as refused, scene.socket():
            pass
    assert refused.value.response.status_code == 403
    assert lost.wait(10)
    assert (scene.last().code, scene.last().status) == ("forbidden", 403)


def test_socket_ends_with_its_credential(scene: Scene) -> None:
    """O15: a token that ends while the socket is open. Lifetimes are whole seconds."""
    scene.play()
    now = int(time.time())
    soon = scene.issuers.token("customer", iat=now - 31, exp=now - 26)
    with scene.socket(token=lambda: soon) as caller:
        assert closed(caller) == (1008, "credential expired")
    assert scene.last().code == "stream_expired"


def test_socket_of_a_revoked_caller_ends_as_one_whose_token_is_over(scene: Scene) -> None:
    """The caller is told the same; the record tells them apart."""
    scene.play()
    caller = {"iss": URLS["idp:customers"], "sub": "revoked-1", "until": "2999-01-01T00:00:00Z"}
    token = scene.issuers.token("customer", sub="revoked-1")
    with scene.socket(token=lambda: token) as socket:
        scene.stage.call(_revoke(scene, read_revoked(json.dumps(caller).encode())))
        try:
            scene.look()
            assert closed(socket) == (1008, "credential expired")
        finally:
            scene.stage.call(_revoke(scene, Revoked()))
    assert scene.last().code == "stream_revoked"


async def _revoke(scene: Scene, revoked: Revoked) -> None:
    scene.stage.authenticator.revoke(revoked)


class Withdrawn:
    """Says that these subjects lost a consent."""

    def __init__(self, subjects: list[str]) -> None:
        self.subjects = subjects

    async def ended(self, subjects: Collection[str]) -> Mapping[str, End]:
        return {one: End.NARROWED for one in self.subjects if one in subjects}


def test_socket_ends_with_a_consent_of_its_subject(scene: Scene) -> None:
    """G5: it is found by the name under which its upstream knows it; nobody else's ends."""
    portal = scene.play()
    streams = scene.stage.streams
    with scene.socket(token=lambda: scene.issuers.token("customer", sub="other")) as other:
        with scene.socket() as caller:
            caller.send("x")
            assert caller.recv() == "x"
            streams.withdrawals = Withdrawn(portal.header("x-gateway-subject"))
            try:
                assert closed(caller) == (1008, "not allowed any more")
            finally:
                streams.withdrawals = None
        other.send("still here")
        assert other.recv() == "still here"


def test_drain_ends_sockets_with_a_word_and_takes_no_new_one(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """1012, told to both sides, before the listener ends them."""
    opened = policy(scene.issuers, tmp_path_factory.mktemp("drain") / "overlay")
    stage = Stage(opened, scene.issuers, Limits(request_s=5))
    draining = Scene(stage, scene.issuers, opened)
    with stage:
        draining.play()
        with draining.socket() as caller:
            caller.send("x")
            assert caller.recv() == "x"
            stage.loop.call_soon_threadsafe(stage._stop.set)
            assert closed(caller) == (1012, "service restart")
        assert draining.last().code == "stream_drain"
