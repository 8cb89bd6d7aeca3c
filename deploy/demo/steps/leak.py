"""A leak planted by hand: the index says *public* of an internal incident record.

The payload of one point is rewritten through the vector engine's own interface, past every
part of the product, as a bug or an intruder would do it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import httpx

from deploy.demo.claims import Tour, normalised
from deploy.demo.voice import addresses
from gateway.compose.database import store_settings

INTERNAL_UNIT: Final = "refund-webhooks.incident-2031"
PUBLIC_UNIT: Final = "refund-webhooks.faq"
FISHING: Final = "INC-2031 refund webhooks stuck behind expired proxy certificate"
_CLASS: Final = "select id, class_id from brain.unit where canonical_address = %s"
_EVENTS: Final = """
select id, kind, severity, trace_id, layer, action, unit_ids, audience
from gate.security_event where id <> all (%s::uuid[]) order by occurred_at
"""
_KNOWN: Final = "select id from gate.security_event"
_ESCALATED: Final = "select queue from gate.escalation where event_id = %s order by queue"


@dataclass(frozen=True, slots=True)
class _Event:
    id: UUID
    kind: str
    severity: str
    trace_id: str
    layer: str
    action: str
    unit_ids: list[UUID]
    audience: str


async def caught(tour: Tour) -> None:
    """The unit is withheld, one event is written and traced, and the answer does not change."""
    ((unit, true_class),) = await tour.rows(_CLASS, INTERNAL_UNIT)
    ((_, public_class),) = await tour.rows(_CLASS, PUBLIC_UNIT)
    before = await tour.voice.ask("customer", FISHING, mode="raw")
    known = [row[0] for row in await tour.rows(_KNOWN)]
    await _relabel(tour, unit, public_class)
    try:
        answer = await tour.voice.ask("customer", FISHING, mode="raw")
    finally:
        await _relabel(tour, unit, true_class)
    tour.check(
        answer.status_code == 200 and INTERNAL_UNIT not in addresses(answer),
        f"the customer fishes for {INTERNAL_UNIT} and does not get it",
        answer.text,
    )
    tour.check(
        normalised(answer) == normalised(before),
        "the answer is the one that it was before the leak, byte for byte",
    )
    found = [_Event(*row) for row in await tour.rows(_EVENTS, known)]
    if tour.check(len(found) == 1, "one event was written", found):
        await _event(tour, found[0], unit)
    again = await tour.voice.ask("customer", FISHING, mode="raw")
    after = await tour.rows(_EVENTS, known)
    tour.check(
        normalised(again) == normalised(before) and len(after) == 1,
        "the point is repaired: no further event",
    )


async def _event(tour: Tour, event: _Event, unit: UUID) -> None:
    tour.check(
        (event.kind, event.severity, event.action, event.unit_ids, event.audience)
        == ("wrong_audience_result", "critical", "withheld", [unit], "customer"),
        "it is a wrong_audience_result that names the unit by its opaque id",
        event,
    )
    queues = [row[0] for row in await tour.rows(_ESCALATED, event.id)]
    tour.check(
        queues == ["governance", "risk_review"], "governance and risk review were told", queues
    )
    span = _span(tour, event.trace_id)
    tour.check(span is not None, "its trace is exported", event.trace_id)
    if span is None:
        return
    named = [one["name"] for one in span["events"]]
    tour.check("wrong_audience_result" in named, "the event stands on the request's span", named)
    told = json.dumps(span)
    tour.check(
        INTERNAL_UNIT not in told and "certificate" not in told,
        "the trace holds neither address nor question nor content",
    )
    tour.say(f"trace {event.trace_id}, layer {event.layer}, unit {unit}")
    tour.say(f"stations: {', '.join(name for name in named if name.startswith('station.'))}")
    tour.say(f"in {tour.stage.trace_file}")


def _span(tour: Tour, trace_id: str) -> dict[str, Any] | None:
    """The span of a trace from the trace file, after what is queued was written."""
    tour.stage.gateway.telemetry.flush()
    for line in tour.stage.trace_file.read_text("utf-8").splitlines():
        span: dict[str, Any] = json.loads(line)
        if span["context"]["trace_id"].removeprefix("0x") == trace_id:
            return span
    return None


async def _relabel(tour: Tour, unit: UUID, class_id: int) -> None:
    stores = store_settings(tour.stage.settings, tour.stage.gateway.stores)
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(
            f"{stores.qdrant_url}/collections/{stores.collection}/points/payload",
            params={"wait": "true"},
            json={"payload": {"class_id": class_id}, "points": [str(unit)]},
            headers={"api-key": stores.qdrant_api_key.get_secret_value()},
        )
        answer.raise_for_status()
