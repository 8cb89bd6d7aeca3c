"""The log itself: decides whether a request's record is written, and gives it to the sinks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.decisions.redaction import Redaction
from gateway.decisions.sampling import Rate, kept
from gateway.decisions.sinks import Entry, Sink
from gateway.decisions.writing import values_of
from gateway.errors import Code
from gateway.telemetry.fields import RequestRecord

_LOG: Final = logging.getLogger("gateway.decisions")
_HIDDEN_OR_ABSENT: Final = str(Code.NOT_FOUND)


@dataclass(slots=True)
class LogCounts:
    """What became of the records since the start."""

    written: int = 0
    sampled_out: int = 0
    rate_limited: int = 0
    defective: int = 0


class DecisionLog:
    """One record per request, as far as sampling and rate let it. For the event loop's thread.

    ``ratio`` is the share of allowed requests that is written; ``per_second`` bounds all that
    is written but denials of units.
    """

    def __init__(
        self, sinks: Sequence[Sink], *, redaction: Redaction, ratio: float, per_second: int
    ) -> None:
        self.counts = LogCounts()
        self.sinks = tuple(sinks)
        self._redaction = redaction
        self._ratio = ratio
        self._rate = Rate(per_second)
        self._hides_trace = "trace_id" in {*redaction.masked, *redaction.erased}

    def add(self, record: RequestRecord) -> None:
        """Write the record of one finished request, or count why not. Never blocks or raises."""
        try:
            self._add(record)
        except Exception as error:  # noqa: BLE001 - a defect of the log must not fail a request
            self.counts.defective += 1
            _LOG.error("a decision record was lost: %s", type(error).__name__)

    @property
    def lost(self) -> int:
        """What sinks did not take or could not write, summed over them."""
        return sum(sink.lost for sink in self.sinks)

    def _add(self, record: RequestRecord) -> None:
        weighty = denies_a_unit(record)
        sampled = 1.0
        if record.decision == "allow" and not weighty:
            if not kept(record.request_id, self._ratio):
                self.counts.sampled_out += 1
                return
            sampled = self._ratio
        if not weighty and not self._rate.take(record.ended_ns):
            self.counts.rate_limited += 1
            return
        entry = Entry(
            self._redaction.applied(values_of(record, sampled=sampled)),
            record.began_ns + record.duration_ns,
            None if self._hides_trace else record.trace,
            weighty,
            self.counts.rate_limited + self.counts.defective,
        )
        for sink in self.sinks:
            sink.put(entry)
        self.counts.written += 1


def denies_a_unit(record: RequestRecord) -> bool:
    """Whether a unit was kept from the caller: such a record is written whatever is set.

    A unit or thread that is named and not found counts, too: hidden and absent are the same
    here, so the record of a hidden one can only be kept by keeping both.
    """
    return (
        record.facts.tally.withheld
        or record.event is not None
        or (record.code == _HIDDEN_OR_ABSENT and record.route != "")
    )
