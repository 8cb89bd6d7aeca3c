"""What became of every record: counts by sort, and each quarantined one with its reasons.

The report names places, addresses, fields and words. It never holds a title or a body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Self


class Exit(IntEnum):
    """What the command's exit code says."""

    CLEAN = 0
    QUARANTINED = 6


class Sort(StrEnum):
    """What a record can be."""

    UNIT = "unit"
    THREAD = "thread"
    LABEL = "label"
    ARTIFACT = "artifact"
    MEMBERSHIP = "membership"
    EDGE = "edge"
    DELETION = "deletion"
    RECORD = "record"


class Outcome(StrEnum):
    """``accepted`` is new; ``changed`` had other content, label or both before."""

    ACCEPTED = "accepted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    QUARANTINED = "quarantined"


def printable(text: str) -> str:
    """The text with every character that cannot be shown as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """One reason why an object has no class, or why a record was not taken at all.

    ``place`` is ``file:line`` (and the section); ``sort`` is ``record`` when nothing was stored.
    Its texts quote the source, so they are written out: a name may hold what neither a terminal
    nor the database takes.
    """

    place: str
    sort: Sort
    address: str
    field: str
    value: str
    reason: str

    def __post_init__(self) -> None:
        for name in ("place", "address", "field", "value", "reason"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    def __str__(self) -> str:
        about = f" {self.address}" if self.address else ""
        value = f" `{self.value}`" if self.value else ""
        where = f" {self.field}" if self.field else ""
        what = f":{where}{value}" if self.field or self.value else ""
        return f"{self.place}: {self.sort}{about}{what}: {self.reason}"


@dataclass(frozen=True, slots=True, order=True)
class Note:
    """Something odd that stops nothing: ``code`` is stable."""

    code: str
    address: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.address}: {self.detail}"


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A label that the source wishes and that is not in effect, because it opens an object to
    the profiles ``opens_to``: until somebody approves it, or although somebody rejected it.
    ``closed``: it also closes the object to others, so nobody reads it meanwhile."""

    sort: Sort
    address: str
    rejected: bool
    closed: bool
    opens_to: tuple[str, ...]

    def __str__(self) -> str:
        state = "rejected" if self.rejected else "pending"
        nobody = "; nobody reads it until then" if self.closed else ""
        return f"{self.sort} {self.address}: {state}: opens to {', '.join(self.opens_to)}{nobody}"


@dataclass(slots=True)
class Report:
    """The outcome of one run. Counts add up to the objects that the source names.

    ``reasons`` also lists objects that were stored and whose class the database refused for
    what only it knows (a facet that no thread filled): those are counted as stored.
    ``waiting`` are the label changes of the whole source that nobody has approved. An object
    that only wished one is counted as unchanged.
    """

    counts: Counter[tuple[Sort, Outcome]] = field(default_factory=Counter)
    reasons: list[Reason] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    embedded: int = 0
    resumed_at: int = 0

    def count(self, sort: Sort, outcome: Outcome, times: int = 1) -> None:
        self.counts[sort, outcome] += times

    def refuse(self, reasons: Iterable[Reason]) -> None:
        """Count one quarantined object, for all of these reasons (at least one)."""
        found = list(reasons)
        self.reasons += found
        self.count(found[0].sort, Outcome.QUARANTINED)

    def of(self, outcome: Outcome, sort: Sort | None = None) -> int:
        """How many objects (of one sort) came out like that."""
        return sum(
            count
            for (of_sort, of_outcome), count in self.counts.items()
            if of_outcome is outcome and sort in (None, of_sort)
        )

    @property
    def accepted(self) -> int:
        return self.of(Outcome.ACCEPTED)

    @property
    def changed(self) -> int:
        return self.of(Outcome.CHANGED)

    @property
    def unchanged(self) -> int:
        return self.of(Outcome.UNCHANGED)

    @property
    def quarantined(self) -> int:
        return self.of(Outcome.QUARANTINED)

    @property
    def pending(self) -> int:
        """Label changes that wait for an approver."""
        return sum(1 for one in self.waiting if not one.rejected)

    @property
    def exit_code(self) -> Exit:
        """0 when everything was taken; 3 when the run is complete but something is quarantined."""
        return Exit.QUARANTINED if self.reasons else Exit.CLEAN

    def as_json(self) -> dict[str, Any]:
        """The report as plain data; ``from_json`` reads it back."""
        totals = {str(outcome): self.of(outcome) for outcome in Outcome}
        by_sort: dict[str, dict[str, int]] = {}
        for (sort, outcome), count in sorted(self.counts.items()):
            by_sort.setdefault(sort, {})[outcome] = count
        return {
            **totals,
            "by_sort": by_sort,
            "reasons": [asdict(reason) for reason in self.reasons],
            "notes": [asdict(note) for note in self.notes],
            "label_changes": {
                "pending": self.pending,
                "rejected": len(self.waiting) - self.pending,
                "closed": sum(1 for one in self.waiting if one.closed),
                "waiting": [asdict(one) for one in self.waiting],
            },
            "embedded": self.embedded,
            "resumed_at": self.resumed_at,
            "exit_code": int(self.exit_code),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        counts = Counter(
            {
                (Sort(sort), Outcome(outcome)): count
                for sort, outcomes in data["by_sort"].items()
                for outcome, count in outcomes.items()
            }
        )
        return cls(
            counts=counts,
            reasons=[Reason(**{**one, "sort": Sort(one["sort"])}) for one in data["reasons"]],
            notes=[Note(**one) for one in data["notes"]],
            embedded=data["embedded"],
            resumed_at=data["resumed_at"],
        )

    def readable(self, *, most: int = 50) -> str:
        """For a terminal: a table of counts, then at most ``most`` reasons and notes each."""
        lines = [f"{'':<12}" + "".join(f"{outcome:>13}" for outcome in Outcome)]
        for sort in Sort:
            row = [self.of(outcome, sort) for outcome in Outcome]
            if any(row):
                lines.append(f"{sort:<12}" + "".join(f"{count:>13}" for count in row))
        for title, found in (
            ("quarantined", self.reasons),
            ("notes", self.notes),
            ("label changes that are not in effect (see `gateway labels pending`)", self.waiting),
        ):
            if found:
                lines += ["", f"{title}:", *(f"  {one}" for one in found[:most])]
            if len(found) > most:
                lines.append(f"  and {len(found) - most} more (see the JSON report)")
        return "\n".join(lines)
