"""Whose consents ended while something was open to them.

A decision about an opaque route reads no consent, so deciding anew would never notice. But what a
portal writes into an open stream it may have retrieved for the caller, under a consent that is
gone. So the live consents of everybody who has a stream open are looked at each second.

Source: architecture G5 ("end of consent").
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final
from uuid import UUID

from gateway.egress.registry import RegistryUnavailable
from gateway.streams.register import End

Live = Mapping[str, frozenset[tuple[str, UUID]]]
"""Subject id -> purpose and object of each consent that is live."""
_NONE: Final[frozenset[tuple[str, UUID]]] = frozenset()


class Consents:
    """The consents that subjects had when they were last looked at."""

    def __init__(self, live: Callable[[Collection[str]], Awaitable[Live]]) -> None:
        self._live = live
        self._known: Live = {}

    async def ended(self, subjects: Collection[str]) -> Mapping[str, End]:
        """Whose streams must end: a consent of theirs is over, or had one and cannot be asked.

        One query. Who had none before needs none now: an unanswered question ends nothing there.
        """
        try:
            now = await self._live(subjects)
        except RegistryUnavailable:
            return {one: End.UNDECIDED for one in subjects if self._known.get(one)}
        before, self._known = self._known, now
        return {
            one: End.NARROWED for one in subjects if before.get(one, _NONE) - now.get(one, _NONE)
        }
