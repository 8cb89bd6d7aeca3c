"""Which settings count without a restart, and what becomes of an upstream that moves.

Provenance: issue 4, point 7.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.compose.failure import CannotStart
from gateway.compose.upstreams import Upstreams
from gateway.ingress.limits import Limits
from gateway.settings import Settings
from gateway.settings.live import LATER_LIMITS, changes, live, taken_over
from gateway.settings.model import LimitSettings, UpstreamSettings
from tests.gateway.cli.made import gateway

HERE = {"address": "http://127.0.0.1:9"}


def settings(**words: object) -> Settings:
    return Settings.model_validate(words)


def test_what_differs_is_named_by_its_path_and_never_by_its_value() -> None:
    """Nested, added, removed; a secret is compared and not told."""
    old = settings(upstreams={"portal": HERE}, decision_log={"mask_key": "a"})
    new = settings(
        upstreams={"portal": {"address": "http://127.0.0.1:10"}, "more": HERE},
        decision_log={"mask_key": "b"},
        limits={"body_ms": 5},
    )
    found = changes(old, new)
    assert found == (
        "decision_log.mask_key",
        "limits.body_ms",
        "upstreams.more",
        "upstreams.portal.address",
    )
    assert changes(new, old) == found
    assert changes(new, new) == ()


def test_only_what_counts_at_once_is_taken_over() -> None:
    """The rest stays, and is found again by the next comparison."""
    old = settings(listen={"public": "127.0.0.1:1"})
    new = settings(
        listen={"public": "127.0.0.1:2"},
        upstreams={"portal": HERE},
        route_limits={"r": {"at_once_max": 1}},
        limits={"body_ms": 5, "drain_ms": 7},
        telemetry={"sample_ratio": 0.5, "queue_max": 3},
    )
    found = taken_over(old, new)
    assert changes(found, new) == ("limits.drain_ms", "listen.public.port", "telemetry.queue_max")
    assert not any(live(key) for key in changes(found, new))
    assert all(live(key) for key in changes(old, found))


def test_every_limit_is_either_live_or_known_to_wait() -> None:
    """A new limit counts at once if the listener has it; a name that is gone is noticed."""
    assert set(LimitSettings.model_fields) >= LATER_LIMITS


def test_limits_change_for_everybody_who_holds_them() -> None:
    """One object, all of its bounds in one step."""
    held = Limits()
    held.take_over(Limits(header_count=7, body_s=1.5))
    assert held == Limits(header_count=7, body_s=1.5)


class Told:
    """A hop that notes what it is told."""

    def __init__(self) -> None:
        self.changed: set[str] = set()

    def retarget(self, _targets: object, changed: set[str]) -> dict[str, list[Told]]:
        self.changed = changed
        return {name: [self] for name in changed}

    closed = False

    async def aclose(self) -> None:
        self.closed = True


def test_an_upstream_that_moves_is_let_go_when_its_last_exchange_has_ended() -> None:
    """One that stays keeps its connections; another authority file is another upstream."""

    async def scene() -> None:
        one = {"a": UpstreamSettings(**HERE), "b": UpstreamSettings(**HERE)}  # type: ignore[arg-type]
        upstreams, hop = Upstreams(one, {"a", "b"}), Told()
        before, known = upstreams.reached, upstreams.targets
        (backend,) = before["a"].fleet.backends
        backend.under_way = 1
        moved = one | {"a": UpstreamSettings(address="http://127.0.0.1:10")}
        upstreams.go_on(upstreams.prepared(moved), hop)  # type: ignore[arg-type]
        assert hop.changed == {"a"}
        assert upstreams.reached["b"] is before["b"]
        # what is remembered of an upstream counts for as long as its target is this one
        assert [upstreams.targets[name] is known[name] for name in "ab"] == [False, True]
        await asyncio.sleep(0)
        assert not hop.closed
        backend.under_way = 0
        async with asyncio.timeout(20):
            while not hop.closed:  # noqa: ASYNC110 - what it does on its own
                await asyncio.sleep(0.05)

    asyncio.run(scene())


def test_settings_that_cannot_be_used_change_nothing(tmp_path: Path) -> None:
    """Authorities that are none are found before anything is changed; a name that no policy has
    yet is taken, because a policy may come to have it."""
    upstreams = Upstreams({"a": UpstreamSettings(**HERE)}, {"a"})  # type: ignore[arg-type]
    before = upstreams.reached
    authorities = tmp_path / "ca.pem"
    authorities.write_text("none")
    bad = UpstreamSettings(address="https://127.0.0.1:9", ca_file=authorities)
    with pytest.raises(CannotStart, match="ca_unusable"):
        upstreams.prepared({"a": UpstreamSettings(**HERE), "b": bad})  # type: ignore[arg-type]
    assert upstreams.reached is before
    assert set(upstreams.prepared({"later": UpstreamSettings(**HERE)})) == {"later"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('[upstreams.nobody]\naddress = "http://127.0.0.1:9"', "unknown_upstream"),
        ("[route_limits.nowhere]\nat_once_max = 1", "unknown_route"),
        (
            '[upstreams.customer-portal]\naddress = "https://127.0.0.1:9"\nca_file = "none.pem"',
            "ca_unusable",
        ),
        ('[keys]\nassertion_file = "none.pem"', "key_unusable"),
    ],
)
def test_check_finds_what_a_reading_would_refuse(tmp_path: Path, text: str, code: str) -> None:
    """The validator says the same as `serve`, as one line, with the exit code of settings."""
    config = tmp_path / "gateway.toml"
    config.write_text(text)
    ended = gateway("check", "--config", str(config), GATEWAY_STATE=str(tmp_path / "state"))
    assert ended.code == 2, ended
    (line,) = ended.lines
    assert line.startswith(f"gateway: error: {code}: ")
    assert ended.out == ""  # nothing is ok beside it
