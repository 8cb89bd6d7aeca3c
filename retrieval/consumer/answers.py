"""What a consumer asks after a pack was delivered to it, and the listing of units.

Laws
    * A pack is its subject's own: read under the caller's role, and by nobody else. What is not
      there, was delivered to somebody else or was never in the pack is one refusal.
    * Whatever an answer names is permitted now, not only when it was delivered.
    * Nothing here ranks, counts or changes what anybody is shown.

Source: seed section 4.13; architecture section 6.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from retrieval.consumer.check import Evidence, checked, cited_units, held_units
from retrieval.contract import (
    Answer,
    CheckRequest,
    DeliveredUnit,
    DeliveryResponse,
    FeedbackRequest,
    Governed,
    ListedUnit,
    SubjectWire,
    UnitPage,
    UnitsRequest,
)
from retrieval.errors import NotDelivered
from retrieval.pack.annotate import applied_scope
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import DeliveryRow, UnitRow


async def check(
    reader: TruthReader, request: CheckRequest, subject: SubjectWire, *, exclude: frozenset[UUID]
) -> Answer:
    """The verdict on an answer's claims. Cost: two queries, and one per pack with gaps."""
    named = {one.pack_id for claim in request.claims for one in claim.citations}
    deliveries = await reader.deliveries(named, subject_id=subject.subject_id)
    revisions = await reader.current_revisions(cited_units(request, deliveries) - exclude)
    gaps: set[UUID] = set()
    for delivery in deliveries.values():
        gaps |= await _gaps(reader, delivery) - exclude
    evidence = Evidence(deliveries, revisions, gaps)
    response = checked(request, evidence, applied_scope(subject))
    return Answer(
        status=200,
        check=response,
        governed=_governed(held_units(request, evidence), response.unsurfaced_gaps),
    )


async def delivery(
    reader: TruthReader, pack_id: str, subject: SubjectWire, *, exclude: frozenset[UUID]
) -> Answer:
    """What may still be cited of a pack. Raises NotDelivered. Cost: three or four queries."""
    row = await delivered(reader, _uuid(pack_id), subject)
    shown = {unit_id for unit_id, _ in row.units.values()}
    latest = await reader.current_revisions({*shown, *row.suspect_ids} - exclude)
    thread = None
    if row.thread_id is not None and row.thread_id not in exclude:
        found = await reader.thread_by_reference(str(row.thread_id))
        thread = found if found is not None and found.id == row.thread_id else None
    gaps = await _gaps(reader, row) - exclude
    response = DeliveryResponse(
        pack_id=row.pack_id,
        thread_id=thread.id if thread is not None else None,
        units=tuple(
            DeliveredUnit(
                unit_id=unit_id,
                canonical_address=address,
                source_revision=revision,
                current=latest[unit_id] == revision,
            )
            for address, (unit_id, revision) in row.units.items()
            if unit_id in latest
        ),
        suspect_unit_ids=tuple(one for one in row.suspect_ids if one in latest),
        gap_ids=tuple(one for one in row.gap_ids if one in gaps),
        delivered_at=row.delivered_at,
        audience_scope_applied=applied_scope(subject),
    )
    threads = () if thread is None else (thread.id,)
    return Answer(
        status=200, delivery=response, governed=_governed(latest, response.gap_ids, threads)
    )


async def spoken_of(
    reader: TruthReader, request: FeedbackRequest, subject: SubjectWire
) -> DeliveryRow:
    """The delivery that feedback is about. Raises NotDelivered, also for a single foreign unit."""
    row = await delivered(reader, request.pack_id, subject)
    known = {unit_id for unit_id, _ in row.units.values()}.union(row.suspect_ids)
    if not known.issuperset(request.unit_ids):
        raise NotDelivered("a unit that was not in the pack")
    return row


async def listing(
    reader: TruthReader,
    request: UnitsRequest,
    subject: SubjectWire,
    *,
    exclude: frozenset[UUID],
    text_bytes_max: int,
) -> Answer:
    """One page of permitted units by canonical address. Cost: two queries.

    A page with texts ends before the unit that would not fit, never before its first.
    """
    found = await reader.units_after(
        request.after or "",
        limit=request.limit + 1 + len(exclude),
        kind=request.kind,
        lifecycle_stage=request.lifecycle_stage,
        label=request.label,
    )
    wanted = [one for one in found if one not in exclude]
    hydrated = await reader.hydrate(wanted[: request.limit], offered_by="hydrate")
    rows = [hydrated.units[one] for one in wanted[: request.limit] if one in hydrated.units]
    shown = list(_fitting(rows, text_bytes_max)) if request.text else rows
    more = len(shown) < len(rows) or len(wanted) > request.limit
    page = UnitPage(
        units=tuple(_listed(unit, text=request.text) for unit in shown),
        next_after=shown[-1].canonical_address if more and shown else None,
        audience_scope_applied=applied_scope(subject),
    )
    return Answer(
        status=200,
        page=page,
        governed=_governed(unit.id for unit in shown),
        discrepancies=hydrated.discrepancies,
    )


async def delivered(reader: TruthReader, pack_id: UUID | None, subject: SubjectWire) -> DeliveryRow:
    """The caller's own delivery. Raises NotDelivered."""
    wanted = [] if pack_id is None else [pack_id]
    rows = await reader.deliveries(wanted, subject_id=subject.subject_id)
    for row in rows.values():
        return row
    raise NotDelivered("no such pack of this subject")


async def _gaps(reader: TruthReader, row: DeliveryRow) -> set[UUID]:
    """The gaps of a delivery that the caller may know of now."""
    if row.thread_id is None or not row.gap_ids:
        return set()
    permitted = {artifact.id for artifact in await reader.artifacts([row.thread_id])}
    return permitted.intersection(row.gap_ids)


def _governed(
    units: Iterable[UUID], artifacts: Collection[UUID] = (), threads: Collection[UUID] = ()
) -> tuple[Governed, ...]:
    return (
        *(Governed(id=one, sort="artifact") for one in sorted(artifacts)),
        *(Governed(id=one, sort="thread") for one in sorted(threads)),
        *(Governed(id=one, sort="unit") for one in sorted(units)),
    )


def _fitting(rows: Iterable[UnitRow], bytes_max: int) -> Iterable[UnitRow]:
    left = bytes_max
    for place, unit in enumerate(rows):
        left -= len(unit.body.encode("utf-8", "surrogatepass"))
        if left < 0 and place:
            return
        yield unit


def _listed(unit: UnitRow, *, text: bool) -> ListedUnit:
    return ListedUnit(
        unit_id=unit.id,
        canonical_address=unit.canonical_address,
        revision=unit.revision,
        title=unit.title,
        kind=unit.facets.kind,
        lifecycle_stage=unit.lifecycle_stage,
        readiness=unit.facets.readiness,
        authority=unit.facets.authority,
        risk_class=unit.facets.risk_class,
        source=unit.source,
        text=unit.body if text else None,
    )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
