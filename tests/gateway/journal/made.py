"""Events for the journal's tests, and a wait that ends on a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID, uuid4

from gateway.journal.contract import Breaches
from gateway.journal.event import EventAction, EventKind, SecurityEvent

DIGEST = "d" * 64


def event(
    *,
    kind: EventKind = EventKind.WRONG_AUDIENCE_RESULT,
    units: Iterable[tuple[UUID, int]] | None = None,
    **changed: Any,
) -> SecurityEvent:
    """One valid event; ``changed`` replaces arguments of ``SecurityEvent.about``."""
    given: dict[str, Any] = {
        "action": EventAction.WITHHELD,
        "request_id": "req-1",
        "trace_id": "a" * 32,
        "audience": "customer",
        "profile": "customer",
        "subject_id": "idp:customers|c-17",
        "route": "retrieve",
        "layers": ("vector_index",),
        "policy_digest": DIGEST,
    } | changed
    return SecurityEvent.about([(uuid4(), 7)] if units is None else units, kind=kind, **given)


class MemoryJournal:
    """A journal that keeps the events of this process in order, each once."""

    def __init__(self) -> None:
        self.events: list[SecurityEvent] = []
        self.breaches: list[Breaches] = []

    async def record(self, event: SecurityEvent) -> None:
        if all(event.event_id != kept.event_id for kept in self.events):
            self.events.append(event)

    async def record_breaches(self, breaches: Breaches) -> None:
        self.breaches.append(breaches)


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 20.0) -> None:
    """Return once ``condition`` holds; fail when it does not within the bound."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.01)
