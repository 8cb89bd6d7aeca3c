"""What a proxy that asks for decisions must not let happen, shown through the proxy itself.

Theory
    Forward-auth fails silently: a proxy that forgot to ask looks like one that was told yes.
    So each claim is shown from outside, by a request that must be refused, beside a control
    that must pass (without it a proxy that refuses everything would look perfect).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.surfaces.forward_auth.probing import CLOSED, Arrival, Through, Upstream

MARK: Final = "selftest-forged"
IDENTITY: Final = (
    "X-Gateway-Subject",
    "X-Gateway-Audience",
    "X-Gateway-Profile",
    "X-Gateway-Assertion",
    "X-Gateway-Delegation",
)
_REFUSED: Final = frozenset({401, 403})
_NO_INDEX: Final = frozenset({400, 405})
"""What a route that has no index, or another method there, answers instead."""
_OTHERS: Final = (
    *("X-Forwarded-For", "X-Forwarded-User", "X-Forwarded-Prefix", "X-Original-URL"),
    *("Remote-User", "X-Remote-User", "X-Auth-Request-User", "X-User", "X-Role"),
)


class Outcome(StrEnum):
    """How a claim came out."""

    SHOWN = "ok"
    BROKEN = "BROKEN"
    UNDECIDED = "undecided"
    """Nothing passed, but it was not a decision that refused."""
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, and what was seen."""

    outcome: Outcome
    claim: str
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is tested. ``closed`` is a path that no visitor may have, ``index`` the one above it,
    empty where visitors may have that or it is no route's; ``open`` is one that passes with
    ``lines`` (a credential, or none for a visitor), empty where there is none. ``upstream`` is
    the stand-in, if this test stands in for the upstream."""

    through: Through
    closed: str
    index: str
    open: str
    lines: Sequence[str]
    host: str
    upstream: Upstream | None

    def status(self, target: str, *lines: str) -> int:
        return self.through.status(target, lines, host=self.host)


def findings(subject: Subject) -> Iterator[Finding]:
    """Every claim in order. Raises: OSError when the proxy does not answer at all."""
    yield _anonymous(subject)
    yield _refused(
        subject,
        "a damaged credential is refused",
        [("Authorization: Bearer x.y.z",), ("Authorization: Basic eDp5",)],
    )
    yield _refused(subject, "forged identity headers open nothing", [*_identities()])
    yield _refused(subject, "a forged method or path opens nothing", [*_metadata(subject)])
    control = _control(subject)
    yield control
    passes = control.outcome is Outcome.SHOWN
    yield _paths(subject) if passes else _untried("a path with two readings does not pass")
    claim = "forged headers do not arrive"
    if not passes:
        yield _untried(claim)
    elif subject.upstream is None:
        why = "only an upstream sees what arrives: stand in for it with --as-upstream"
        yield Finding(Outcome.NOT_TRIED, claim, why)
    else:
        yield _arrivals(subject, subject.upstream, claim)


def spellings(name: str) -> tuple[str, ...]:
    """Every form of a header name that some reader takes for it."""
    return (
        name,
        name.lower(),
        name.upper(),
        name.replace("-", "_"),
        "_".join(name.rsplit("-", 1)),
        name.replace("-", "."),
    )


def non_canonical(path: str) -> tuple[str, ...]:
    """Forms of a path that two readers could read in two ways (attack log A1-A16)."""
    head, last = _cut(path)
    parent = head or "/"
    return (
        f"{head}/x/../{last}",
        f"{head}/x/%2e%2e/{last}",
        f"{head}/./{last}",
        f"/{path}",
        f"{head}//{last}",
        f"{head}/%2f{last}",
        f"{head}/%5c{last}",
        f"{head}\\{last}",
        f"{path};v=1",
        f"{head}/..;/{parent.strip('/')}/{last}",
        f"{path}%00",
        f"{path}%3f",
        f"{path}%23",
        f"{path}#x",
        f"{path}%252e",
        f"{path}%ff",
        f"{path}//",
    )


def _cut(path: str) -> tuple[str, str]:
    """A path before and after the slash of its last written segment."""
    at = path.rfind("/", 0, -1)
    return path[:at], path[at + 1 :]


def _identities() -> Iterator[tuple[str, ...]]:
    for name in IDENTITY:
        for spelt in spellings(name):
            line = f"{spelt}: {MARK}"
            yield (line,)
            yield (line, line)


def _metadata(subject: Subject) -> Iterator[tuple[str, ...]]:
    target = subject.open or "/"
    for method, path in (
        ("X-Original-Method", "X-Original-URI"),
        ("X-Forwarded-Method", "X-Forwarded-Uri"),
        ("X-Ext-Authz-Method", "X-Ext-Authz-Path"),
        ("X_Forwarded_Method", "X_Forwarded_Uri"),
        ("X-HTTP-Method-Override", "X-Original-URL"),
    ):
        yield (f"{method}: GET", f"{path}: {target}")


def _anonymous(subject: Subject) -> Finding:
    """As `_refused`; the index above the path is a place of its own to many proxies."""
    claim = "an anonymous request is refused"
    found = _refused(subject, claim, [()])
    if found.outcome is not Outcome.SHOWN or not subject.index:
        return found
    status = subject.status(subject.index)
    told = f"{found.seen}; GET {subject.index}: {_words({status})}"
    if 200 <= status < 400 or _arrived(subject):
        return Finding(Outcome.BROKEN, claim, told)
    shown = status in _REFUSED | _NO_INDEX
    return Finding(Outcome.SHOWN if shown else Outcome.UNDECIDED, claim, told)


def _refused(subject: Subject, claim: str, tries: Sequence[tuple[str, ...]]) -> Finding:
    """Every try on the closed path is refused, and nothing of it arrives."""
    seen: set[int] = set()
    for lines in tries:
        status = subject.status(subject.closed, *lines)
        if 200 <= status < 400 or _arrived(subject):
            told = f"GET {subject.closed} with {' | '.join(lines) or 'nothing'}: {status}"
            return Finding(Outcome.BROKEN, claim, told)
        seen.add(status)
    told = f"GET {subject.closed}: {_words(seen)}"
    # whoever forges may also be refused for the form alone; a plain request only by a decision
    enough = _REFUSED if tries == [()] else _REFUSED | {CLOSED, 400, 431}
    return Finding(Outcome.SHOWN if seen <= enough else Outcome.UNDECIDED, claim, told)


def _control(subject: Subject) -> Finding:
    claim = "an allowed request passes (the control)"
    if not subject.open:
        why = "no path is open to a visitor: give one caller's token with --token-file"
        return Finding(Outcome.NOT_TRIED, claim, why)
    status = subject.status(subject.open, *subject.lines)
    told = f"GET {subject.open}: {status}"
    arrived = _arrived(subject)
    if subject.upstream is not None and not arrived:
        return Finding(Outcome.UNDECIDED, claim, f"{told}, and it did not reach --as-upstream")
    return Finding(Outcome.SHOWN if 200 <= status < 300 else Outcome.UNDECIDED, claim, told)


def _paths(subject: Subject) -> Finding:
    claim = "a path with two readings does not pass"
    seen: set[int] = set()
    tried = non_canonical(subject.open)
    for target in tried:
        status = subject.status(target, *subject.lines)
        if 200 <= status < 300 or _arrived(subject):
            return Finding(Outcome.BROKEN, claim, f"GET {target}: {status}")
        seen.add(status)
    if subject.upstream is not None:
        # a needless escape may be taken out (RFC 3986, 6.2.2.2), never be sent on
        head, last = _cut(subject.open)
        subject.status(f"{head}/%{ord(last[0]):02x}{last[1:]}", *subject.lines)
        for arrival in subject.upstream.taken():
            if arrival.target != subject.open:
                return Finding(Outcome.BROKEN, claim, f"`{arrival.target}` arrived")
    return Finding(Outcome.SHOWN, claim, f"{len(tried)} forms of {subject.open}: {_words(seen)}")


def _arrivals(subject: Subject, upstream: Upstream, claim: str) -> Finding:
    tries = [*_identities(), *((f"{name}: {MARK}",) for name in _OTHERS)]
    tries += [(f"Connection: close, {', '.join(IDENTITY)}",)]
    passed = 0
    for lines in tries:
        upstream.taken()
        subject.status(subject.open, *subject.lines, *lines)
        for arrival in upstream.taken():
            passed += 1
            fault = _fault(arrival, subject.open)
            if fault:
                return Finding(Outcome.BROKEN, claim, f"{' | '.join(lines)}: {fault}")
    told = f"{len(tries)} tries, {passed} let in without them, {len(tries) - passed} refused"
    return Finding(Outcome.SHOWN, claim, told)


def _fault(arrival: Arrival, path: str) -> str:
    """What is wrong with a request that reached the upstream; empty: nothing."""
    for name, value in arrival.headers:
        if MARK in value:
            return f"`{name}` arrived"
    for name in IDENTITY:
        if len(arrival.all(name.lower())) > 1:
            return f"`{name}` arrived twice"
    assertions = arrival.all("x-gateway-assertion")
    if not assertions or _signed_path(assertions[0]) != path:
        return "no assertion for this path arrived"
    return ""


def _signed_path(token: str) -> str:
    """The path that an assertion is for; whoever receives it verifies its signature."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=="))
    except (IndexError, ValueError, binascii.Error):
        return ""
    return str(claims.get("htu", "")) if isinstance(claims, dict) else ""


def _arrived(subject: Subject) -> bool:
    return subject.upstream is not None and bool(subject.upstream.taken())


def _untried(claim: str) -> Finding:
    return Finding(Outcome.NOT_TRIED, claim, "the control did not pass")


def _words(statuses: set[int]) -> str:
    return ", ".join("closed" if one == CLOSED else str(one) for one in sorted(statuses))
