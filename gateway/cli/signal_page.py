"""How signals, items and loops look: as columns, as a page and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import UUID

ITEM_TITLES: Final = (
    "id", "gap", "state", "kind", "audience", "met", "by", "days", "about", "last",
)  # fmt: skip
SIGNAL_TITLES: Final = ("id", "state", "kind", "audience", "met", "by", "day", "about", "class")
LOOP_TITLES: Final = (
    "gap", "kind", "audience", "state", "met", "hits before", "hits after", "met after", "closed",
)  # fmt: skip

Row = dict[str, Any]


def as_json(row: Row) -> str:
    """One object on one line."""
    return json.dumps(row, default=_word, ensure_ascii=False)


def item_columns(row: Row) -> tuple[str, ...]:
    """An item of any table; what one table has not is `-`. Items of one gap tell one `gap`."""
    return (
        str(row["id"]),
        row["dedup_key"][:8],
        row["state"],
        row.get("kind", "missing_thread"),
        row["audience"],
        _count(row, "occurrences"),
        _count(row, "subjects"),
        _count(row, "days"),
        about(row),
        _minute(row.get("last_at") or row.get("opened_at")),
    )


def signal_columns(row: Row) -> tuple[str, ...]:
    return (
        str(row["id"]),
        row["state"],
        row["kind"],
        row["audience"],
        str(row["occurrences"]),
        str(row["subjects"]),
        f"{row['day']:%Y-%m-%d}",
        about(row),
        row["classification"],
    )


def loop_columns(row: Row) -> tuple[str, ...]:
    asked = row["asked_before"] or row["asked_after"]
    return (
        str(row["id"]),
        row["kind"],
        row["audience"],
        row["state"],
        str(row["occurrences"]),
        f"{row['hit_before']} of {row['asked_before']}" if asked else "-",
        f"{row['hit_after']} of {row['asked_after']}" if asked else "-",
        str(row["met_after"]) if row["closed_at"] else "-",
        _minute(row["closed_at"]),
    )


def page(row: Row) -> Iterator[str]:
    """An item as lines of name and value, its evidence last."""
    for name, value in row.items():
        if name != "evidence" and value not in (None, []):
            yield f"{name:<14}{_text(value)}"
    for one in row["evidence"]:
        yield (
            f"{one['day']:%Y-%m-%d}    {one['classification']}, met {one['occurrences']} times by"
            f" {one['subjects']} ({one['id']})"
        )


def about(row: Row) -> str:
    """What a gap is about, as far as it may be said."""
    words = [*row.get("labels", ()), *row.get("words", ())]
    if words:
        return ", ".join(words)
    subject = row.get("artifact_id") or row.get("thread_id")
    return str(subject) if subject else "-"


def _count(row: Row, name: str) -> str:
    return str(row.get(name, "-"))


def _minute(when: datetime | None) -> str:
    return "-" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M}"


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return _minute(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date | UUID):
        return str(value)
    raise TypeError(f"`{type(value).__name__}` has no JSON form")
