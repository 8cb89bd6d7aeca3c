"""Looks every finished request up in both policies and counts where they differ.

Theory
    Whatever decided a request is left behind as facts (`gateway.decisions.facts`): the pinned
    policy, who asked and for what, and how many units of which class were shown or kept back.
    Both policies are functions of exactly these, so they can be compared afterwards, when the
    answer is on its way, and a comparison can delay or spoil nothing.

    Compartments and consents are the same on both sides. A unit that was kept back for another
    reason than its class is denied by both, whatever the candidate says of the class.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import Final, Protocol

from gateway.decisions.facts import Facts
from policies.shadow.disagreement import Point, Way
from policies.shadow.pair import Pair
from policies.shadow.sides import Asked, claims_key
from policies.shadow.tally import Tally
from policies.shadow.units import UnitPair
from policies.snapshot import Snapshot

PAIRS_MAX: Final = 8
"""Pairs of policies whose counts wait to be written; more come up only without a database."""

PairKey = tuple[str, str]
"""Digest of the live policy, digest of the candidate."""

_LOG: Final = logging.getLogger(__name__)


class Snapshots(Protocol):
    """Where the candidate is, if there is one."""

    @property
    def candidate(self) -> Snapshot | None: ...


class Shadow:
    """Compares and counts. All methods are for the event loop's thread.

    ``compared``, ``disagreed`` and ``faults`` count since the start of the process, for metrics.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self.compared: Counter[tuple[str, ...]] = Counter()
        self.disagreed: Counter[tuple[str, ...]] = Counter()
        self.faults: Counter[tuple[str, ...]] = Counter()
        self._snapshots = snapshots
        self._pair: Pair | None = None
        self._tallies: dict[PairKey, Tally] = {}

    def observe(self, facts: Facts, *, route: str, method: str) -> None:
        """Compare one finished request. Never raises for what it finds.

        Cost: a reference read without a candidate; else a look-up for the caller and one for
        each class among the request's units.
        """
        try:
            candidate = self._snapshots.candidate
            if candidate is not None:
                self._observe(facts, candidate, route, method)
            elif self._pair is not None:
                self._pair = None  # it would keep both policies alive
        except Exception as error:  # noqa: BLE001 - counted as a fault: no request may fail here
            self._fault(facts, error)

    def take(self) -> dict[PairKey, Tally]:
        """All that was counted since the last time; the caller keeps it."""
        taken, self._tallies = self._tallies, {}
        return {key: tally for key, tally in taken.items() if tally}

    def give_back(self, taken: dict[PairKey, Tally]) -> None:
        """Counts that could not be kept: they are tried again."""
        for (live, candidate), tally in taken.items():
            self._tally(live, candidate).merge(tally)

    def _fault(self, facts: Facts, error: Exception) -> None:
        self.faults[()] += 1
        if self.faults[()] == 1:
            _LOG.error("shadow: a comparison failed: %s", type(error).__name__)
        pair = self._pair
        if pair is not None and pair.live is facts.snapshot:
            self._tally(pair.live.digest, pair.candidate.digest).faults += 1

    def _observe(self, facts: Facts, candidate: Snapshot, route: str, method: str) -> None:
        live = facts.snapshot
        if live is None or not facts.identified or not route:
            return
        pair = self._pair
        if pair is None or pair.live is not live or pair.candidate is not candidate:
            pair = self._pair = Pair(live, candidate)
        tally = self._tally(live.digest, candidate.digest)
        self._caller(pair, tally, facts, route, method)
        if facts.subject is not None:
            self._units(pair.units(facts.subject.grant.profiles), tally, facts, route)

    def _caller(self, pair: Pair, tally: Tally, facts: Facts, route: str, method: str) -> None:
        compared = pair.caller(_in_words(pair, asked_of(facts, route, method)))
        for point, profile in compared.points:
            tally.look(point, profile)
            self.compared[(point,)] += 1
        for one in compared.found:
            tally.add(one)
            self.disagreed[one.point, one.way, one.profile] += 1
        if compared.found:
            tally.sample(compared.found, route)

    def _units(self, both: UnitPair, tally: Tally, facts: Facts, route: str) -> None:
        looked = 0
        found: dict[Way, list[int]] = {Way.OPENS: [], Way.CLOSES: []}
        units: Counter[Way] = Counter()
        for state, counted in facts.tally.counts().classes.items():
            looked += counted.allowed + counted.denied
            one = both.about(state)
            if one is None:
                continue
            by_class = counted.denied - counted.not_by_class
            times = counted.allowed if one.way is Way.CLOSES else by_class
            if times > 0:
                tally.add(one, times)
                found[one.way].append(state[0])
                units[one.way] += times
        if looked:
            tally.look(Point.UNIT, both.name, looked)
            self.compared[(Point.UNIT,)] += looked
        for way, times in units.items():
            self.disagreed[Point.UNIT, way, both.name] += times
            tally.keep((Point.UNIT, way, both.name), route, found[way])

    def _tally(self, live: str, candidate: str) -> Tally:
        key = live, candidate
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= PAIRS_MAX:  # a database that is away, and many reloads
                del self._tallies[next(iter(self._tallies))]
                self.faults[()] += 1
            tally = self._tallies[key] = Tally()
        return tally


def _in_words(pair: Pair, asked: Asked) -> Asked:
    """Without wishes that are no word of either policy. Both refuse them, so there is nothing to
    compare; and as keys of what is remembered, a caller's own words would crowd out the others."""
    sides = (pair.live, pair.candidate)
    if asked.audience and not any(side.narrow(asked.audience) for side in sides):
        asked = replace(asked, audience="")
    if asked.purpose and not any(asked.purpose in side.vocabulary.purposes for side in sides):
        asked = replace(asked, purpose="")
    return asked


def asked_of(facts: Facts, route: str, method: str) -> Asked:
    """What the decisions about one request depended on."""
    principal, wish = facts.principal, facts.wish
    claims = principal.claims if principal is not None else {}
    return Asked(
        issuer=principal.issuer if principal is not None else "",
        claims=claims_key(claims),
        route=route,
        method=method,
        task_scope=_task_scope(facts),
        audience=wish.audience if wish is not None else "",
        purpose=wish.purpose if wish is not None else "",
        upstream=facts.actor.name if facts.actor is not None else "",
    )


def _task_scope(facts: Facts) -> str:
    if facts.subject is not None:
        return facts.subject.task_scope
    claims = facts.principal.claims if facts.principal is not None else {}
    wished = facts.wish.task_scope if facts.wish is not None else ""
    return task_in_force(wished, claims.get("task_scopes", frozenset()))


def task_in_force(wished: str, permitted: frozenset[str]) -> str:
    """The task of a caller that was not placed: as placement would have chosen it."""
    if wished:
        return wished if wished in permitted else ""
    return next(iter(permitted)) if len(permitted) == 1 else ""
