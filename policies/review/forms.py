"""Whether every form that the policy is emitted in says what the table says.

The forms are read here as their stores read them: a mask by its characters, a predicate by
its bound lists, a filter by its integer lists, a document by its classes and by its boxes.
That real Postgres and the real vector engine agree is the congruence suite's to prove.
"""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

from policies.decision import Scope
from policies.emit import json as document_form
from policies.emit import postgres, qdrant
from policies.errors import IncongruentPolicy
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS

_UNIT = UUID(int=1)


def check(snapshot: Snapshot) -> int:
    """How many (profile, form) pairs were compared. Raises IncongruentPolicy at the first
    difference. Cost: a third of a second for eight profiles."""
    compared = 0
    masks = {mask.profile: mask for mask in postgres.masks(snapshot.table)}
    profiles: Any = document_form.document(snapshot)["profiles"]
    for profile in snapshot.vocabulary.profiles:
        plain = list(snapshot.table.units.classes(profile, "none"))
        consented = list(snapshot.table.units.classes(profile, "granted"))
        scope = Scope(snapshot.grant([profile]), (), (), (_UNIT,))
        params = postgres.predicate(scope, "u").params
        forms = {
            "grant": (list(scope.grant.plain), list(scope.grant.consented)),
            "mask": (_ones(masks[profile].plain), _ones(masks[profile].consented)),
            "sql": (params["scope_plain"], params["scope_consented"]),
            "qdrant": _filtered(qdrant.filter(scope)),
            "json": tuple(profiles[profile][consent]["classes"] for consent in ("none", "granted")),
            "boxes": tuple(
                _unfolded(snapshot, profiles[profile][consent]["boxes"])
                for consent in ("none", "granted")
            ),
        }
        for name, form in forms.items():
            compared += 1
            if form != (plain, consented):
                raise IncongruentPolicy(f"the form `{name}` of {profile} differs from the table")
    return compared


def _ones(mask: str) -> list[int]:
    return [position for position, bit in enumerate(mask) if bit == "1"]


def _filtered(form: dict[str, Any] | None) -> tuple[list[int], list[int]]:
    """The plain and the consented list of a filter; a scope with one consented unit has both."""
    if form is None:
        return [], []
    last = form["must"][2]
    plain: list[int] = []
    consented: list[int] = []
    for branch in last.get("should", [last]):
        if "must" in branch:
            consented = branch["must"][0]["match"]["any"]
        else:
            plain = branch["match"]["any"]
    return plain, consented


def _unfolded(snapshot: Snapshot, found: list[dict[str, list[str]]]) -> list[int]:
    """The classes that the folded form covers; folding is what people review."""
    return sorted(
        snapshot.vocabulary.class_id(dict(zip(FACETS, values, strict=True)))
        for box in found
        for values in itertools.product(*(box[facet] for facet in FACETS))
    )
