"""Whoever sends almost the bytes of a known request gets what a stranger gets for them.

A known request is looked up by its bytes. So the attack is on what is *not* looked up: one byte
more, less or other, a line twice or elsewhere, the same bytes in two pieces. Each is sent to a
gateway that knows the request it was made from, and to one that knows nobody.

Provenance: attack log rows S1-S14, B2; the law of the lane (`gateway/fastpath/lane.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.gateway.fastpath.asking import Caller, Left, forget, head, left_by, warm
from tests.gateway.stage import Stage

LINES = (
    "Accept: text/html",
    "X-One: 1",
    "Cookie: a=1; gateway_x=2",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "X-Request-Id: mine-12345678",
)
TOKENS: dict[str, str] = {}
"""Signed once: another signature is another block."""

STRAY = b"\0\t\r\n :;,%?#/\x7f\xe9a"
METHODS = (b"HEAD", b"OPTIONS", b"get", b"\r\nGET")
VERSIONS = (b"HTTP/1.0", b"HTTP/1.2", b"HTTP/1.1 ", b"http/1.1")
OTHERS = (
    b"Host: other.test",
    b"Authorization: Bearer x.y.z",
    b"Origin: https://evil.test",
    b"X-Forwarded-Host: evil.test",
    b"Connection: close",
    b"Connection: x-one",
    b"Expect: 100-continue",
    b"Range: bytes=0-0",
    b"If-None-Match: *",
    b"Cookie: b=2",
    b"X-Gateway-Delegation: x",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01",
    b"X-Request-Id: mine-87654321",
)
Mutant = Callable[[bytes, int, int], bytes]
MUTANTS: dict[str, Mutant] = {
    "nothing": lambda raw, _at, _by: raw,
    "a byte more": lambda raw, at, by: raw[:at] + _of(STRAY, by) + raw[at:],
    "a byte less": lambda raw, at, _by: raw[:at] + raw[at + 1 :],
    "the other case": lambda raw, at, _by: raw[:at] + raw[at : at + 1].swapcase() + raw[at + 1 :],
    "a line twice": lambda raw, at, by: _with(raw, raw.split(b"\r\n")[1:-2], at, by),
    "a line of another": lambda raw, at, by: _with(raw, OTHERS, at, by),
    "another method": lambda raw, _at, by: METHODS[by % 4] + raw[3:],
    "another version": lambda raw, _at, by: raw.replace(b"HTTP/1.1", VERSIONS[by % 4], 1),
}


def _of(some: bytes, by: int) -> bytes:
    return some[by % len(some) :][:1]


def _with(raw: bytes, some: Sequence[bytes], at: int, by: int) -> bytes:
    """The request with one of these header lines somewhere."""
    first, *lines = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
    lines.insert(by % (len(lines) + 1), some[at % len(some)])
    return b"\r\n".join((first, *lines)) + b"\r\n\r\n"


class InPieces(Caller):
    """Sends in two pieces, which the gateway reads one by one."""

    cut = 0

    def ask(self, raw: bytes) -> bytes:
        if 0 < self.cut < len(raw):
            self.sock.sendall(raw[: self.cut])
            time.sleep(0)
            raw = raw[self.cut :]
        return super().ask(raw)


@given(
    lines=st.lists(st.sampled_from(LINES), max_size=3, unique=True),
    audience=st.sampled_from(["customer", "customer", "partner", ""]),
    name=st.sampled_from(sorted(MUTANTS)),
    at=st.integers(0, 2_000),
    by=st.integers(0, 200),
    cut=st.sampled_from([0, 0, 0, 1, 4, 5, 40, 200]),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_almost_the_bytes_of_a_known_request_are_a_stranger_s(
    stage: Stage, lines: list[str], audience: str, name: str, at: int, by: int, cut: int
) -> None:
    token = ""
    if audience:
        token = TOKENS.setdefault(audience, stage.issuers.token(audience))
    target = f"/portal/{audience or 'customer'}/x"
    raw = head(stage, target, *lines, audience=audience, token=token)
    mutant = MUTANTS[name](raw, at % len(raw), by)
    ends = mutant.replace(b"\r", b"").find(b"\n\n")
    # what stands behind the end of a request is another one
    assume(ends < 0 or ends == len(mutant.replace(b"\r", b"")) - 2)

    def left() -> Left:
        with InPieces(stage) as caller:
            caller.cut = cut
            return left_by(stage, caller, mutant)

    forget(stage)
    with Caller(stage) as caller:  # so that a connection to its upstream is idle
        warm(stage, caller, raw)
    forget(stage)
    strange = left()
    forget(stage)
    for _ in range(2):
        with Caller(stage) as caller:
            warm(stage, caller, raw)
    assert left() == strange
