"""Everything besides rules that can open access, as typed values.

Issuers (whose tokens count, and what their words mean), routes (what is answered at all,
and how it is guarded), upstreams (who stands behind) and trusted peers (whose word about
a client is believed). All of it lives in policy files, never in the configuration.

This module does not know files, sockets or tokens' encoding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from policies.decision import SHARED

COMPARTMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What a tenant or jurisdiction may look like; never ``*``, which only a unit may carry."""


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """Where one of our claims comes from: their claim's name, and their words -> our aliases."""

    claim: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompartmentSource:
    """Where tenants or jurisdictions come from: a claim (``fixed`` empty), or fixed values."""

    claim: str
    fixed: tuple[str, ...]

    def values(self, token_claims: Mapping[str, object]) -> tuple[str, ...]:
        """The caller's own compartments, sorted. Anything malformed is dropped, never guessed."""
        if not self.claim:
            return self.fixed
        words = _words(token_claims.get(self.claim))
        return tuple(sorted({w for w in words if w != SHARED and COMPARTMENT.fullmatch(w)}))


@dataclass(frozen=True, slots=True)
class IssuerBinding:
    """One identity provider that is believed.

    ``url`` is compared with ``iss`` byte for byte. Exactly one of ``jwks_uri`` and
    ``jwks_file`` (path relative to the policy folder) is set; ``jwks`` holds the file's text.
    """

    alias: str
    url: str
    token_audience: str
    algorithms: tuple[str, ...]
    jwks_uri: str
    jwks_file: str
    jwks: str
    max_age_seconds: int
    claims: Mapping[str, ClaimSource]
    tenants: CompartmentSource
    jurisdictions: CompartmentSource

    def aliases(self, token_claims: Mapping[str, object]) -> Mapping[str, frozenset[str]]:
        """Our claims (``groups``, ``roles``, ``sources``, ``task_scopes``) as aliases; unknown
        words dropped."""
        return {
            ours: frozenset(
                source.values[word]
                for word in _words(token_claims.get(source.claim))
                if word in source.values
            )
            for ours, source in self.claims.items()
        }


def _words(value: object) -> tuple[str, ...]:
    """A claim as words: one string or a list of strings, else nothing at all."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return ()


ABSENT_ORIGIN: Final = "absent"
"""Among the origins of a route: clients that are no browser and send none."""


class RouteMode(StrEnum):
    OPAQUE = "opaque"
    GUARD = "guard"
    GUARD_JSON = "guard_json"


class SegmentSort(StrEnum):
    LITERAL = "literal"
    NAME = "name"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a path pattern: fixed text, a name for one segment, or a name for the rest."""

    sort: SegmentSort
    text: str


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that the gateway answers. ``upstream``, ``operation``, ``tool`` and ``anonymous``
    are empty where they do not apply.

    ``origins`` are the web pages whose scripts may open a WebSocket here; none: nobody may.
    """

    id: str
    path: str
    segments: tuple[Segment, ...]
    methods: tuple[str, ...]
    mode: RouteMode
    upstream: str
    operation: str
    tool: str
    anonymous: str
    origins: tuple[str, ...] = ()

    def opens_socket(self, origin: str | None) -> bool:
        """Whether a handshake with this ``Origin`` may open a WebSocket; None = it has none.

        Compared byte for byte: browsers write an origin in one way only.
        """
        if origin is None:
            return ABSENT_ORIGIN in self.origins
        return origin != ABSENT_ORIGIN and origin in self.origins

    def match(self, path: str) -> Mapping[str, str] | None:
        """The named parts of a canonical path, or None.

        ``path`` must have been made canonical already (decoded once, no dot segments, no
        empty segment but the last): segments are compared as they stand, whole, byte for byte.
        """
        return self.names_of(path.split("/")[1:]) if path.startswith("/") else None

    def may_start(self, parts: Sequence[str]) -> bool:
        """Whether a path that begins with these parts can be this route's."""
        return all(
            segment.sort is not SegmentSort.LITERAL or segment.text == part
            for segment, part in zip(self.segments, parts, strict=False)
        )

    def names_of(self, parts: Sequence[str]) -> Mapping[str, str] | None:
        """As `match`, for a path that was split at its slashes already (``/`` = one empty part).

        A path that ends in a slash (an empty last part) is an index, which only an upstream has:
        no guarded route takes it, no fixed text and no name of one segment is empty.
        """
        if len(parts) < len(self.segments):
            return None
        if self.mode is RouteMode.GUARD and not parts[-1]:
            return None
        names: dict[str, str] = {}
        for position, segment in enumerate(self.segments):
            if segment.sort is SegmentSort.REST:
                names[segment.text] = "/".join(parts[position:])
                return names
            if segment.sort is SegmentSort.LITERAL and parts[position] != segment.text:
                return None
            if segment.sort is SegmentSort.NAME:
                if not parts[position]:
                    return None
                names[segment.text] = parts[position]
        return names if len(parts) == len(self.segments) else None


@dataclass(frozen=True, slots=True)
class FacetSource:
    """Where a facet stands in an upstream's JSON, and what its words mean here."""

    field: str
    words: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompartmentField:
    """Where a foreign unit's tenant or jurisdiction stands: a field (``fixed`` empty), or fixed.

    ``shared`` are the upstream's own words for "everybody's". Its ``*`` is none of them unless
    it is listed: what is shared is said in policy, never by an upstream's data alone.
    """

    field: str
    fixed: str
    shared: frozenset[str]

    def value(self, hit: Mapping[str, object]) -> str:
        """The unit's compartment; empty (nobody's) when the hit does not say one plainly."""
        if not self.field:
            return self.fixed
        word = hit.get(self.field)
        if not isinstance(word, str):
            return ""
        if word in self.shared:
            return SHARED
        return word if COMPARTMENT.fullmatch(word) else ""


@dataclass(frozen=True, slots=True)
class FacetMap:
    """How an upstream labels its units: every facet and both compartments, none by default."""

    facets: Mapping[str, FacetSource]
    tenant: CompartmentField
    jurisdiction: CompartmentField

    @property
    def fields(self) -> frozenset[str]:
        """Every name under which a label stands in the upstream's JSON."""
        facets = {source.field for source in self.facets.values()}
        return frozenset(facets | {self.tenant.field, self.jurisdiction.field}) - {""}


@dataclass(frozen=True, slots=True)
class Upstream:
    """A service behind the gateway.

    ``credential`` is (issuer alias, subject) that it must prove to use a delegation.
    ``profile`` is intersected with the user's own. ``tenants`` is None for ``caller``.
    """

    name: str
    token_audience: str
    may_retrieve: bool
    credential: tuple[str, str]
    profile: str
    tenants: tuple[str, ...] | None
    facets: FacetMap | None


@dataclass(frozen=True, slots=True)
class TrustedPeer:
    """A proxy whose forwarding headers are believed."""

    name: str
    networks: tuple[IPv4Network | IPv6Network, ...]
    headers: tuple[str, ...]
