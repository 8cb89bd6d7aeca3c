"""The wire between the gateway, retrieval and their callers: with the context pack that it carries
(`context_pack.py`) and the form that all of it has (`wire.py`) all that the gateway may import.

Two layers:

* the *public* models (``RetrieveRequest``, ``Response``, ``CheckRequest`` …) are what callers send
  and get;
* the *private* envelope (``Ask``, ``Answer``) crosses only between gateway and retrieval.
  It carries the placed subject and, on the way back, the ids of everything that is in the
  response and the *discrepancies* that hydration found. The gateway checks and strips it.

Source: seed sections 4.7 (fallback), 4.13 (citations).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from retrieval.context_pack import Pack, UnitRef
from retrieval.wire import Address, AppliedScope, Wire

Revision = Annotated[int, Field(ge=1, le=2_147_483_647)]
TEXT_BYTES_MAX: Final = 2_000_000
"""UTF-8 bytes of unit texts in one answer, at most."""
Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.:-]{0,63}$")]
Question = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
PACKS_MAX: Final = 16
"""Packs that one answer may rest on."""


# --- what a caller sends ------------------------------------------------------------------


class RetrieveRequest(Wire):
    """Body of ``POST /v1/retrieve``.

    ``audience``, ``task_scope`` and ``purpose`` can only narrow or select among what the
    caller's verified claims already permit. ``thread`` is an explicit reference (id or
    canonical address). ``mode="raw"`` asks for the vector path outright (debug). ``turns`` are
    the asker's own earlier questions of this conversation, oldest first: where no thread answers,
    they say what a question like "and when was that?" is about.
    """

    query: Question
    turns: Annotated[tuple[Question, ...], Field(max_length=20)] = ()
    thread: Address | None = None
    k: Annotated[int, Field(ge=1, le=50)] = 10
    max_bytes: Annotated[int, Field(ge=1_024, le=TEXT_BYTES_MAX)] | None = None
    mode: Literal["auto", "raw"] = "auto"
    audience: Word | None = None
    task_scope: Word | None = None
    purpose: Word | None = None


class Citation(Wire):
    """What a claim rests on: one revision of a unit, as a pack showed it to the caller."""

    pack_id: UUID
    canonical_address: Address
    source_revision: Revision


class Claim(Wire):
    """One claim of an answer. Its words are the consumer's own and are not sent.

    ``flagged``: the answer tells its reader that this claim rests on doubtful material.
    """

    citations: Annotated[tuple[Citation, ...], Field(max_length=16)] = ()
    flagged: bool = False


class CheckRequest(Wire):
    """Body of ``POST /v1/answers/check``.

    ``surfaced``: suspect units and gaps (their ids in the packs) that the answer tells of.
    """

    claims: Annotated[tuple[Claim, ...], Field(min_length=1, max_length=64)]
    surfaced: Annotated[tuple[UUID, ...], Field(max_length=200)] = ()
    audience: Word | None = None
    task_scope: Word | None = None
    purpose: Word | None = None

    @model_validator(mode="after")
    def _few_packs(self) -> Self:
        if len({one.pack_id for claim in self.claims for one in claim.citations}) > PACKS_MAX:
            raise ValueError(f"an answer that rests on more than {PACKS_MAX} packs")
        return self


FeedbackKind = Literal[
    "extra_search", "rejected_thread", "noisy_context", "wrong_thread", "sufficient"
]


class FeedbackRequest(Wire):
    """Body of ``POST /v1/feedback``: what a delivered pack was worth.

    ``unit_ids`` names the units that it is about; none = the pack as a whole.
    """

    pack_id: UUID
    kind: FeedbackKind
    unit_ids: Annotated[tuple[UUID, ...], Field(max_length=50)] = ()
    audience: Word | None = None
    task_scope: Word | None = None
    purpose: Word | None = None


# --- what a caller gets -------------------------------------------------------------------


class Response(Wire):
    """Body of every retrieval answer.

    ``degraded`` names stores that were down while what was asked could still be answered
    in full without them; a request that needs a missing store is refused instead.
    """

    mode: Literal["single", "multi", "fallback", "none"]
    packs: tuple[Pack, ...]
    degraded: tuple[Literal["vector"], ...] = ()


class UnitResponse(Wire):
    """Body of ``GET /v1/units/{address}``."""

    unit: UnitRef
    audience_scope_applied: AppliedScope


CitationCode = Literal["valid", "outdated", "wrong_revision", "not_permitted", "not_delivered"]
"""``outdated``: as delivered, and the unit has a younger revision. ``not_permitted``: delivered,
and not to be read (any more). ``not_delivered``: not in that pack, or no such pack of yours."""
ClaimCode = Literal["supported", "uncited", "unsupported", "outdated", "suspect"]
"""``unsupported``: a citation does not hold. ``suspect``: a suspect unit is cited, and the answer
neither flags the claim nor surfaces the unit."""


class ClaimResult(Wire):
    """The verdict on one claim; ``citations`` in the order of the request."""

    code: ClaimCode
    citations: tuple[CitationCode, ...]


class CheckResponse(Wire):
    """Body of the answer to ``POST /v1/answers/check``; ``claims`` in the order of the request.

    ``accepted``: every claim is supported, and every gap of a pack that an unflagged claim
    rests on is surfaced. The ids are what is still to be surfaced.
    """

    verdict: Literal["accepted", "rejected"]
    claims: tuple[ClaimResult, ...]
    unsurfaced_suspects: tuple[UUID, ...]
    unsurfaced_gaps: tuple[UUID, ...]
    audience_scope_applied: AppliedScope


class FeedbackResponse(Wire):
    """Body of the answer to ``POST /v1/feedback``; said once or again, the same."""

    recorded: Literal[True] = True


class DeliveredUnit(Wire):
    """A unit that a pack delivered and that may be read now; not ``current`` when the revision
    that was delivered is no longer its latest."""

    unit_id: UUID
    canonical_address: Address
    source_revision: int
    current: bool


class DeliveryResponse(Wire):
    """Body of ``GET /v1/packs/{pack_id}``: what of a delivered pack may be cited now.

    References only: texts are read anew, under the policy in force.
    """

    pack_id: UUID
    thread_id: UUID | None
    units: tuple[DeliveredUnit, ...]
    suspect_unit_ids: tuple[UUID, ...]
    gap_ids: tuple[UUID, ...]
    delivered_at: datetime
    audience_scope_applied: AppliedScope


class ListedUnit(Wire):
    """A unit in a listing; ``text`` is null unless it was asked for."""

    unit_id: UUID
    canonical_address: Address
    revision: int
    title: str
    kind: str
    lifecycle_stage: str
    readiness: str
    authority: str
    risk_class: str
    source: str
    text: str | None


class UnitsResponse(Wire):
    """Body of ``GET /v1/units``: permitted units by canonical address; nothing is counted.

    ``next_cursor`` is opaque, and null on the last page.
    """

    units: tuple[ListedUnit, ...]
    next_cursor: str | None
    audience_scope_applied: AppliedScope


# --- between gateway and retrieval --------------------------------------------------------


class SubjectWire(Wire):
    """The placed subject. The grant is compiled from ``profiles`` under ``policy_digest``."""

    subject_id: str
    audience: str
    profiles: Annotated[tuple[str, ...], Field(min_length=1)]
    tenants: tuple[str, ...]
    jurisdictions: tuple[str, ...]
    task_scope: str
    purpose: str
    policy_digest: str


class UnitsRequest(Wire):
    """One page of a listing, as the gateway read it from query and cursor.

    ``after`` is the address that the page before ended with. Filters only narrow; ``label`` is a
    term of the controlled vocabulary that the caller may see.
    """

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    after: Address | None = None
    kind: Word | None = None
    lifecycle_stage: Word | None = None
    label: Address | None = None
    text: bool = False


class Ask(Wire):
    """One request to retrieval.

    ``operation`` selects which of the optional fields count: ``retrieve`` uses ``request``,
    ``pack`` uses ``reference`` (thread id or address), ``unit`` uses ``reference`` (address),
    ``delivery`` uses ``reference`` (pack id), ``withheld`` uses ``reference`` (``answer_id`` of an
    answer that never left: its packs then count as never handed out); ``check``, ``feedback`` and
    ``units`` use the field of their name.
    ``exclude`` are units that the guard refused: they are treated as if they had never existed.
    ``deadline_ms`` is what is left of the request's time.
    """

    operation: Literal[
        "retrieve", "pack", "unit", "delivery", "withheld", "check", "feedback", "units"
    ]
    subject: SubjectWire
    request: RetrieveRequest | None = None
    reference: Address | None = None
    check: CheckRequest | None = None
    feedback: FeedbackRequest | None = None
    units: UnitsRequest | None = None
    exclude: tuple[UUID, ...] = ()
    request_id: str
    deadline_ms: int


class Discrepancy(Wire):
    """A unit that an index offered and the record of truth refused.

    ``layer`` is the one that let it through. ``pending`` says that the index had an open,
    younger-than-objective update for it (then it is ``stale_index``, a warning).
    """

    unit_id: UUID
    class_id: int
    layer: Literal["vector_index", "lexical_index", "thread_index", "row_level_security", "hydrate"]
    pending: bool


class Phase(StrEnum):
    """The whole of a request inside its transaction, and the parts of it that ran.

    What retrieval can say of its own time: a closed list, for it goes into traces.
    """

    TOTAL = "total"
    RESOLVE = "resolve"
    RANK = "rank"
    ASSEMBLE = "assemble"
    SEARCH = "search"


class Governed(Wire):
    """One governed object that stands in the response, for the guard to look up."""

    id: UUID
    sort: Literal["unit", "thread", "artifact"]


class UnitPage(Wire):
    """A page of a listing; ``next_after`` is its last address when another page follows."""

    units: tuple[ListedUnit, ...]
    next_after: Address | None
    audience_scope_applied: AppliedScope


class Answer(Wire):
    """What retrieval hands to the gateway.

    ``status`` 200 carries the part of its operation (``response`` of ``retrieve`` and ``pack``,
    ``page`` of ``units``, else the one of the same name); any other carries ``code`` only.
    404 means hidden or absent, and nothing tells which. ``answer_id`` is what a ``response`` was
    written down under; whoever keeps it back says so by it. ``timings`` are (phase, milliseconds)
    for the gateway's span; like the discrepancies they never reach a caller.
    """

    status: int
    code: str = ""
    response: Response | None = None
    answer_id: UUID | None = None
    unit: UnitResponse | None = None
    delivery: DeliveryResponse | None = None
    check: CheckResponse | None = None
    feedback: FeedbackResponse | None = None
    page: UnitPage | None = None
    governed: tuple[Governed, ...] = ()
    discrepancies: tuple[Discrepancy, ...] = ()
    timings: tuple[tuple[Phase, float], ...] = ()
