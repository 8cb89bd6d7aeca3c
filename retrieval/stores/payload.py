"""What stands beside the vectors of a point, read back as the label that it was written with.

Law: a payload is ours whole or not at all; a word of another type is no label.
"""

from __future__ import annotations

from typing import Any, TypeGuard
from uuid import UUID

from retrieval.stores.points import IndexLabel


def label_of(unit_id: UUID, payload: dict[str, Any] | None) -> IndexLabel | None:
    """The label that a point carries; None when its payload is none that we write for this id."""
    stored = payload or {}
    if not (
        _integer(stored.get("class_id"))
        and _integer(stored.get("revision"))
        and isinstance(stored.get("tenant"), str)
        and isinstance(stored.get("jurisdiction"), str)
        and stored.get("unit_id") == str(unit_id)
    ):
        return None
    return IndexLabel(
        unit_id=unit_id,
        revision=stored["revision"],
        class_id=stored["class_id"],
        tenant=stored["tenant"],
        jurisdiction=stored["jurisdiction"],
    )


def is_ours(ident: object, payload: dict[str, Any] | None) -> bool:
    """Whether a gateway wrote this point."""
    return isinstance(ident, str) and label_of(UUID(ident), payload) is not None


def _integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
