"""How threads, their revisions and edits are shown: line by line, words not yet safe to print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from retrieval.owners.wire import Changed, Edited, History, Listed, Shown

TITLES: Final = ("thread", "title", "revision", "members", "state")


def listed(one: Listed) -> tuple[str, ...]:
    """A row under ``TITLES``."""
    state = "buried" if one.buried else "closed" if one.class_id < 0 else one.status
    return one.thread, one.title, str(one.revision), str(one.members), state


def shown_lines(found: Shown) -> Iterator[str]:
    """A thread whole."""
    yield f"{found.thread}: {found.title}"
    state = "buried" if found.buried else found.status
    yield f"  id {found.thread_id}, source {found.source}, revision {found.revision}, {state}"
    for name, text in (
        ("aliases", ", ".join(found.aliases)),
        ("description", found.description),
        ("purpose", found.purpose),
    ):
        if text:
            yield f"  {name}: {text}"
    yield f"  label: {_words(found.label)} (class {found.class_id})"
    if found.wished is not None:
        yield f"  waits for approval: {_words(found.wished)}"
    for member in found.members:
        sure = "" if member.status == "active" else f", {member.status}"
        yield f"  {member.role} {member.unit} ({member.confidence:g}{sure})"
    for artifact in found.artifacts:
        yield f"  expected {artifact.lifecycle_stage}: {artifact.title}"
    for term in found.terms:
        also = f" ({', '.join(term.aliases)})" if term.aliases else ""
        yield f"  term {term.term}@{term.version}{also}"
    for edge in found.edges:
        yield f"  {edge.source} {edge.relation} {edge.target} ({edge.confidence:g})"
    for part in found.parts:
        health = part.health.get("status", "never checked")
        why = f": {part.health['reason']}" if part.health.get("reason") else ""
        where = f"class {part.class_id}, {part.tenant}/{part.jurisdiction}"
        yield f"  health of {part.units} units ({where}): {health}{why}"


def history_lines(found: History) -> Iterator[str]:
    """Revisions, the newest first."""
    for one in found.revisions:
        yield f"revision {one.revision}, {_moment(one.made_at)}, {one.author}: {one.reason}"
        for change in one.changes:
            yield f"  {_change(change)}"
    if found.before is not None:
        yield f"older ones: --before {found.before}"


def edited_lines(found: Edited) -> Iterator[str]:
    """What became of an edit."""
    what = "is at" if found.changed else "said nothing new: still at"
    yield f"{found.thread} {what} revision {found.revision}"
    for one in found.waiting:
        nobody = "; nobody reads it until then" if one.closed else ""
        opens = ", ".join(one.opens_to)
        yield f"  waits for approval: {one.sort} {one.object_id} opens to {opens}{nobody}"


def _change(change: Changed) -> str:
    name = " ".join(str(value) for value in change.key.values())
    about = f"{change.what} {name}".strip()
    if change.before is None:
        return f"+ {about}"
    if change.after is None:
        return f"- {about}"
    moved = [
        f"{word}: {_short(change.before.get(word))} -> {_short(value)}"
        for word, value in change.after.items()
        if change.before.get(word) != value
    ]
    return f"~ {about}: {'; '.join(moved)}"


def _words(label: Mapping[str, str | None]) -> str:
    return " ".join(
        f"{name}={word if word is not None else '(blank)'}" for name, word in label.items()
    )


def _short(value: Any) -> str:
    if value is None:
        return "(none)"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
