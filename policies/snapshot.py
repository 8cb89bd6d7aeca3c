"""One revision of the policy, compiled, proven and immutable.

Everything that decides anything reads one snapshot; a request pins one and keeps it. A
reload builds another and swaps the reference; nothing here ever changes.

This module does not know Casbin's API, SQL or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policies import congruence, oracle, soundness
from policies.bindings import IssuerBinding, Route, TrustedPeer, Upstream
from policies.decision import Decision, Effect, Grant, PolicyDigest
from policies.errors import UnknownProfile
from policies.kinds import AdminAction, Kind, LabelAuthor
from policies.loader import Parsed, parse
from policies.mapping import IngestMapping
from policies.table import DecisionTable, FacetSets, Relation, members, relation, unit_table
from policies.thresholds import DEFAULTS, Thresholds
from policies.vocabulary import Vocabulary

DEFAULT_FOLDER: Final = Path(__file__).parent
_GRANTS_MAX: Final = 4_096
_DECISIONS_MAX: Final = 4_096
"""How many decisions one snapshot remembers; it never changes, so neither do they."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the policy says, for every point that enforces it. Made by ``load``."""

    digest: PolicyDigest
    vocabulary: Vocabulary
    table: DecisionTable
    issuers: tuple[IssuerBinding, ...]
    routes: tuple[Route, ...]
    upstreams: Mapping[str, Upstream]
    trusted_peers: tuple[TrustedPeer, ...]
    mappings: Mapping[str, IngestMapping]
    thresholds: Thresholds = DEFAULTS
    _grants: dict[tuple[str, ...], Grant] = field(init=False, repr=False, compare=False)
    _decisions: dict[tuple[object, ...], Decision] = field(init=False, repr=False, compare=False)
    _starts: dict[tuple[str, ...], tuple[Route, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_grants", {})
        object.__setattr__(self, "_decisions", {})
        object.__setattr__(self, "_starts", {})

    def grant(self, profiles: Sequence[str]) -> Grant:
        """What may be read under all of these profiles at once; the first one is the caller's.

        Raises UnknownProfile for an empty list or a word that is not a profile. Cost: one
        lookup after the first time.
        """
        key = tuple(dict.fromkeys(profiles))
        cached = self._grants.get(key)
        if cached is not None:
            return cached
        if not key:
            raise UnknownProfile("a grant needs at least one profile")
        plain = consented = -1
        for profile in key:
            if profile not in self.vocabulary.profiles:
                raise UnknownProfile(f"`{profile}` is not a profile of policy {self.digest[:12]}")
            plain &= self.table.units.readable[profile, "none"]
            consented &= self.table.units.readable[profile, "granted"]
        made = Grant(self.digest, key, members(plain), members(consented))
        if len(self._grants) < _GRANTS_MAX:
            self._grants[key] = made
        return made

    @property
    def granted(self) -> tuple[tuple[str, ...], ...]:
        """The combinations of profiles that were asked for so far."""
        return tuple(self._grants)

    def pieces(self) -> list[object]:
        """What it holds that is costly to free, so that an owner can let go of it bit by bit."""
        return [self.vocabulary, self.table.units.readable, *self._grants.values()]

    def place(self, issuer: str, claims: Mapping[str, frozenset[str]]) -> Decision:
        """The one audience of a verified caller, from the aliases of its claims.

        Denied as ``no_audience`` when no row (or a deny row) matches, as
        ``ambiguous_audience`` when two audiences are left; never merged, never downgraded.
        """
        pairs = frozenset([f"{name}={one}" for name, found in claims.items() for one in found])
        asked = (Kind.AUDIENCE, issuer, pairs)
        known = self._decisions.get(asked)
        if known is not None:
            return known
        request = frozenset({issuer}), pairs
        return self._keep(asked, self._only(Kind.AUDIENCE, self.vocabulary.audiences, request))

    def place_agent(self, roles: frozenset[str], task_scope: str, tool: str) -> Decision:
        """The one profile of an agent, from its verified role, one permitted task and the tool."""
        return self._only(
            Kind.AGENTS,
            tuple(self.vocabulary.profiles),
            (roles, frozenset({task_scope}), frozenset({tool})),
        )

    def narrow(self, audience: str) -> str | None:
        """The profile to intersect with when a request names an audience; None if unknown."""
        return audience if audience in self.vocabulary.profiles else None

    def decide_route(self, audience: str, route_id: str, method: str) -> Decision:
        """Whether an audience (or an agent profile, or ``anonymous``) may use a route."""
        asked = (Kind.ROUTES, audience, route_id, method)
        known = self._decisions.get(asked)
        if known is not None:
            return known
        reader = self.vocabulary.profiles.get(audience, audience)
        made = self._relation(Kind.ROUTES).decide(
            route_id, self.digest, *map(_one, (reader, route_id, method))
        )
        return self._keep(asked, made)

    def decide_consent(self, audience: str, purpose: str, approver_role: str, ttl: str) -> Decision:
        """Whether someone of this role may give a consent to someone of this audience."""
        reader = self.vocabulary.profiles.get(audience, audience)
        return self._relation(Kind.CONSENT).decide(
            purpose, self.digest, *map(_one, (reader, purpose, approver_role, ttl))
        )

    def decide_admin(self, roles: frozenset[str], action: AdminAction) -> Decision:
        """Whether an operator with these verified roles may ask this of the running gateway.

        No role, no right; a deny row on any one of the roles denies.
        """
        return self._relation(Kind.ADMIN).decide(action, self.digest, roles, _one(action))

    def decide_label(self, audience: str, approver_role: str, author: LabelAuthor) -> Decision:
        """Whether someone of this role may approve a label that opens units to an audience."""
        reader = self.vocabulary.profiles.get(audience, audience)
        return self._relation(Kind.LABELS).decide(
            reader, self.digest, *map(_one, (reader, approver_role, author))
        )

    def routes_for(self, segments: tuple[str, ...]) -> tuple[Route, ...]:
        """The routes that a path of these segments can be on, in the order of the file: those
        whose first two parts it may have. Cost: one look-up."""
        start = segments[:2]
        found = self._starts.get(start)
        if found is None:
            found = tuple(route for route in self.routes if route.may_start(start))
            if found and len(self._starts) < _DECISIONS_MAX:
                self._starts[start] = found
        return found

    def route(self, route_id: str) -> Route | None:
        """A route by id."""
        return next((route for route in self.routes if route.id == route_id), None)

    def _keep(self, asked: tuple[object, ...], made: Decision) -> Decision:
        if len(self._decisions) < _DECISIONS_MAX:
            self._decisions[asked] = made
        return made

    def _relation(self, kind: Kind) -> Relation:
        return self.table.relations[kind]

    def _only(
        self, kind: Kind, candidates: Sequence[str], request: tuple[frozenset[str], ...]
    ) -> Decision:
        relation = self._relation(kind)
        found = {
            candidate: relation.verdict(*request, frozenset({candidate}))
            for candidate in candidates
        }
        allowed = {candidate: verdict for candidate, verdict in found.items() if verdict.allowed}
        if len(allowed) == 1:
            ((value, verdict),) = allowed.items()
            return Decision(Effect.ALLOW, value, "rule", verdict.allows, self.digest)
        if allowed:
            rules = sorted({rule for verdict in allowed.values() for rule in verdict.allows})
            return Decision(Effect.DENY, "", "ambiguous_audience", tuple(rules), self.digest)
        denies = sorted({rule for verdict in found.values() for rule in verdict.denies})
        return Decision(Effect.DENY, "", "no_audience", tuple(denies), self.digest)


def _one(word: str) -> frozenset[str]:
    return frozenset({word})


def load(folder: Path = DEFAULT_FOLDER, overlay: Path | None = None) -> Snapshot:
    """The snapshot of a policy folder, proven equal to Casbin on its quotient.

    ``overlay`` holds files that replace those of the same relative path; the digest
    covers the result.

    Raises InvalidPolicy with every fault of the folder, IncongruentPolicy when a compiled
    form disagrees with Casbin, WrongCasbin when another distribution owns that module.
    Cost: well under a second; keep it off an event loop.
    """
    return proven(parse(folder, overlay))


def proven(parsed: Parsed) -> Snapshot:
    """A parsed folder as a snapshot, with the same proof and the same refusals as ``load``."""
    oracle.check_distribution()
    snapshot, sets = compiled(parsed)
    soundness.check(parsed, snapshot.table)
    congruence.check(parsed.vocabulary, snapshot.table, sets, parsed.domains)
    return snapshot


def compiled(parsed: Parsed) -> tuple[Snapshot, FacetSets]:
    """A parsed folder as an unproven snapshot, with the sets that it was made from."""
    sets = FacetSets(parsed.vocabulary)
    table = DecisionTable(
        unit_table(parsed.vocabulary, parsed.rows[Kind.UNITS], sets),
        {
            kind: relation(shape, parsed.rows[kind])
            for kind, shape in parsed.shapes.items()
            if kind is not Kind.UNITS
        },
    )
    return (
        Snapshot(
            parsed.digest,
            parsed.vocabulary,
            table,
            parsed.issuers,
            parsed.routes,
            parsed.upstreams,
            parsed.trusted_peers,
            parsed.mappings,
            parsed.thresholds,
        ),
        sets,
    )
