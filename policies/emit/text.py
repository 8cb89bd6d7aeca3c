"""A snapshot for people: what each profile may read, folded into few lines."""

from __future__ import annotations

from collections.abc import Sequence

from policies.predicate import boxes
from policies.snapshot import Snapshot
from policies.table import members


def profile_lines(snapshot: Snapshot, profile: str) -> Sequence[str]:
    """What one profile may read, and what a consent adds. Raises UnknownProfile."""
    grant = snapshot.grant([profile])
    added = sorted(set(grant.consented) - set(grant.plain))
    lines = [f"{profile}: {len(grant.plain)} states, {len(grant.consented)} with consent"]
    for sign, classes in ((" ", grant.plain), ("+", added)):
        for box in boxes(snapshot.vocabulary, classes):
            note = "  (with consent)" if sign == "+" else ""
            lines.append(f"  {sign} {box.text(snapshot.vocabulary)}  [{box.size}]{note}")
    return lines


def rule_lines(snapshot: Snapshot, rule_id: str) -> Sequence[str]:
    """What one unit rule matches, as boxes; empty when there is no such rule."""
    bits = snapshot.table.units.boxes.get(rule_id)
    if bits is None:
        return ()
    found = boxes(snapshot.vocabulary, members(bits))
    return [f"  {box.text(snapshot.vocabulary)}  [{box.size}]" for box in found]
