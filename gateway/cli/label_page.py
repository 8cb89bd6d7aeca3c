"""How changes of labels are shown: as a row, as a page, as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from policies.vocabulary import FACETS

TITLES: Final = ("id", "what", "address", "opens to", "author", "since", "state")
_LABEL: Final = (*FACETS, "tenant", "jurisdiction")

Change = Mapping[str, Any]
"""A row of ``gate.label_change_now`` by its columns' names."""


def name_of(change: Change) -> str:
    """What is labelled: its sort and address."""
    return f"{change['sort']} {change['address'] or change['object_id']}"


def listed(change: Change) -> tuple[str, ...]:
    """A row under ``TITLES``."""
    state = f"{change['state']}, closed" if _is_closed(change) else change["state"]
    profiles = change["gains_now"] or change["gained"]
    return (
        str(change["id"]), change["sort"], change["address"] or "-", ", ".join(profiles),
        change["author"], _word(change["proposed_at"]), state,
    )  # fmt: skip


def _is_closed(change: Change) -> bool:
    return change["closed"] and change["state"] in ("pending", "rejected")


def shown(change: Change) -> Iterator[str]:
    """Everything about one change, line by line; its words are not made safe to print."""
    yield f"{change['id']}: {change['state']}"
    yield f"  {name_of(change)}{' (deleted)' if change['buried'] else ''}"
    by = f" by mapping {change['mapping']}" if change["mapping"] else ""
    yield f"  of source {change['origin']}{by}; author {change['author']}"
    yield f"  proposed {_word(change['proposed_at'])}"
    for name, before, after in zip(_LABEL, change["from_label"], change["to_label"], strict=True):
        words = [_blank(before)] if before == after else [_blank(before), "->", _blank(after)]
        yield f"    {name:<18}{' '.join(words)}"
    if change["state"] in ("pending", "rejected"):
        yield f"  would open to: {', '.join(change['gains_now']) or 'nobody, under this policy'}"
    if _is_closed(change):
        yield "  it also closes to somebody: nobody reads it until it is decided"
    if change["decided_at"] is not None:
        who = f" by {change['approver']} ({change['approver_role']})" if change["approver"] else ""
        yield f"  {change['state']} {_word(change['decided_at'])}{who}: {change['reason']}"


def _blank(word: str | None) -> str:
    return "(blank)" if word is None else word or "(empty)"


def as_json(change: Change) -> str:
    """The change as one line of JSON."""
    return json.dumps({name: _plain(value) for name, value in change.items()})


def _plain(value: object) -> object:
    return _word(value) if isinstance(value, datetime | UUID) else value


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return str(value)
