"""A unit is withdrawn in the record of truth: no answer that is inspected afterwards holds it."""

from __future__ import annotations

from typing import Final

from deploy.demo.claims import QUESTION, Tour
from deploy.demo.voice import addresses

UNIT: Final = "refund-webhooks.faq"
_SET: Final = """
update brain.unit set publication_state = %s where canonical_address = %s returning class_id
"""
_KNOWN: Final = "select id from gate.security_event"
_NEW: Final = "select kind, layer from gate.security_event where id <> all (%s::uuid[])"


async def at_once(tour: Tour) -> None:
    """By thread, by search and by address; restored, it comes back."""
    known = [row[0] for row in await tour.rows(_KNOWN)]
    await tour.rows(_SET, "withdrawn", UNIT)
    try:
        answers = [
            await tour.voice.ask("customer", QUESTION),
            await tour.voice.ask("customer", QUESTION, mode="raw"),
        ]
        by_address = await tour.voice.get("customer", f"/v1/units/{UNIT}")
    finally:
        await tour.rows(_SET, "published", UNIT)
    tour.check(
        all(one.status_code == 200 and UNIT not in addresses(one) for one in answers),
        "neither thread nor search shows it in the very next request",
        [one.text[:200] for one in answers],
    )
    tour.check(by_address.status_code == 404, "nor does its address", by_address.text)
    events = await tour.rows(_NEW, known)
    tour.check(
        all(kind == "stale_index" for kind, _ in events),
        f"the journal has {len(events)} warning(s) of an index that was behind, and no leak",
        events,
    )
    await tour.index_caught_up()
    back = await tour.voice.ask("customer", QUESTION)
    tour.check(UNIT in addresses(back), "restored, it is there again", back.text)
