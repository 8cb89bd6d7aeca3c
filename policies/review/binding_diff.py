"""Everything besides rules: issuers, routes, upstreams, peers, mappings and thresholds.

Things are matched by name and compared field by field. A field has a judge that can show a
change to narrow or to leave reach as it is; a field without a judge widens, so that a field
which somebody adds tomorrow is never overlooked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from policies.bindings import IssuerBinding, Upstream
from policies.kinds import Kind
from policies.mapping import Relabel
from policies.review.change import Change, Direction
from policies.review.reading import Reading
from policies.review.writers.json import plain
from policies.thresholds import Thresholds

Judge = Callable[[Any, Any], Direction]

WIDENING, NARROWING, NEUTRAL = Direction.WIDENING, Direction.NARROWING, Direction.NEUTRAL
TEXT_MAX: Final = 120


def members_only_fall(before: Any, after: Any) -> Direction:
    """Fewer words reach less."""
    if set(after) == set(before):
        return NEUTRAL
    return NARROWING if set(after) < set(before) else WIDENING


def number_falls(before: int, after: int) -> Direction:
    """A smaller number narrows."""
    return NARROWING if after < before else WIDENING


def truth_falls(before: bool, after: bool) -> Direction:
    """What is no longer true narrows."""
    return NARROWING if before and not after else WIDENING


def emptied(before: str, after: str) -> Direction:
    """Taking the word away takes the reach away; another word reaches something else."""
    return NARROWING if before and not after else WIDENING


def tenants_fall(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> Direction:
    """None is whatever the user has, hence more than any list of it."""
    if after is None:
        return WIDENING
    return NARROWING if before is None else members_only_fall(before, after)


def trust_falls(_: Relabel, after: Relabel) -> Direction:
    """A mapping that is trusted no more has its widenings approved."""
    return NARROWING if after is Relabel.APPROVAL else WIDENING


def networks_fall(before: Any, after: Any) -> Direction:
    """Networks that all lie within those before narrow."""
    inside = all(
        any(one.version == other.version and one.subnet_of(other) for other in before)
        for one in after
    )
    return NARROWING if inside else WIDENING


def fixed_falls(before: Any, after: Any) -> Direction:
    """Compartments that a provider's callers all have: a shorter fixed list narrows."""
    if before.claim or after.claim:
        return WIDENING
    return members_only_fall(before.fixed, after.fixed)


_JUDGES: Final[Mapping[str, Mapping[str, Judge]]] = {
    "issuer": {
        "algorithms": members_only_fall,
        "max_age_seconds": number_falls,
        "tenants": fixed_falls,
        "jurisdictions": fixed_falls,
    },
    "route": {
        "methods": members_only_fall,
        "tool": emptied,
        "anonymous": emptied,
        "origins": members_only_fall,
    },
    "upstream": {"may_retrieve": truth_falls, "tenants": tenants_fall},
    "trusted peer": {"networks": networks_fall, "headers": members_only_fall},
    "mapping": {"inherited": members_only_fall, "relabel": trust_falls},
    # they choose among what may be read anyway
    "thresholds": {one.name: lambda *_: NEUTRAL for one in fields(Thresholds)},
}

_SILENT: Final = {
    "issuer": {"claims"},  # word by word, below
    "route": {"segments"},  # made from the path
    "upstream": {"profile"},  # by what it reads, below
    "trusted peer": set(),
    "mapping": {"known"},  # made from the vocabulary
    "thresholds": set(),
}


def compare(old: Reading, new: Reading) -> Iterator[Change]:
    """Every change of a binding, those of one area together."""
    was, now = old.snapshot, new.snapshot
    issuers = {i.alias: i for i in was.issuers}, {i.alias: i for i in now.issuers}
    yield from _named("issuer", *issuers)
    for alias in issuers[0].keys() & issuers[1].keys():
        yield from _claims(new, issuers[0][alias], issuers[1][alias])
    yield from _named(
        "route",
        {route.id: route for route in was.routes},
        {route.id: route for route in now.routes},
        added=lambda name: WIDENING if _usable(new, name) else NEUTRAL,
    )
    yield from _named(
        "upstream",
        was.upstreams,
        now.upstreams,
        removed=lambda name: _freed(new, was.upstreams[name]),
    )
    for name in was.upstreams.keys() & now.upstreams.keys():
        yield from _upstream_profile(old, new, name)
    yield from _named(
        "trusted peer",
        {peer.name: peer for peer in was.trusted_peers},
        {peer.name: peer for peer in now.trusted_peers},
    )
    yield from _named("mapping", was.mappings, now.mappings)
    yield from _fields("thresholds", "retrieval", was.thresholds, now.thresholds)


def _usable(reading: Reading, route: str) -> bool:
    entries = reading.snapshot.table.relations[Kind.ROUTES].entries
    return any(key[1] == route and verdict.allowed for key, verdict in entries.items())


def _freed(reading: Reading, upstream: Upstream) -> Direction:
    """A service that is no upstream any more is a caller like others, without the ceiling that it
    had: narrowing where no row places a caller of its issuer."""
    placed = any(
        upstream.credential[0] in row.cells[0] for row in reading.parsed.rows[Kind.AUDIENCE]
    )
    return WIDENING if placed else NARROWING


def _named(
    area: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    added: Callable[[str], Direction] = lambda _: WIDENING,
    removed: Callable[[str], Direction] = lambda _: NARROWING,
) -> Iterator[Change]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield Change(added(name), area, name, "added")
        elif name not in after:
            yield Change(removed(name), area, name, "removed")
        else:
            yield from _fields(area, name, before[name], after[name])


def _fields(area: str, name: str, before: Any, after: Any) -> Iterator[Change]:
    for field in fields(before):
        was, now = getattr(before, field.name), getattr(after, field.name)
        if was == now or field.name in _SILENT[area]:
            continue
        judge = _JUDGES[area].get(field.name)
        direction = judge(was, now) if judge else WIDENING
        yield Change(direction, area, name, f"{field.name}: {_shown(was)} -> {_shown(now)}")


def _claims(new: Reading, was: IssuerBinding, now: IssuerBinding) -> Iterator[Change]:
    """Claims word by word. What new words of ``groups`` do is told by placement, which tries
    them; roles and tasks open more than a profile (an approver's right), so new ones widen."""
    held = _held_back(new, now)
    for ours in sorted(was.claims.keys() | now.claims.keys()):
        before, after = was.claims.get(ours), now.claims.get(ours)
        if before is not None and after is not None and before.claim != after.claim:
            text = f"{ours}: read from `{after.claim}` instead of `{before.claim}`"
            yield Change(WIDENING, "claims", now.alias, text)
        old_words = before.values if before else {}
        new_words = after.values if after else {}
        for word in sorted(old_words.keys() | new_words.keys()):
            one, other = old_words.get(word), new_words.get(word)
            if one == other:
                continue
            direction = NARROWING if other is None else WIDENING
            if ours == "roles" and one in held:
                direction = WIDENING  # it denied what another role of the same caller allows
            if ours == "groups":
                direction = NEUTRAL
            text = f"{ours}: `{word}` means {other or 'nothing'}, not {one or 'nothing'}"
            yield Change(direction, "claims", now.alias, text)


def _held_back(new: Reading, issuer: IssuerBinding) -> frozenset[str]:
    """Roles that took something from a caller of this issuer who has another one, too. Rows that
    go are told where requests are compared; here the same rows stop to be met."""
    relation = new.snapshot.table.relations[Kind.ADMIN]
    source = issuer.claims.get("roles")
    others = {word for word in source.values.values() if word} if source else set()
    actions = [(role, action) for role, action in relation.entries if role in others]
    denying = {role for role, _ in relation.entries}
    return frozenset(
        role
        for role in denying
        for other, action in actions
        if relation.verdict(frozenset({other}), frozenset({action})).allowed
        and not relation.verdict(frozenset({other, role}), frozenset({action})).allowed
    )


def _upstream_profile(old: Reading, new: Reading, name: str) -> Iterator[Change]:
    """Another ceiling narrows when it lies within the old one, both as they are read now."""
    was, now = old.snapshot.upstreams[name].profile, new.snapshot.upstreams[name].profile
    if was == now:
        return
    readable = new.snapshot.table.units.readable
    within = all(
        (was, consent) in readable and not readable[now, consent] & ~readable[was, consent]
        for consent in ("none", "granted")
    )
    text = f"profile: {was} -> {now}"
    yield Change(NARROWING if within else WIDENING, "upstream", name, text)


def _shown(value: object) -> str:
    if value is None or value in ("", ()):
        return "(none)"
    text = value if isinstance(value, str) else str(plain(value) if _deep(value) else value)
    return f"{text[:TEXT_MAX]}…" if len(text) > TEXT_MAX else text


def _deep(value: object) -> bool:
    return is_dataclass(value) or isinstance(value, list | tuple | Mapping | set | frozenset)
