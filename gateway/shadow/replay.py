"""Recorded decisions decided anew under a candidate.

Theory
    A decision record holds what the decisions depended on (`gateway.decisions`). With the policy
    that made them at hand (the *base*) both sides are looked up as in a shadow, and the record
    proves the base: where the two do not agree, the record is not replayed. Without a base the
    record itself is the live side: what it does not tell is not compared, and rules behind units
    stay unknown.

Laws
    * A record is replayed, or counted with the reason why it is not; the same holds for its
      units. Nothing is passed over.
    * Counts are of records. What a log left out by sampling or lost is told, not made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gateway.decisions.record import DecisionRecord
from gateway.shadow.observer import task_in_force
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.pair import Pair, compared
from policies.shadow.sides import AGENT, NOTHING, Asked, PolicySide, Said, claims_key
from policies.shadow.tally import Tally
from policies.shadow.units import about, joined, readable
from policies.snapshot import Snapshot
from policies.vocabulary import CONSENTS

_ROUTED: Final = frozenset({"relay", "inspect"})
_NOBODY: Final = frozenset({"no_audience", "ambiguous_audience", "unauthenticated"})


@dataclass(slots=True)
class Replayed:
    """``tallies`` by the digest of the policy that had decided. ``skipped`` are whole records,
    ``unit_skipped`` only their units, each by reason. ``sampled`` counts records that stand for
    several, ``dropped`` those that the log says it lost."""

    records: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    unit_skipped: Counter[str] = field(default_factory=Counter)
    sampled: int = 0
    dropped: int = 0

    def tally(self, digest: str) -> Tally:
        return self.tallies.setdefault(digest, Tally())


def replay(
    records: Iterable[DecisionRecord], candidate: Snapshot, base: Snapshot | None = None
) -> Replayed:
    """Every record decided anew. Raises: what reading a record raises.

    Cost: a look-up per record and class of unit after the first of its sort.
    """
    replayed = Replayed()
    pair = Pair(base, candidate) if base is not None else None
    for record in records:
        replayed.records += 1
        replayed.sampled += record.sampled < 1
        replayed.dropped += record.dropped
        obstacle = _obstacle(record, base)
        if obstacle:
            replayed.skipped[obstacle] += 1
            continue
        tally = replayed.tally(record.policy_digest)
        found = [*_request(record, candidate, pair, tally)]
        if gone := record.unit_obstacles:
            replayed.unit_skipped[gone[0]] += 1
        elif record.profiles:
            found += _units(record, candidate, pair, tally)
        tally.sample(found, record.route)
    return replayed


def _obstacle(record: DecisionRecord, base: Snapshot | None) -> str:
    """Why a record cannot be decided anew; empty when it can."""
    if gone := record.request_obstacles:
        return gone[0]
    if not record.audience and record.code not in _NOBODY:
        return f"refused before a profile was found: {record.code}"
    if base is None:
        return ""
    if record.policy_digest != base.digest:
        return "recorded under another policy than the base"
    if any(profile not in base.vocabulary.profiles for profile in record.profiles):
        return "not reproduced by the base: a profile that it does not have"
    said, told = PolicySide(base), RecordedSide(record)
    asked = asked_of(record)
    if said.placed(asked).value != told.placed(asked).value:
        return "not reproduced by the base: another placement"
    routed = told.routed(asked, record.profile)
    if routed is not None and said.routed(asked, record.profile).value != routed.value:
        return "not reproduced by the base: another verdict on the route"
    return ""


def _request(
    record: DecisionRecord, candidate: Snapshot, pair: Pair | None, tally: Tally
) -> tuple[Disagreement, ...]:
    asked = asked_of(record)
    found = (
        compared(RecordedSide(record), PolicySide(candidate), asked)
        if pair is None
        else pair.caller(asked)
    )
    for point, profile in found.points:
        tally.look(point, profile)
    for one in found.found:
        tally.add(one)
    return found.found


def _units(
    record: DecisionRecord, candidate: Snapshot, pair: Pair | None, tally: Tally
) -> list[Disagreement]:
    both = pair.units(record.profiles) if pair is not None else None
    name = joined(record.profiles)
    found: list[Disagreement] = []
    for counted in record.classes:
        class_id, consent = counted.class_id, bool(counted.consent)
        if class_id is None:  # never: such a record has an obstacle
            continue
        allowed, denied = counted.allowed or 0, counted.denied or 0
        tally.look(Point.UNIT, name, allowed + denied)
        state = class_id, consent
        if both is not None:
            one = both.about(state)
        else:
            one = _about(candidate, record.profiles, state, allowed=allowed > 0)
        if one is None:
            continue
        times = allowed if one.way is Way.CLOSES else denied - (counted.not_by_class or 0)
        if times > 0:
            tally.add(one, times)
            found.append(one)
    return found


def _about(
    candidate: Snapshot, profiles: tuple[str, ...], state: tuple[int, bool], *, allowed: bool
) -> Disagreement | None:
    """The candidate against what was recorded. The id is read as the candidate's own: without
    the base nobody knows more of it."""
    class_id, consent = state
    bits = readable(candidate, profiles, CONSENTS[consent])
    now = class_id >= 0 and bool(bits >> class_id & 1)
    if now is allowed:
        return None
    return about(Way.OPENS if now else Way.CLOSES, joined(profiles), state)


@dataclass(frozen=True, slots=True)
class RecordedSide:
    """What one record tells of the decisions that were made."""

    record: DecisionRecord

    def placed(self, asked: Asked) -> Said:  # noqa: ARG002 - the record is of this question
        record = self.record
        if not record.audience:
            return NOTHING
        return Said(record.profile, record.rules, agent=record.audience == AGENT)

    def routed(self, asked: Asked, profile: str) -> Said | None:  # noqa: ARG002 - likewise
        record, refused = self.record, self.record.code == "forbidden"
        if record.station in _ROUTED or (record.station == "decide" and not refused):
            return Said(record.route, record.rules)
        return NOTHING if refused else None

    def narrowed(self, word: str) -> Said:
        """Only a wish that was followed is recorded."""
        return Said(word)

    def acting(self, upstream: str) -> Said | None:  # noqa: ARG002 - likewise
        """The last profile, by the order in which they are intersected."""
        return Said(self.record.profiles[-1]) if len(self.record.profiles) > 1 else None

    def purposed(self, word: str) -> Said:
        return Said(word)


def asked_of(record: DecisionRecord) -> Asked:
    """What the decisions about a recorded request depended on."""
    known = not record.unknown("purpose")
    claims, task = record.claim_sets, record.task_scope
    if not record.audience:
        task = task_in_force(task, claims.get("task_scopes", frozenset()))
    return Asked(
        issuer=record.issuer,
        claims=claims_key(claims),
        route=record.route,
        method=record.method,
        task_scope=task,
        audience=record.narrowed,
        purpose=record.purpose if known else "",
        upstream=record.actor,
    )
