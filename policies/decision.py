"""What a policy says, in the forms the other houses consume.

Laws
    * A *decision* names its effect, the rule that made it and the digest it was made under.
    * A *grant* is a decision compiled for every class of unit: two positive lists.
    * A *scope* is a grant plus the caller's compartments and consents. It is the one
      object from which the SQL predicate, the Qdrant filter and the egress guard are
      made, so that they cannot drift apart. It holds positive lists only, and an empty
      list means *nothing*, never *everything*.
    * Class ``-1`` (unlabelled, unknown, contradictory) is in no list.

This module does not know files, Casbin, SQL or HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType
from uuid import UUID

PolicyDigest = NewType("PolicyDigest", str)
"""Lower-case hex SHA-256 over the policy folder's canonical content."""

SHARED: Final = "*"
"""The compartment value that every subject may read. Written out, never implied."""

UNCLASSED: Final = -1


class Effect(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer of the policy, with the rules that gave it.

    ``value`` is what was decided on (an audience, a profile, a route id); it is
    empty on a denial. ``reason`` is a stable code such as ``rule``, ``no_rule``,
    ``denied_by_rule`` or ``ambiguous``.
    """

    effect: Effect
    value: str
    reason: str
    rules: tuple[str, ...]
    digest: PolicyDigest

    @property
    def allowed(self) -> bool:
        return self.effect is Effect.ALLOW


@dataclass(frozen=True, slots=True)
class Grant:
    """Which classes of unit a caller may read.

    ``profiles[0]`` is the caller's own profile; any further ones only narrow
    (an ``audience`` named in the request, the upstream that acts for the caller):
    the lists are the intersection over all of them.

    ``plain`` and ``consented`` are sorted class ids: readable without consent, and
    readable with consent. ``consented`` contains ``plain`` (consent only opens; the
    loader refuses a policy in which it closes).
    """

    digest: PolicyDigest
    profiles: tuple[str, ...]
    plain: tuple[int, ...]
    consented: tuple[int, ...]
    _plain: bytes = field(init=False, repr=False, compare=False)
    _consented: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.profiles:
            raise ValueError("a grant belongs to at least one profile")
        plain, consented = frozenset(self.plain), frozenset(self.consented)
        if not plain <= consented:
            raise ValueError("consent may only open classes, never close them")
        if any(class_id < 0 for class_id in consented):
            raise ValueError("no list may contain the class of unlabelled units")
        object.__setattr__(self, "_plain", _table(self.plain))
        object.__setattr__(self, "_consented", _table(self.consented))

    @property
    def profile(self) -> str:
        """The caller's own profile, under whose database role everything is read."""
        return self.profiles[0]

    def permits_class(self, class_id: int, *, consent: bool) -> bool:
        """Whether a unit of this class may be read. Cost: one look-up."""
        table = self._consented if consent else self._plain
        return 0 <= class_id < len(table) and table[class_id] == 1


def _table(class_ids: tuple[int, ...]) -> bytes:
    """One byte per class, 1 for those listed. As quick as a set, and nothing that the garbage
    collector walks: two hundred grants as sets would cost each full collection 5 ms."""
    table = bytearray(max(class_ids, default=-1) + 1)
    for class_id in class_ids:
        table[class_id] = 1
    return bytes(table)


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything that decides whether one caller may see one unit, for one request.

    ``tenants`` and ``jurisdictions`` are the caller's own (sorted, without ``*``;
    units marked ``*`` are always in reach). ``consented_units`` are the unit ids for
    which a live consent of this subject and purpose exists, sorted.

    There is no default for any field: a scope cannot be made by forgetting something.
    """

    grant: Grant
    tenants: tuple[str, ...]
    jurisdictions: tuple[str, ...]
    consented_units: tuple[UUID, ...]
    _units: frozenset[UUID] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_units", frozenset(self.consented_units))

    def permits(self, *, unit_id: UUID, class_id: int, tenant: str, jurisdiction: str) -> bool:
        """The verdict on one unit. Cost: four set or tuple lookups, no I/O.

        ``tenant`` and ``jurisdiction`` are the unit's; an empty one is nobody's.
        """
        permits = self.grant.permits_class
        return (
            (tenant == SHARED or (tenant != "" and tenant in self.tenants))
            and (
                jurisdiction == SHARED
                or (jurisdiction != "" and jurisdiction in self.jurisdictions)
            )
            and (
                permits(class_id, consent=False)
                # hashing a UUID costs as much as all the rest: only where it can open something
                or (
                    len(self._units) > 0
                    and permits(class_id, consent=True)
                    and unit_id in self._units
                )
            )
        )
