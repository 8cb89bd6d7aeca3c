"""What the stations leave behind of one request: references, read when a record is written.

Nothing is counted or copied here, so a request whose record is sampled away pays for five
assignments. After the record station nothing of it changes any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.routes.wishes import Wish
from policies.bindings import Upstream
from policies.decision import Decision
from policies.snapshot import Snapshot
from policies.subject import Principal, Subject


@dataclass(slots=True)
class PerClass:
    """Units of one class with or without consent; see `fields` for the meaning of each count."""

    allowed: int = 0
    denied: int = 0
    not_by_class: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCounts:
    """The units of one request. ``classes`` is keyed by (class id, consent)."""

    returned: int = 0
    denied: int = 0
    stale: int = 0
    classes: Mapping[tuple[int, bool], PerClass] = field(default_factory=dict)


class Counting(Protocol):
    """Whoever saw the units of a request (`egress.tally`)."""

    @property
    def withheld(self) -> bool:
        """Whether a unit was kept from the caller, or held back as late. Cost: two look-ups."""
        ...

    def counts(self) -> UnitCounts:
        """All counts. Cost: one pass over the request's units."""
        ...


class _NoUnits:
    """The units of a request that never came to any."""

    withheld = False

    def counts(self) -> UnitCounts:
        return UnitCounts()


NO_UNITS: Final[Counting] = _NoUnits()


@dataclass(slots=True)
class Facts:
    """One request as far as it came. None: it did not come that far (or there is none).

    ``station`` is the last one that was passed, or the one that refused. ``identified`` tells an
    anonymous caller (``principal`` None) from one that nobody looked at yet. ``decisions`` are
    the policy's, in the order in which they were made.
    """

    tally: Counting = NO_UNITS
    station: str = ""
    snapshot: Snapshot | None = None
    identified: bool = False
    principal: Principal | None = None
    actor: Upstream | None = None
    wish: Wish | None = None
    subject: Subject | None = None
    decisions: list[Decision] = field(default_factory=list)
