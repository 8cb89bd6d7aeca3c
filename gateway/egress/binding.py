"""Whether what a response says of a unit is that unit's own: its address, revision and text.

Theory
    The label registry judges ids. An id that may be seen proves nothing about the words that
    stand beside it: a mix-up of rows, or a retrieval that was taken over, could send one
    unit's text under another's id. So each statement about a unit is compared with the record
    of truth. A unit is shown whole or not at all (retrieval drops units beyond its budget of
    bytes and never cuts one), hence one hash over the text decides.

    A statement *fits*, is *false*, or is *late*: the truth holds a younger revision than the
    one shown, so the unit was updated between retrieval's reading and the look-up.

Not compared: the title, for the guard may read none, and words that only describe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from gateway.egress.inventory import units_of
from gateway.egress.registry import Content, Key, Registered
from retrieval.context_pack import UnitRef
from retrieval.contract import Answer, ListedUnit


@dataclass(frozen=True, slots=True)
class Compared:
    """The units about which an answer says something that the truth does not."""

    false: frozenset[Key]
    late: frozenset[Key]


def compared(answer: Answer, registered: Registered) -> Compared:
    """Every statement of an answer about a unit, against the registry's look-up.

    Cost: one SHA-256 over each text, 2 us for 2 KB.
    """
    false: set[Key] = set()
    late: set[Key] = set()
    for unit in units_of(answer):
        content = registered.contents.get(unit.unit_id)
        if content is not None and unit.revision < content.revision:
            late.add(("unit", unit.unit_id))
        elif content is None or not _fits(unit, content):
            false.add(("unit", unit.unit_id))
    for unit_id, address in _addresses_of(answer):
        content = registered.contents.get(unit_id)
        if content is None or content.address != address:
            false.add(("unit", unit_id))
    return Compared(frozenset(false), frozenset(late - false))


def _fits(unit: UnitRef | ListedUnit, content: Content) -> bool:
    """A listed unit may come without its text; an empty text is a text."""
    return (
        unit.canonical_address == content.address
        and unit.revision == content.revision
        and (unit.text is None or _is_body(unit.text, content))
    )


def _is_body(text: str, content: Content) -> bool:
    return hashlib.sha256(text.encode()).hexdigest() == content.body_sha256


def _addresses_of(answer: Answer) -> Iterator[tuple[UUID, str]]:
    """Units that are named without their text: the ends of links, suspects, what was delivered
    before."""
    for one in answer.delivery.units if answer.delivery else ():
        yield one.unit_id, one.canonical_address
    for pack in answer.response.packs if answer.response else ():
        for link in pack.related_design_code_links:
            yield link.from_unit_id, link.from_address
            yield link.to_unit_id, link.to_address
        for suspect in pack.suspect_links:
            yield suspect.unit_id, suspect.canonical_address
