"""A decision record as its reader gets it: typed, and honest about what it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.decisions.fields import POLICY_REASONS
from policies.decision import Effect

FOR_REQUEST: Final = (
    "policy_digest",
    "surface",
    "route",
    "method",
    "issuer",
    "claims",
    "audience",
    "profile",
    "profiles",
    "task_scope",
    "narrowed",
    "actor",
    "station",
    "effect",
    "code",
)
"""What placement and route decision of a request depend on, and what came of them."""
FOR_UNITS: Final = (
    "policy_digest",
    "profiles",
    "classes.class_id",
    "classes.consent",
    "classes.allowed",
    "classes.denied",
    "classes.not_by_class",
)
"""What the decisions on a request's units depend on, and what came of them."""
UNPOLICED: Final = frozenset({"", "admit", "match", "identify"})
"""Stations at which a request that ends was refused before policy decided about its caller."""

_NAMED: Final[Mapping[str, str]] = {
    "bad_request": "purpose",
    "audience_refused": "narrowed",
    "task_scope_refused": "task_scope",
}
"""Refusals for what a request named. A word of the policy is kept, a caller's own is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """How many units the answer showed and what was kept back. None: masked or erased."""

    returned: int | None
    denied: int | None
    stale: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCount:
    """Units of one class, with or without a consent. None: masked or erased.

    ``denied`` minus ``not_by_class`` were denied by class alone.
    """

    class_id: int | None
    consent: bool | None
    allowed: int | None
    denied: int | None
    not_by_class: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One request and what was decided about it. Fields: see `fields.FIELDS`.

    A masked text stands as its mask. An erased text or list is empty, an erased or masked
    number or effect None; ``masked`` and ``erased`` tell them from what was empty.
    """

    decision_id: str
    request_id: str
    trace_id: str
    at: str
    policy_digest: str
    surface: str
    route: str
    method: str
    issuer: str
    claims: tuple[str, ...]
    audience: str
    profile: str
    profiles: tuple[str, ...]
    task_scope: str
    purpose: str
    narrowed: str
    actor: str
    station: str
    effect: Effect | None
    code: str
    reason: str
    rules: tuple[str, ...]
    units: Units
    classes: tuple[ClassCount, ...]
    duration_us: int | None
    sampled: float
    dropped: int
    masked: frozenset[str]
    erased: frozenset[str]

    @property
    def weight(self) -> float:
        """How many requests of its sort this record stands for, itself included."""
        return 1 / self.sampled

    @property
    def claim_sets(self) -> Mapping[str, frozenset[str]]:
        """The claims as ``Snapshot.place`` takes them: name -> aliases."""
        found: dict[str, set[str]] = {}
        for pair in self.claims:
            name, _, alias = pair.partition("=")
            found.setdefault(name, set()).add(alias)
        return {name: frozenset(aliases) for name, aliases in found.items()}

    def unknown(self, *paths: str) -> tuple[str, ...]:
        """Which of these fields this record does not tell: ``masked: PATH``, ``erased: PATH``."""
        gone = [f"masked: {path}" for path in paths if path in self.masked]
        gone += [
            f"erased: {path}"
            for path in paths
            if path in self.erased or path.partition(".")[0] in self.erased
        ]
        return tuple(gone)

    @property
    def request_obstacles(self) -> tuple[str, ...]:
        """Why placement and route of this request cannot be decided anew; empty: they can."""
        if gone := self.unknown(*FOR_REQUEST):
            return gone
        if self.surface == "admin":
            return ("a question of an operator",)
        if self.station in UNPOLICED and not self._passed_identify:
            return (f"refused before policy: {self.code or 'no decision'}",)
        if self.code in _NAMED and not getattr(self, _NAMED[self.code]):
            return ("refused for a word that no record keeps",)
        return ()

    @property
    def _passed_identify(self) -> bool:
        """A record of before the refusing station was told: `identify` was the last one passed,
        and policy had spoken."""
        return self.station == "identify" and self.reason in POLICY_REASONS

    @property
    def unit_obstacles(self) -> tuple[str, ...]:
        """Why the decisions on this request's units cannot be made anew; empty: they can."""
        if gone := self.unknown(*FOR_UNITS):
            return gone
        return () if self.classes else ("no governed unit was looked up",)
