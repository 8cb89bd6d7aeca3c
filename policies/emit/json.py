"""A snapshot as plain data: what the database keeps of every revision, and what tools read."""

from __future__ import annotations

from policies.predicate import boxes
from policies.snapshot import Snapshot
from policies.vocabulary import CONSENTS


def document(snapshot: Snapshot) -> dict[str, object]:
    """The compiled form of one revision: per profile and consent its class ids and its boxes.

    Shape: ``{"digest", "class_count", "profiles": {profile: {"audience", "none": {"classes":
    [int], "boxes": [{facet: [value]}]}, "granted": {...}}}}``. Cost: some 100 ms.
    """
    vocabulary = snapshot.vocabulary
    profiles: dict[str, object] = {}
    for profile, audience in vocabulary.profiles.items():
        entry: dict[str, object] = {"audience": audience}
        for consent in CONSENTS:
            classes = snapshot.table.units.classes(profile, consent)
            entry[consent] = {
                "classes": list(classes),
                "boxes": [
                    {facet: list(cell) for facet, cell in box.cells.items()}
                    for box in boxes(vocabulary, classes)
                ],
            }
        profiles[profile] = entry
    return {
        "digest": snapshot.digest,
        "class_count": vocabulary.class_count,
        "profiles": profiles,
    }
