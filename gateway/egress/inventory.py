"""Every governed object that stands in a response, found by walking the response itself.

What retrieval says it put in (``Answer.governed``) is only ever added to what is found here,
never trusted instead of it. Citations must name a unit that the same pack shows: an address
alone would name one that nobody looked up.

Source: seed 4.13 (only delivered evidence is cited).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.egress.registry import Key
from retrieval.context_pack import Pack, UnitRef
from retrieval.contract import Answer, DeliveryResponse, ListedUnit


def keys_of(answer: Answer) -> frozenset[Key]:
    """The ids of all governed objects in an answer, found and declared."""
    found: set[Key] = {(one.sort, one.id) for one in answer.governed}
    for pack in answer.response.packs if answer.response else ():
        found |= set(_of_pack(pack))
    if answer.unit is not None:
        found.add(("unit", answer.unit.unit.unit_id))
    if answer.page is not None:
        found.update(("unit", one.unit_id) for one in answer.page.units)
    if answer.delivery is not None:
        found |= set(_of_delivery(answer.delivery))
    if answer.check is not None:
        found.update(("unit", one) for one in answer.check.unsurfaced_suspects)
        found.update(("artifact", one) for one in answer.check.unsurfaced_gaps)
    return frozenset(found)


def units_of(answer: Answer) -> Iterator[UnitRef | ListedUnit]:
    """Every unit that an answer shows as it is now, as often as it stands there."""
    if answer.unit is not None:
        yield answer.unit.unit
    if answer.page is not None:
        yield from answer.page.units
    for pack in answer.response.packs if answer.response else ():
        yield from _units(pack)


def stray_citations(answer: Answer) -> frozenset[tuple[str, int]]:
    """Addresses with revisions that belong to no unit shown in their pack; a sound one has none."""
    strays: set[tuple[str, int]] = set()
    for pack in answer.response.packs if answer.response else ():
        shown = {(unit.canonical_address, unit.revision) for unit in _units(pack)}
        named = set(pack.source_revisions.items())
        named |= {
            (step.canonical_address, step.revision) for step in pack.recommended_reading_order
        }
        strays |= named - shown
    return frozenset(strays)


def _of_delivery(delivery: DeliveryResponse) -> Iterator[Key]:
    if delivery.thread_id is not None:
        yield "thread", delivery.thread_id
    for unit in delivery.units:
        yield "unit", unit.unit_id
    for unit_id in delivery.suspect_unit_ids:
        yield "unit", unit_id
    for gap_id in delivery.gap_ids:
        yield "artifact", gap_id


def _of_pack(pack: Pack) -> Iterator[Key]:
    if pack.thread_id is not None:
        yield "thread", pack.thread_id
    for unit in _units(pack):
        yield "unit", unit.unit_id
    for edge in pack.related_design_code_links:
        yield "unit", edge.from_unit_id
        yield "unit", edge.to_unit_id
    for gap in pack.known_gaps:
        yield "artifact", gap.artifact_id
    for suspect in pack.suspect_links:
        yield "unit", suspect.unit_id


def _units(pack: Pack) -> Iterable[UnitRef]:
    return (*pack.canonical_units, *pack.supporting_units, *pack.latest_reports)
