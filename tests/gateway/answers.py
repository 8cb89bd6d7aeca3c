"""Answers of retrieval as a hostile or honest retrieval would make them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from gateway.egress.registry import Content, Key, Label
from policies.snapshot import Snapshot
from retrieval.context_pack import Pack, Risk, UnitRef
from retrieval.contract import Answer, Ask, Discrepancy, Governed, Response, UnitResponse
from retrieval.wire import AppliedScope

_SPACE = UUID(int=0x6A)
PACK_ID = UUID(int=0xA6)
ANSWER_ID = UUID(int=0xA7)
FACETS = {
    "visibility": "public",
    "readiness": "published",
    "publication_state": "published",
    "risk_class": "low",
    "authority": "enacted",
    "kind": "faq",
}
"""Of a unit that every audience may read."""


def unit_id(name: str) -> UUID:
    return uuid5(_SPACE, name)


def label(snapshot: Snapshot, tenant: str = "*", jurisdiction: str = "*", **facets: str) -> Label:
    """The label of a public, published FAQ, facets changed as asked."""
    return Label(snapshot.vocabulary.class_id(FACETS | facets), tenant, jurisdiction)


def unit(name: str, text: str = "text") -> UnitRef:
    return UnitRef(
        unit_id=unit_id(name),
        canonical_address=f"law/{name}#1",
        revision=1,
        title=f"title of {name}",
        kind="faq",
        lifecycle_stage="law",
        readiness="published",
        authority="enacted",
        risk_class="low",
        source="tests",
        text=text,
        score=0.5,
    )


def contents() -> Mapping[UUID, Content]:
    """What the truth holds of every unit that the tests name: what ``unit`` shows of it."""
    shown = [unit(name) for name in ("open", "leak", "fresh", "risky", "staff")]
    return {
        one.unit_id: Content(
            one.canonical_address, one.revision, hashlib.sha256(one.text.encode()).hexdigest()
        )
        for one in shown
    }


def scope_of(ask: Ask) -> AppliedScope:
    return AppliedScope(
        audience=ask.subject.audience,
        profiles=ask.subject.profiles,
        task_scope=ask.subject.task_scope,
        purpose=ask.subject.purpose,
        tenants=ask.subject.tenants,
        jurisdictions=ask.subject.jurisdictions,
        policy_digest=ask.subject.policy_digest,
    )


def pack(ask: Ask, names: Sequence[str], **changes: object) -> Pack:
    """A fallback pack of these units, less the excluded ones."""
    units = tuple(unit(name) for name in names if unit_id(name) not in ask.exclude)
    made = Pack(
        pack_id=PACK_ID,
        thread_id=None,
        thread_title=None,
        purpose=None,
        canonical_units=units,
        supporting_units=(),
        latest_reports=(),
        related_design_code_links=(),
        known_gaps=(),
        suspect_links=(),
        last_health_status=None,
        authority_or_risk_level=Risk(authority=None, risk_class=None),
        recommended_reading_order=(),
        source_revisions={one.canonical_address: one.revision for one in units},
        audience_scope_applied=scope_of(ask),
        fallback_signal=None,
        score=None,
        signal_breakdown=(),
        cut=None,
    )
    return made.model_copy(update=changes)


def answer(
    ask: Ask,
    names: Sequence[str],
    discrepancies: Sequence[Discrepancy] = (),
    /,
    **changes: object,
) -> Answer:
    """A fallback answer with one pack, or the unit itself for a unit question."""
    if ask.operation == "unit":
        shown = UnitResponse(unit=unit(names[0]), audience_scope_applied=scope_of(ask))
        return Answer(status=200, unit=shown, governed=())
    made = pack(ask, names, **changes)
    return Answer(
        status=200,
        response=Response(mode="fallback", packs=(made,)),
        answer_id=ANSWER_ID,
        governed=tuple(Governed(id=one.unit_id, sort="unit") for one in made.canonical_units),
        discrepancies=tuple(discrepancies),
    )


def key(name: str) -> Key:
    return ("unit", unit_id(name))
