"""Finished requests with facts, and sinks that keep what they get."""

from __future__ import annotations

import errno
import io
import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from gateway.decisions.facts import Facts
from gateway.decisions.log import DecisionLog
from gateway.decisions.redaction import Redaction
from gateway.decisions.sinks import Entry, LineSink, Sink
from gateway.egress.registry import Key, Label, Registered
from gateway.egress.tally import Tally
from gateway.reasons import Why
from gateway.routes.wishes import Wish
from gateway.telemetry.fields import RequestRecord
from gateway.telemetry.trace import TraceContext
from policies.decision import Decision, Effect, PolicyDigest
from policies.snapshot import Snapshot
from policies.subject import Principal, Subject

DIGEST = PolicyDigest("d" * 64)
CLAIMS: Mapping[str, frozenset[str]] = {
    "groups": frozenset({"grp:agents"}),
    "roles": frozenset({"role:assistant", "role:auditor"}),
    "task_scopes": frozenset({"answer"}),
}
RULES = (("A-AGT-1",), ("G-READ-1",), ("R-RET-1",))


def _unit(number: int) -> UUID:
    return UUID(int=number)


def tally(
    snapshot: Snapshot, shown: Sequence[int] = (), denied: Sequence[int] = (), *, late: int = 0
) -> Tally:
    """Units of these classes, shown to and kept from an ``agent:reader``."""
    made, grant = Tally(), snapshot.grant(["agent:reader"])
    numbered = map(_unit, itertools.count())
    labels: dict[Key, Label] = {("unit", next(numbered)): Label(one, "*", "*") for one in shown}
    made.showed(labels.keys(), Registered(snapshot.digest, labels, {}, ()))
    stale = [next(numbered) for _ in range(late)]
    if denied or stale:
        made.kept_back({next(numbered): one for one in denied}, grant, stale=stale)
    return made


def facts(snapshot: Snapshot, **changed: Any) -> Facts:
    """An agent that was placed and allowed; ``changed`` replaces fields."""
    given: dict[str, Any] = {
        "tally": tally(snapshot),
        "station": "inspect",
        "snapshot": snapshot,
        "identified": True,
        "principal": Principal("idp:agents", "s" * 43, CLAIMS, ("acme",), (), 0.0),
        "wish": Wish(),
        "subject": Subject(
            "s" * 43, "agent", snapshot.grant(["agent:reader"]), ("acme",), (), "answer", "", ""
        ),
        "decisions": [Decision(Effect.ALLOW, "x", "rule", rules, DIGEST) for rules in RULES],
    } | changed
    return Facts(**given)


def finished(given: Facts, **changed: Any) -> RequestRecord:
    """An allowed retrieve of 5 ms; ``changed`` replaces fields of the record."""
    values: dict[str, Any] = {
        "trace": TraceContext(trace_id=0xABC, span_id=0xDEF, sampled=False),
        "request_id": "req-1",
        "surface": "data",
        "method": "POST",
        "route": "retrieve",
        "audience": "agent",
        "profile": "agent:reader",
        "decision": "allow",
        "status": 200,
        "code": "",
        "policy_digest": DIGEST,
        "began_ns": 1_767_225_600_000_000_000,
        "started_ns": 1_000_000,
        "ended_ns": 6_000_000,
        "facts": given,
    } | changed
    return RequestRecord(**values)


def refused(code: str = "forbidden", **changed: Any) -> RequestRecord:
    """A request that ended before anything was known of it."""
    route = changed.pop("route", "")
    return finished(Facts(), decision="deny", code=code, route=route, audience="", profile="",
                    **changed)  # fmt: skip


class Gate(io.StringIO):
    """A stream that can be stuck (``opened`` cleared) or full (``full``)."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.entered, self.full = threading.Event(), threading.Event(), False
        self.opened.set()

    def write(self, text: str) -> int:
        self.entered.set()
        self.opened.wait()
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        return super().write(text)


class Kept(LineSink):
    """A sink of JSON lines in memory."""

    def __init__(self, queue_max: int = 100_000) -> None:
        self.out = Gate()
        super().__init__(self.out, queue_max=queue_max)

    @property
    def values(self) -> list[dict[str, Any]]:
        """Every record written so far, once the queue is empty."""
        assert self.flush(timeout_s=20)
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


class Entries:
    """A sink that keeps the entries themselves."""

    lost = 0

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)

    def flush(self, *, timeout_s: float) -> None:
        """Nothing is queued."""

    def close(self, *, timeout_s: float) -> None:
        """Nothing is open."""


def log(*sinks: Sink, ratio: float = 1.0, per_second: int = 10**9, **lists: Any) -> DecisionLog:
    return DecisionLog(sinks, redaction=Redaction(**lists), ratio=ratio, per_second=per_second)


@st.composite
def requests(draw: st.DrawFn, snapshot: Snapshot) -> RequestRecord:
    """Any finished request: whatever was shown, denied, named, refused, and however far it came."""
    words = snapshot.vocabulary
    classes = st.lists(st.integers(-1, words.class_count - 1), max_size=6)
    text = st.text(max_size=20)
    free = st.one_of(text, st.sampled_from(["a b", "naïve", "x" * 300, "\n", "\x1b[2J"]))
    named = Wish(
        audience=draw(st.one_of(free, st.sampled_from(sorted(words.profiles)))),
        task_scope=draw(st.one_of(free, st.sampled_from(words.tasks))),
        purpose=draw(st.one_of(free, st.sampled_from(words.purposes))),
    )
    made = facts(
        snapshot,
        tally=tally(snapshot, draw(classes), draw(classes), late=draw(st.integers(0, 3))),
        station=draw(st.sampled_from(["", "admit", "match", "identify", "decide", "inspect"])),
        wish=draw(st.one_of(st.none(), st.just(named))),
        decisions=[] if draw(st.booleans()) else facts(snapshot).decisions,
    )
    if draw(st.booleans()):
        made.principal = made.subject = None
    allowed = draw(st.booleans())
    return finished(
        made,
        decision="allow" if allowed else "deny",
        code="" if allowed else draw(st.sampled_from(["forbidden", "not_found", "internal"])),
        method=draw(st.one_of(st.sampled_from(["GET", "POST"]), free)),
        request_id=draw(st.from_regex(r"[A-Za-z0-9_.-]{8,64}", fullmatch=True)),
        reason="" if allowed else draw(st.sampled_from(["", *Why])),
        issuer="" if allowed else draw(st.sampled_from(["", "idp:agents"])),
        ended_ns=draw(st.integers(0, 10**12)),
    )
