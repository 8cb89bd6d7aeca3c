"""Taking typed values out of one record; every mismatch is noted, and the record is refused."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from retrieval.ingest.labels import shown

ADDRESS_MAX: Final = 300
TITLE_MAX: Final = 500
BODY_MAX: Final = 1_000_000
TEXT_MAX: Final = 10_000
LIST_MAX: Final = 100_000
"""Entries of one list."""
_ADDRESS: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,300}")
_FIRST: Final = datetime(1, 1, 3, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 29, tzinfo=UTC)
_MISSING: Final = object()


class Fields:
    """One record's fields. ``faults`` lists (field, value, reason) of what was wrong."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self.faults: list[tuple[str, str, str]] = []

    @property
    def wrong(self) -> frozenset[str]:
        """The fields that something is wrong with."""
        return frozenset(name for name, _, _ in self.faults)

    def only(self, known: Collection[str]) -> None:
        """Note every field that has no meaning here: it may be a misspelt one that has."""
        for name in sorted(self._record.keys() - set(known)):
            self._fault(name, "", "unknown field")

    def address(self, name: str, *, prefix: str = "") -> str:
        """A canonical address: no spaces, NFC, at most 300 characters with the prefix."""
        value = self._get(name, _MISSING)
        if not isinstance(value, str):
            return self._wrong(name, value, "text")
        whole = prefix + value
        reason = _address_fault(whole) if value else "empty"
        if reason:
            self._fault(name, shown(value), reason)
        return whole

    def text(self, name: str, *, most: int, default: str | None = None, blank: bool = False) -> str:
        """A text of at most ``most`` characters; ``blank`` says whether it may be empty."""
        value = self._get(name, default if default is not None else _MISSING)
        if not isinstance(value, str):
            return self._wrong(name, value, "text")
        if not blank and value != default and not value.strip():
            self._fault(name, "", "empty")
        elif len(value) > most:
            self._fault(name, "", f"longer than {most} characters")
        elif not _encodable(value):
            self._fault(name, "", "holds a character that cannot be stored")
        return value

    def addresses(self, name: str, *, prefix: str = "") -> tuple[str, ...]:
        """A list of addresses; absent is empty."""
        value = self._get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._wrong(name, value, "a list of text")
            return ()
        if self._too_many(name, value):
            return ()
        found = tuple(dict.fromkeys(prefix + one for one in value))
        for whole in found:
            reason = _address_fault(whole)
            if reason:
                self._fault(name, shown(whole), reason)
        return found

    def texts(self, name: str, *, most: int) -> tuple[str, ...]:
        """A list of texts; absent is empty."""
        value = self._get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            self._wrong(name, value, "a list of text")
            return ()
        if self._too_many(name, value):
            return ()
        if any(len(one) > most or not _encodable(one) for one in value):
            self._fault(name, "", "holds a text that cannot be stored")
        return tuple(dict.fromkeys(value))

    def _too_many(self, name: str, entries: Collection[str]) -> bool:
        if len(entries) > LIST_MAX:
            self._fault(name, "", f"more than {LIST_MAX} entries")
        return len(entries) > LIST_MAX

    def choice(self, name: str, known: Collection[str], *, default: str | None) -> str:
        value = self._get(name, default if default is not None else _MISSING)
        if not isinstance(value, str):
            return self._wrong(name, value, "text")
        if value not in known:
            self._fault(name, shown(value), f"not one of {', '.join(sorted(known))}")
        return value

    def matching(self, name: str, pattern: re.Pattern[str]) -> str:
        value = self._get(name, _MISSING)
        if not isinstance(value, str):
            return self._wrong(name, value, "text")
        if not pattern.fullmatch(value):
            self._fault(name, shown(value), f"does not match {pattern.pattern}")
        return value

    def share(self, name: str, *, default: float) -> float:
        """A number from 0 to 1."""
        value = self._get(name, default)
        if type(value) not in (int, float) or not 0 <= value <= 1:
            self._fault(name, shown(value), "not a number from 0 to 1")
            return default
        return float(value)

    def whole(self, name: str, *, default: int) -> int:
        value = self._get(name, default)
        if type(value) is not int or not 1 <= value <= 1_000_000:
            self._fault(name, shown(value), "not a whole number from 1")
            return default
        return value

    def truth(self, name: str) -> bool:
        value = self._get(name, False)
        if type(value) is not bool:
            self._fault(name, shown(value), "not true or false")
        return value is True

    def instant(self, name: str) -> datetime | None:
        """An ISO 8601 time with its offset; absent is None."""
        value = self._get(name, None)
        if value is None:
            return None
        try:
            found = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            found = None
        if found is None or found.tzinfo is None or not _readable_again(found):
            self._fault(name, shown(value), "not a time with its offset (2026-01-31T12:00:00Z)")
        return found

    def _get(self, name: str, default: object) -> Any:
        value = self._record.get(name)
        return default if value is None else value

    def _wrong(self, name: str, value: object, wanted: str) -> str:
        given = "absent" if value is _MISSING else f"not {wanted}"
        self._fault(name, "" if value is _MISSING else type(value).__name__, given)
        return ""

    def _fault(self, name: str, value: str, reason: str) -> None:
        self.faults.append((str(name), value, reason))


def _readable_again(moment: datetime) -> bool:
    """Whether a reader in any time zone can hold it: Postgres knows more years than Python."""
    try:
        there = moment.astimezone(UTC)
    except OverflowError:
        return False
    return _FIRST < there < _LAST


def _address_fault(whole: str) -> str:
    """Why this is no canonical address; empty when it is one."""
    if not _ADDRESS.fullmatch(whole) or not _encodable(whole):
        return "not an address (1 to 300 characters, no spaces)"
    if unicodedata.normalize("NFC", whole) != whole:
        return "not in Unicode normal form C"
    return ""


def _encodable(text: str) -> bool:
    """Whether Postgres can hold it: no NUL, no half of a surrogate pair."""
    try:
        return b"\x00" not in text.encode("utf-8")
    except UnicodeEncodeError:
        return False
