"""Bodies of the operators' questions and answers: closed, strict, bounded.

The command line builds and reads the same models, so neither side can drift.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from policies.kinds import AdminAction
from policies.vocabulary import CLASS_LIMIT

LIVE_PATH: Final = "/admin/v1/policy/live"
EXPLAIN_PATH: Final = "/admin/v1/policy/explain"

_PLAIN: Final = r"^[^\x00-\x1f\x7f]+$"
_SAID: Final = r"^(?:[^\x00-\x1f\x7f]*[\p{L}\p{N}]){3}[^\x00-\x1f\x7f]*$"
"""Three letters or digits at least: marks that nobody sees give no reason."""
Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=3, max_length=500, pattern=_SAID)
]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Profile = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(:[a-z][a-z0-9_]*)?$")]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=_PLAIN)]
Compartment = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=_PLAIN)]
Compartments = Annotated[tuple[Compartment, ...], Field(max_length=100)]
ClassId = Annotated[int, Field(ge=0, lt=CLASS_LIMIT)]
Classes = Annotated[tuple[ClassId, ...], Field(max_length=CLASS_LIMIT)]


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(Wire):
    """What every question of an operator holds: why it is asked."""

    reason: Reason


class Mode(StrEnum):
    """How exactly live numbers are told."""

    BUCKETED = "bucketed"
    COUNTS = "counts"
    IDS = "ids"

    @property
    def actions(self) -> tuple[AdminAction, ...]:
        """All that the policy must allow; whoever is told ids is told numbers with them."""
        match self:
            case Mode.BUCKETED:
                return (AdminAction.LIVE_BUCKETED,)
            case Mode.COUNTS:
                return (AdminAction.LIVE_COUNTS,)
            case Mode.IDS:
                return (AdminAction.LIVE_IDS, AdminAction.LIVE_COUNTS)


class LiveChange(Wire):
    """Classes that one profile gains and loses, with or without a consent."""

    profile: Profile
    gained: Classes = ()
    lost: Classes = ()


class LiveRequest(Question):
    """``digest`` is of the policy that would make these changes."""

    mode: Mode
    digest: Digest
    changes: Annotated[tuple[LiveChange, ...], Field(max_length=1_000)]


class Touched(Wire):
    """How much of what is live has one of some classes: numbers, or orders of magnitude.

    ``ids`` are of the units that the operator may read itself, at most ``IDS_MAX``; ``more``
    says that there are others among those.
    """

    units: int | str
    threads: int | str
    ids: tuple[UUID, ...] | None = None
    more: bool = False


class LiveProfile(Wire):
    """How much of what is live one profile would gain and lose."""

    profile: Profile
    gained: Touched
    lost: Touched


class LiveReply(Wire):
    """``live_digest`` is of the policy in force, under which the question was decided."""

    request_id: str
    mode: Mode
    digest: Digest
    live_digest: Digest
    profiles: tuple[LiveProfile, ...]


class Caller(Wire):
    """Whom a unit is explained for: a profile (an audience is one), and its compartments."""

    profile: Profile
    tenants: Compartments = ()
    jurisdictions: Compartments = ()
    consent: Literal["none", "granted"] = "none"


class ExplainRequest(Question):
    """``unit`` is an id or a canonical address."""

    unit: Reference
    caller: Caller


class RuleAt(Wire):
    """A rule, and the line of the policy folder that states it."""

    rule: str
    file: str
    line: int


class MissedAxis(Wire):
    """One axis on which a rule fails: what was asked, and what it would accept."""

    axis: str
    asked: str
    accepted: tuple[str, ...]


class NearRule(Wire):
    """An allow rule that does not match, and every axis on which it fails."""

    rule: RuleAt
    misses: tuple[MissedAxis, ...]


class CompartmentFit(Wire):
    """Whether the unit's value of one compartment is shared or one of the caller's own."""

    name: str
    unit: str
    caller: tuple[str, ...]
    fits: bool


class ExplainReply(Wire):
    """``state`` is None for a unit without a class, which nobody may read.

    ``class_allowed`` is what the rules say, ``allowed`` also what the compartments do;
    ``verdict`` names the rules, or what else denies: a compartment, no class.
    ``override_until``: the state is looser than the unit's label until then, by an override.
    """

    request_id: str
    policy_digest: Digest
    unit_id: UUID
    class_id: int
    state: dict[str, str] | None
    override_until: datetime | None
    profile: str
    consent: str
    allowed: bool
    class_allowed: bool
    verdict: str
    deciding: tuple[RuleAt, ...]
    overruled: tuple[str, ...]
    nearest: tuple[NearRule, ...]
    compartments: tuple[CompartmentFit, ...]
