"""Which rules made two policies judge one state of a unit differently.

Not for the path of a request: a look-up passes over all rows. Disagreements about units are
counted by profile, class and consent; everything else about them follows from the tables.
"""

from __future__ import annotations

from dataclasses import replace

from policies.shadow.disagreement import Disagreement
from policies.shadow.units import JOINT
from policies.snapshot import Snapshot
from policies.table import Verdict
from policies.vocabulary import CONSENTS


def attributed(live: Snapshot, candidate: Snapshot, found: Disagreement) -> Disagreement:
    """A disagreement about a unit with the rules on both sides: those of the first profile that
    makes the difference. Cost: one pass over the rows of each policy and profile."""
    for profile in found.profile.split(JOINT):
        was = _verdict(live, profile, found.class_id, found.consent)
        now = _verdict(candidate, profile, _moved(found.class_id, live, candidate), found.consent)
        if was.allowed is not now.allowed:
            return replace(found, live_rules=_deciding(was), candidate_rules=_deciding(now))
    return found


def _verdict(policy: Snapshot, profile: str, class_id: int, consent: bool) -> Verdict:
    return policy.table.units.rules(profile, class_id, CONSENTS[consent])


def _moved(class_id: int, live: Snapshot, candidate: Snapshot) -> int:
    """The candidate's id of a class of the live policy."""
    return candidate.vocabulary.class_id(live.vocabulary.facets_of(class_id))


def _deciding(found: Verdict) -> tuple[str, ...]:
    return found.denies or found.allows
