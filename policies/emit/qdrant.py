"""A scope as a Qdrant filter, in the form of its REST interface.

Laws
    * Positive lists only: never ``must_not`` (it admits points without the field), never an
      empty ``any``, ``should`` or filter (each admits everything).
    * Nothing permitted gives None: the caller must not query at all.

This module does not know qdrant_client.
"""

from __future__ import annotations

from policies.decision import SHARED, Scope


def filter(scope: Scope) -> dict[str, object] | None:  # noqa: A001 - named as Qdrant names it
    """The points that the scope permits, or None when that is none.

    Payload fields: ``class_id`` (integer), ``tenant``, ``jurisdiction``, ``unit_id``
    (keywords), each a scalar. Cost: the lists are copied; about 1,500 integers for employee.
    """
    branches: list[dict[str, object]] = []
    if scope.grant.plain:
        branches.append(_any("class_id", list(scope.grant.plain)))
    if scope.grant.consented and scope.consented_units:
        units = [str(unit) for unit in scope.consented_units]
        branches.append(
            {
                "must": [
                    _any("class_id", list(scope.grant.consented)),
                    _any("unit_id", units),
                ]
            }
        )
    if not branches:
        return None
    return {
        "must": [
            _any("tenant", [SHARED, *_named(scope.tenants)]),
            _any("jurisdiction", [SHARED, *_named(scope.jurisdictions)]),
            branches[0] if len(branches) == 1 else {"should": branches},
        ]
    }


def _named(values: tuple[str, ...]) -> list[str]:
    """Compartments without the empty name, which is nobody's."""
    return [value for value in values if value]


def _any(key: str, values: list[int] | list[str]) -> dict[str, object]:
    return {"key": key, "match": {"any": values}}
