"""Whose word about the original client is believed: a trusted peer's, within its list.

Provenance: attack log rows B4, B11, B12; `rules/trusted_peers.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.ingress.limits import Limits
from policies.snapshot import load
from tests.gateway.stage import Stage
from tests.gateway.test_headers import PATH, seen
from tests.gateway.tokens import Issuers

PEERS = """
trusted_peers:
  balancer:
    networks: [127.0.0.0/8]
    headers: [x-forwarded-for, x-forwarded-proto, x-request-id]
"""


@pytest.fixture(scope="module")
def behind_proxy(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A gateway that trusts whoever connects from loopback, for three headers."""
    overlay = tmp_path_factory.mktemp("peers-overlay")
    issuers.write(overlay)
    (overlay / "rules" / "trusted_peers.yaml").write_text(PEERS)
    with Stage(load(overlay=overlay), issuers, Limits(keep_alive_s=1)) as stage:
        yield stage


def forwarded(stage: Stage, *headers: tuple[str, str]) -> dict[str, str]:
    stage.reset()
    assert stage.ask("GET", PATH, headers=headers).status == 200
    return {name: value for name, value in seen(stage) if name.startswith("x-forwarded")}


def test_trusted_peers_words_are_carried_on(behind_proxy: Stage) -> None:
    """Its chain, then the peer itself; its scheme; not the host, which it may not say."""
    family = forwarded(
        behind_proxy,
        ("X-Forwarded-For", "9.9.9.9, 2001:db8::1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.test"),
    )
    assert family == {
        "x-forwarded-for": "9.9.9.9, 2001:db8::1, 127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "gateway.test",
    }


def test_word_that_stands_twice_is_nobodys(behind_proxy: Stage) -> None:
    """B6: one of the two may be the client's own, which the proxy let pass."""
    twice = [("X-Forwarded-Proto", "http"), ("X-Forwarded-Proto", "https")]
    assert forwarded(behind_proxy, *twice)["x-forwarded-proto"] == "http"
    assert forwarded(behind_proxy, *twice[::-1])["x-forwarded-proto"] == "http"


@pytest.mark.parametrize("chain", ["junk", "9.9.9.9, junk", "9.9.9.9,,", "unknown", "127.1"])
def test_unreadable_chain_is_nobodys(behind_proxy: Stage, chain: str) -> None:
    """B11: unparsable is untrusted, never half of a chain."""
    assert forwarded(behind_proxy, ("X-Forwarded-For", chain))["x-forwarded-for"] == "127.0.0.1"


def test_request_id_of_a_trusted_peer_is_kept_if_it_is_one(behind_proxy: Stage) -> None:
    """A short opaque word; anything else is replaced."""
    behind_proxy.reset()
    kept = behind_proxy.ask("GET", PATH, headers=[("X-Request-Id", "0123456789abcdef")])
    assert kept.header("x-request-id") == "0123456789abcdef"
    for odd in ("a b c d e f g", "short", "x" * 100, "<script>alert</script>"):
        reply = behind_proxy.ask("GET", PATH, headers=[("X-Request-Id", odd)])
        assert reply.header("x-request-id") != odd
