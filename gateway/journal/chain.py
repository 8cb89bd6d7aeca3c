"""The chain over the journal: what a seal says of an event, and what breaks when one is touched.

Theory
    Seal n holds ``hash(n) = sha256(hash(n-1) || canonical JSON of the event)``, with 64 zeros
    before the first. A changed event does not match its hash; an event that was removed
    leaves a seal without it; a removed seal leaves a hole in the positions; reordered seals
    do not follow from each other.
    One thing the rows alone cannot show: the newest events removed together with their
    seals. Against that, keep the head (position and hash) elsewhere and pass it back.

Pure: rows in, findings out. Reading is ``reading``'s, writing ``sealer``'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

GENESIS: Final = "0" * 64

COLUMNS: Final = (
    "id",
    "occurred_at",
    "kind",
    "severity",
    "request_id",
    "trace_id",
    "audience",
    "profile",
    "subject_hash",
    "route",
    "unit_ids",
    "unit_count",
    "class_ids",
    "layer",
    "policy_digest",
    "action",
)
"""The columns of ``gate.security_event`` that a seal covers: all of them."""


class Break(StrEnum):
    """Every way in which the journal can be found damaged."""

    EVENT_CHANGED = "event_changed"
    EVENT_MISSING = "event_missing"
    SEAL_MISSING = "seal_missing"
    SEAL_REORDERED = "seal_reordered"
    HEAD_MISSING = "head_missing"
    ESCALATION_MISSING = "escalation_missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One damage. ``position`` is the seal's (0: none), ``event_id`` the event's, if known."""

    what: Break
    position: int
    event_id: UUID | None

    def __str__(self) -> str:
        return f"seal {self.position}: {self.what.value}: event {self.event_id or 'unknown'}"


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: keep it outside the database to notice a cut-off tail."""

    position: int
    hash: str

    @classmethod
    def parse(cls, text: str) -> Head:
        """From ``POSITION:HASH``. Raises ValueError for anything else."""
        position, _, digest = text.partition(":")
        if not position.isdecimal() or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ValueError("a head is written `POSITION:HASH`")
        return cls(int(position), digest)

    def __str__(self) -> str:
        return f"{self.position}:{self.hash}"


EMPTY: Final = Head(0, GENESIS)


@dataclass(frozen=True, slots=True)
class Seal:
    """One row of ``gate.security_event_seal`` with its event's row, None when that is gone."""

    position: int
    event_id: UUID
    prev_hash: str
    hash: str
    event: tuple[Any, ...] | None


def canonical(event: tuple[Any, ...]) -> bytes:
    """The event's row (values of ``COLUMNS``) as the one JSON text that stands for it."""
    fields = dict(zip(COLUMNS, map(_plain, event), strict=True))
    return json.dumps(fields, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case list():
            return [_plain(one) for one in value]
        case _:
            return value


def link(prev_hash: str, event: tuple[Any, ...]) -> str:
    """The hash of the seal that puts ``event`` after the one with ``prev_hash``."""
    return hashlib.sha256(prev_hash.encode() + canonical(event)).hexdigest()


def extend(head: Head, events: Iterable[tuple[Any, ...]]) -> Iterator[Seal]:
    """The seals that put ``events`` after ``head``, in this order."""
    position, prev = head.position, head.hash
    for event in events:
        position, digest = position + 1, link(prev, event)
        yield Seal(position, event[0], prev, digest, event)
        prev = digest


class Walk:
    """One reading of the chain from its beginning: feed it every seal by position, then ``end``.

    ``kept`` is a head noted earlier: a chain that does not hold it has lost its tail.
    """

    def __init__(self, kept: Head = EMPTY) -> None:
        self.findings: list[Finding] = []
        self.head = EMPTY
        self._kept = kept
        self._kept_seen = kept == EMPTY

    def feed(self, seal: Seal) -> None:
        if seal.position != self.head.position + 1:
            self.findings.append(Finding(Break.SEAL_MISSING, self.head.position + 1, None))
        elif seal.prev_hash != self.head.hash:
            self.findings.append(Finding(Break.SEAL_REORDERED, seal.position, seal.event_id))
        if seal.event is None:
            self.findings.append(Finding(Break.EVENT_MISSING, seal.position, seal.event_id))
        elif link(seal.prev_hash, seal.event) != seal.hash:
            self.findings.append(Finding(Break.EVENT_CHANGED, seal.position, seal.event_id))
        self.head = Head(seal.position, seal.hash)
        self._kept_seen = self._kept_seen or self.head == self._kept

    def end(self) -> list[Finding]:
        """Every damage found, in order of position."""
        if not self._kept_seen:
            self.findings.append(Finding(Break.HEAD_MISSING, self._kept.position, None))
        return self.findings
