"""Which governed objects one request showed and which were kept back, counted when asked.

The guard leaves what it holds anyway; counting by class is put off until somebody writes a
record of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from uuid import UUID

from gateway.decisions.facts import PerClass, UnitCounts
from gateway.egress.registry import Key, Registered
from policies.decision import Grant


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
        shown = self._shown_classes()
        classes = {key: PerClass(allowed=count) for key, count in shown.items()}
        for class_id, count in self._foreign.items():
            _at(classes, class_id, consent=False).allowed += count
        for unit_id, (class_id, grant) in self._denied.items():
            consent = unit_id in self._consented
            row = _at(classes, class_id, consent=consent)
            row.denied += 1
            row.not_by_class += grant.permits_class(class_id, consent=consent)
        return UnitCounts(
            returned=sum(shown.values()) + sum(self._foreign.values()),
            denied=len(self._denied),
            stale=len(self._stale),
            classes=classes,
        )

    def _shown_classes(self) -> Counter[tuple[int, bool]]:
        if self._registered is None:
            return Counter()
        labels = self._registered.labels
        # Hashing an id costs more than all else here. What passed has a label each, so equal
        # sizes mean the same ids; and an id is looked at only when there is a consent.
        if len(labels) != len(self._shown):
            labels = {key: label for key, label in labels.items() if key in self._shown}
        if not self._consented:
            counts = Counter(label.class_id for label in labels.values())
            return Counter({(class_id, False): count for class_id, count in counts.items()})
        return Counter((label.class_id, key[1] in self._consented) for key, label in labels.items())


def _at(classes: dict[tuple[int, bool], PerClass], class_id: int, *, consent: bool) -> PerClass:
    key = (class_id, consent)
    row = classes.get(key)
    if row is None:
        row = classes[key] = PerClass()
    return row
