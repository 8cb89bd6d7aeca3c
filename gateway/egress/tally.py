"""Which governed objects one request showed and which were kept back, counted when asked.

The guard leaves what it holds anyway; counting by class is put off until somebody writes a
record of the request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from gateway.decisions.facts import PerClass, UnitCounts
from gateway.egress.registry import Key, Registered
from policies.decision import UNCLASSED, Grant


class Tally:
    """Filled by the guard while it inspects; a request that is walked twice has one tally."""

    __slots__ = ("_consented", "_denied", "_foreign", "_registered", "_shown", "_stale")

    def __init__(self) -> None:
        self._shown: Collection[Key] = ()
        self._registered: Registered | None = None
        self._foreign: Mapping[int, int] = {}
        self._consented: set[UUID] = set()
        self._denied: dict[UUID, tuple[int, Grant]] = {}
        self._stale: set[UUID] = set()

    def showed(self, keys: Collection[Key], registered: Registered) -> None:
        """Note what stands in the answer that leaves, and the look-up that permitted it."""
        self._shown, self._registered = keys, registered
        self.consented(registered.consented)

    def showed_foreign(self, by_class: Mapping[int, int]) -> None:
        """Note how many units of each class an upstream's answer keeps."""
        self._foreign = by_class

    def consented(self, units: Collection[UUID]) -> None:
        """Note units that a live consent of the caller names."""
        self._consented.update(units)

    def kept_back(
        self, denied: Mapping[UUID, int], grant: Grant, *, stale: Collection[UUID] = ()
    ) -> None:
        """Note units (id -> class) that were denied under ``grant``, and late ones."""
        for unit_id, class_id in denied.items():
            self._denied[unit_id] = (class_id, grant)
        self._stale.update(stale)

    @property
    def withheld(self) -> bool:
        """See ``Counting.withheld``."""
        return bool(self._denied or self._stale)

    def counts(self) -> UnitCounts:
        """See ``Counting.counts``."""
        classes: dict[tuple[int, bool], PerClass] = {}
        labels = self._registered.labels if self._registered is not None else {}
        for key in self._shown:
            label = labels.get(key)
            class_id = label.class_id if label is not None else UNCLASSED
            _at(classes, class_id, consent=key[1] in self._consented).allowed += 1
        for class_id, count in self._foreign.items():
            _at(classes, class_id, consent=False).allowed += count
        for unit_id, (class_id, grant) in self._denied.items():
            consent = unit_id in self._consented
            row = _at(classes, class_id, consent=consent)
            row.denied += 1
            row.not_by_class += grant.permits_class(class_id, consent=consent)
        return UnitCounts(
            returned=len(self._shown) + sum(self._foreign.values()),
            denied=len(self._denied),
            stale=len(self._stale),
            classes=classes,
        )


def _at(classes: dict[tuple[int, bool], PerClass], class_id: int, *, consent: bool) -> PerClass:
    key = (class_id, consent)
    row = classes.get(key)
    if row is None:
        row = classes[key] = PerClass()
    return row
