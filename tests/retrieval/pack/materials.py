"""Rows and materials for packs, as hydration would give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st

from retrieval.contract import SubjectWire
from retrieval.pack.gather import Member, Related, ThreadMaterial
from retrieval.stores.rows import (
    ArtifactRow,
    EdgeRow,
    Facets,
    MembershipRow,
    ThreadRow,
    UnitRow,
)
from retrieval.threads.health import Status, Verdict

THREAD = UUID(int=1)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SUBJECT = SubjectWire(
    subject_id="s",
    audience="customer",
    profiles=("customer",),
    tenants=(),
    jurisdictions=(),
    task_scope="",
    purpose="",
    policy_digest="d",
)

STAGES = ("law", "design", "code", "test", "report", "incident", "other")
AUTHORITIES = ("enacted", "draft", "runtime")
RISKS = ("low", "standard", "high")


def unit(
    number: int,
    *,
    stage: str = "other",
    authority: str = "enacted",
    kind: str = "faq",
    risk: str = "standard",
    age_days: int = 0,
    body: str = "text",
) -> UnitRow:
    return UnitRow(
        id=UUID(int=1000 + number),
        canonical_address=f"u:{number:03}",
        revision=number + 1,
        title=f"unit {number}",
        body=body,
        class_id=1,
        tenant="*",
        jurisdiction="*",
        facets=Facets("public", "published", "published", risk, authority, kind),
        lifecycle_stage=stage,
        language="en",
        source="test",
        active_at=EPOCH - timedelta(days=age_days),
    )


def member(
    one: UnitRow,
    *,
    role: str = "canonical",
    confidence: float = 1.0,
    status: str = "active",
    judged_days: int = 0,
) -> Member:
    return Member(MembershipRow(THREAD, one.id, role, confidence, status, judged_days), one)


def related(src: UnitRow, dst: UnitRow, relation: str = "implements") -> Related:
    edge = EdgeRow(UUID(int=src.id.int * 100_000 + dst.id.int), src.id, dst.id, relation, 1.0)
    return Related(edge, src, dst)


def artifact(number: int, *, stage: str, kind: str) -> ArtifactRow:
    identity = UUID(int=9000 + number)
    return ArtifactRow(identity, THREAD, f"artifact {number}", stage, kind, 1, "*", "*")


def material(
    *members: Member,
    edges: tuple[Related, ...] = (),
    artifacts: tuple[ArtifactRow, ...] = (),
) -> ThreadMaterial:
    """A thread's material; members in the order given."""
    facets = Facets("public", "published", "published", "standard", "enacted", "thread")
    thread = ThreadRow(THREAD, "t", "Thread", (), "", "purpose", 1, "*", "*", facets, "active")
    return ThreadMaterial(thread, members, edges, artifacts, Verdict(Status.HEALTHY, EPOCH))


units = st.builds(
    unit,
    st.integers(0, 40),
    stage=st.sampled_from(STAGES),
    authority=st.sampled_from(AUTHORITIES),
    kind=st.sampled_from(("faq", "report", "design", "code", "policy")),
    risk=st.sampled_from(RISKS),
    age_days=st.integers(0, 5),
)
members = st.lists(
    st.builds(
        member,
        units,
        role=st.sampled_from(("canonical", "supporting", "report")),
        confidence=st.sampled_from((1.0, 0.6, 0.59, 0.0)),
        status=st.sampled_from(("active", "needs_human", "wrong_link", "unheard_of")),
    ),
    max_size=12,
    unique_by=lambda one: one.unit.id,
)
