"""All that a policy lets anybody do, as plain tuples: what grows when a tuple is new.

Written from what the gateway asks a snapshot, without ``policies.review``: the two must agree
on which way a change goes. Callers are tried with one and with two words of each of their
identity provider's claims, since a verdict over many words needs one that is allowed and none
that is denied.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from policies.bindings import IssuerBinding
from policies.kinds import AdminAction, LabelAuthor
from policies.loader import ANONYMOUS
from policies.snapshot import Snapshot
from policies.vocabulary import CONSENTS

WORDS_MAX: Final = 12
"""Words of one claim that are tried: a fuzzer may write hundreds."""

Able = tuple[str, ...]


def reach(snapshot: Snapshot) -> frozenset[Able]:
    """Everything that somebody can do under this policy. Cost: some 50 ms."""
    return frozenset(
        itertools.chain(_reads(snapshot), _enters(snapshot), _is(snapshot), _trusts(snapshot))
    )


def _reads(snapshot: Snapshot) -> Iterator[Able]:
    """Which states each profile reads, by the words of the state and not by its id."""
    states = dict(snapshot.vocabulary.classes)
    for profile, audience in snapshot.vocabulary.profiles.items():
        yield ("is served as", profile, audience)
        for consent in CONSENTS:
            for class_id in snapshot.table.units.classes(profile, consent):
                yield ("reads", profile, consent, *states[class_id])


def _enters(snapshot: Snapshot) -> Iterator[Able]:
    """Who may use which door, give which consent, operate and approve."""
    words = snapshot.vocabulary
    for route in snapshot.routes:
        for reader, method in itertools.product((*words.profiles, ANONYMOUS), route.methods):
            if reader == ANONYMOUS and not route.anonymous:
                continue
            if snapshot.decide_route(reader, route.id, method).allowed:
                behind = (route.mode, route.upstream, route.operation)
                whom = route.anonymous if reader == ANONYMOUS else reader
                yield ("enters", reader, whom, route.path, method, *behind)
    for asked in itertools.product(words.profiles, words.purposes, words.roles, words.ttls):
        if snapshot.decide_consent(*asked).allowed:
            yield ("consents", *asked)
    for roles, action in itertools.product(_sets(words.roles), AdminAction):
        if snapshot.decide_admin(frozenset(roles), action).allowed:
            yield ("operates", *roles, action)
    for reader, role, author in itertools.product(words.profiles, words.roles, LabelAuthor):
        if snapshot.decide_label(reader, role, author).allowed:
            yield ("approves", reader, role, author)


def _is(snapshot: Snapshot) -> Iterator[Able]:
    """Whom each token makes its bearer."""
    for issuer in snapshot.issuers:
        claims = {ours: _known(issuer, ours) for ours in issuer.claims}
        who = (issuer.url, issuer.token_audience)
        for ours, words in claims.items():
            for some in _sets(words):
                given = issuer.aliases({issuer.claims[ours].claim: list(some)})
                placed = snapshot.place(issuer.alias, given)
                if placed.allowed:
                    yield ("is", *who, *some, placed.value)
        yield from _agents(snapshot, issuer, claims)


def _agents(
    snapshot: Snapshot, issuer: IssuerBinding, claims: Mapping[str, Sequence[str]]
) -> Iterator[Able]:
    if not {"roles", "task_scopes"} <= claims.keys():
        return
    tools = sorted({route.tool for route in snapshot.routes if route.tool})
    for some, task, tool in itertools.product(_sets(claims["roles"]), claims["task_scopes"], tools):
        given = issuer.aliases({
            issuer.claims["roles"].claim: list(some),
            issuer.claims["task_scopes"].claim: [task],
        })  # fmt: skip
        if issuer.claims["roles"].claim == issuer.claims["task_scopes"].claim:
            continue  # one claim for both: the second would take the place of the first
        for scope in given["task_scopes"]:
            placed = snapshot.place_agent(given["roles"], scope, tool)
            if placed.allowed:
                yield ("works as", issuer.url, *some, task, tool, placed.value)


def _trusts(snapshot: Snapshot) -> Iterator[Able]:
    """Whose word is taken, and for what."""
    for issuer in snapshot.issuers:
        keys = (issuer.jwks_uri, issuer.jwks)
        for algorithm in issuer.algorithms:
            yield ("signs", issuer.url, issuer.token_audience, algorithm, *keys)
        for name in ("tenants", "jurisdictions"):
            source = getattr(issuer, name)
            for value in source.fixed or (f"claim {source.claim}",):
                yield ("belongs to", issuer.url, name, value)
    for upstream in snapshot.upstreams.values():
        if upstream.may_retrieve:
            yield ("retrieves", upstream.name, *upstream.credential)
    for peer in snapshot.trusted_peers:
        for network, header in itertools.product(peer.networks, peer.headers):
            yield ("is believed", str(network), header)


def _known(issuer: IssuerBinding, ours: str) -> Sequence[str]:
    return sorted(issuer.claims[ours].values)[:WORDS_MAX]


def _sets(words: Sequence[str]) -> list[tuple[str, ...]]:
    some = sorted(words)[:WORDS_MAX]
    return [*((word,) for word in some), *itertools.combinations(some, 2)]
