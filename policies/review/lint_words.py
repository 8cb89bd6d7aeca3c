"""Words that no rule can reach, and profiles that nobody can get.

Roles have no inheritance here: a row lists every role that it is for, and Casbin gets no role
section at all. A cycle or a chain of roles cannot be written down, so none is looked for; the
report says so, lest its silence be read as a check that passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.decision import Effect
from policies.faults import Place
from policies.kinds import SHAPES, AdminAction, Kind
from policies.loader import ANONYMOUS
from policies.review.finding import Finding, Level
from policies.review.reading import Reading
from policies.vocabulary import CONSENTS, FACETS

WORDS_FILE, ISSUERS_FILE = "rules/vocabulary.yaml", "rules/issuers.yaml"
ROLES_NOTE = (
    "roles do not inherit: no row can make one role hold another, so there is no cycle and no depth"
)


def findings(reading: Reading) -> Iterator[Finding]:
    """Unreachable profiles as warnings, unused words as notes."""
    yield from _profiles(reading)
    yield from _audiences(reading)
    yield from _unused(reading)
    yield from _aliases(reading)


def _profiles(reading: Reading) -> Iterator[Finding]:
    given = _allowed(reading, Kind.AGENTS, "profile")
    placed = _allowed(reading, Kind.AUDIENCE, "audience") | _anonymous(reading)
    routed = _allowed(reading, Kind.ROUTES, "audience")
    readable = reading.snapshot.table.units.readable
    for profile, audience in reading.snapshot.vocabulary.profiles.items():
        reasons = []
        if profile != audience and profile not in given:
            reasons.append("no row of agents.csv gives it")
        if audience not in placed:
            reasons.append(f"no row of audience.csv makes a caller `{audience}`")
        if audience not in routed:
            reasons.append(f"`{audience}` may use no route")
        if not any(readable[profile, consent] for consent in CONSENTS):
            reasons.append("it reads nothing")
        for reason in reasons:
            text = f"profile `{profile}` cannot be used: {reason}"
            remedy = "write the row that is missing, or remove the profile"
            yield Finding(Place(WORDS_FILE), Level.WARNING, "unreachable_profile", text, remedy)


def _audiences(reading: Reading) -> Iterator[Finding]:
    profiles = reading.snapshot.vocabulary.profiles
    for audience in reading.snapshot.vocabulary.audiences:
        if audience not in profiles.values():
            text = f"audience `{audience}` has no profile: its callers read nothing"
            yield Finding(
                Place(WORDS_FILE), Level.WARNING, "empty_audience", text, "give it a profile"
            )


def _unused(reading: Reading) -> Iterator[Finding]:
    vocabulary = reading.snapshot.vocabulary
    used: dict[str, tuple[Iterable[str], set[str]]] = {
        "role": (
            vocabulary.roles,
            _named(reading, Kind.AGENTS, "role")
            | _named(reading, Kind.CONSENT, "approver")
            | _named(reading, Kind.LABELS, "approver")
            | _named(reading, Kind.ADMIN, "role"),
        ),
        "task": (vocabulary.tasks, _named(reading, Kind.AGENTS, "task")),
        "tool": (vocabulary.tools, {route.tool for route in reading.snapshot.routes}),
        "purpose": (vocabulary.purposes, _named(reading, Kind.CONSENT, "purpose")),
        "ttl": (vocabulary.ttls, _named(reading, Kind.CONSENT, "ttl")),
        "operator's action": (AdminAction, _named(reading, Kind.ADMIN, "action")),
        "upstream": (
            reading.snapshot.upstreams,
            {route.upstream for route in reading.snapshot.routes},
        ),
        "route": (
            [route.id for route in reading.snapshot.routes],
            _named(reading, Kind.ROUTES, "route"),
        ),
    }
    for facet in FACETS:
        used[f"value of {facet}"] = (vocabulary.live(facet), _named(reading, Kind.UNITS, facet))
    for what, (known, seen) in used.items():
        for word in known:
            if word not in seen:
                text = f"no allow row or route uses {what} `{word}`"
                remedy = "fine if it must stay shut; else write a row, or retire the word"
                yield Finding(Place(WORDS_FILE), Level.NOTE, "unused_word", text, remedy)


def _aliases(reading: Reading) -> Iterator[Finding]:
    """Aliases of groups that no row of their issuer mentions: their callers get nothing by them."""
    rows = reading.parsed.rows[Kind.AUDIENCE]
    for issuer in reading.snapshot.issuers:
        groups = issuer.claims.get("groups")
        for alias in sorted(set(groups.values.values())) if groups else ():
            pair = f"groups={alias}"
            if not any(issuer.alias in row.cells[0] and pair in row.cells[1] for row in rows):
                text = f"no row of audience.csv uses `{alias}` of `{issuer.alias}`"
                yield Finding(
                    Place(ISSUERS_FILE), Level.NOTE, "unused_alias", text, "remove it, or use it"
                )


def _allowed(reading: Reading, kind: Kind, axis: str) -> set[str]:
    """The words of one axis that some allowed request has."""
    position = SHAPES[kind].axes.index(axis)
    entries = reading.snapshot.table.relations[kind].entries
    return {key[position] for key, verdict in entries.items() if verdict.allowed}


def _named(reading: Reading, kind: Kind, axis: str) -> set[str]:
    """The words of one axis that some allow row names."""
    position = SHAPES[kind].axes.index(axis)
    rows = reading.parsed.rows[kind]
    return {word for row in rows if row.effect is Effect.ALLOW for word in row.cells[position]}


def _anonymous(reading: Reading) -> set[str]:
    """Audiences that callers without credentials become on some route that they may use."""
    entries = reading.snapshot.table.relations[Kind.ROUTES].entries
    open_to_all = {key[1] for key, v in entries.items() if key[0] == ANONYMOUS and v.allowed}
    return {
        route.anonymous
        for route in reading.snapshot.routes
        if route.anonymous and route.id in open_to_all
    }
