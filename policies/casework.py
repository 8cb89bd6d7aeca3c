"""The reviewers' own tests: ``cases/*.yaml``, run by CI and by ``python -m policies verify``.

A file holds named units and, all optional, *tests* (a matrix of profiles, units and
consents; pairs that are not expected to be allowed must be denied), *requests* (to the
six small kinds) and *invariants* over every state:

    - never:  {profile: [...], visibility: [...], consent: [none]}    nobody reads these
    - always: {profile: [...], kind: [...]}                           all of these are read
    - subset: [customer, partner]                                     each within the next
    - count:  {profile: customer, consent: none, allowed: 56}         golden number

A facet that an invariant leaves out means all of its values. A folder without cases, a
file without a case, a word that the vocabulary does not have: refused, never skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.case_file import (
    Ask,
    Box,
    CaseFile,
    Count,
    Matrix,
    Never,
    Request,
    Subset,
    read_case_file,
)
from policies.decision import Decision
from policies.errors import InvalidPolicy
from policies.faults import Faults, Place
from policies.files import decoded
from policies.kinds import AdminAction, LabelAuthor
from policies.predicate import boxes
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from policies.table import FacetSets, members
from policies.yamltree import parse_kept


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: where it stands, whether it held, and if not, why."""

    place: Place
    name: str
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Results:
    """All outcomes, in file order, and the rules and profiles that no test touched.

    An invariant touches nothing: only a case that expects a certain answer tests a rule.
    """

    outcomes: tuple[Outcome, ...]
    untested_rules: tuple[str, ...]
    untested_profiles: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def passed(self) -> bool:
        return bool(self.outcomes) and not self.failures


def run(folder: Path = DEFAULT_FOLDER, snapshot: Snapshot | None = None) -> Results:
    """The outcomes of every case in ``folder/cases`` against a snapshot (by default its own).

    Raises InvalidPolicy for a case file that cannot be read.
    """
    snapshot = snapshot or load(folder)
    faults = Faults()
    files: list[CaseFile] = []
    for path in sorted((folder / "cases").glob("*.yaml")):
        name = f"cases/{path.name}"
        text = decoded(name, path.read_bytes(), faults)
        if text is not None:
            files.append(read_case_file(name, parse_kept(name, text, faults), snapshot, faults))
    if not files:
        faults.add(Place("cases"), "no_cases", "there is no case file", "write expected decisions")
    if faults.found:
        raise InvalidPolicy(faults.found)
    runner = _Runner(snapshot)
    outcomes = [outcome for file in files for outcome in runner.run(file)]
    every = [row.id for row in snapshot.table.units.rows]
    every += [row.id for relation in snapshot.table.relations.values() for row in relation.rows]
    return Results(
        tuple(outcomes),
        tuple(rule for rule in every if rule not in runner.touched),
        tuple(name for name in snapshot.vocabulary.profiles if name not in runner.asked),
    )


class _Runner:
    """Runs cases against one snapshot and remembers which rules were seen to match."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.touched: set[str] = set()
        self.asked: set[str] = set()
        self._snapshot = snapshot
        self._sets = FacetSets(snapshot.vocabulary)

    def run(self, file: CaseFile) -> Sequence[Outcome]:
        outcomes = [
            Outcome(test.place, test.name, tuple(self._matrix(test))) for test in file.tests
        ]
        outcomes += [
            Outcome(request.place, request.name, tuple(self._request(request)))
            for request in file.requests
        ]
        for invariant in file.invariants:
            match invariant:
                case Never():
                    problems = self._box(invariant.box, wanted=invariant.wanted)
                case Subset():
                    problems = self._subset(invariant)
                case Count():
                    problems = self._count(invariant)
            outcomes.append(Outcome(invariant.place, invariant.name, tuple(problems)))
        return outcomes

    def _matrix(self, test: Matrix) -> list[str]:
        problems: list[str] = []
        units = self._snapshot.table.units
        self.asked |= set(test.profiles)
        for profile in test.profiles:
            for name, class_id in test.units.items():
                for consent in test.consents:
                    found = units.rules(profile, class_id, consent)
                    self.touched |= {*found.allows, *found.denies}
                    expected = (profile, name, consent) in test.allowed
                    if found.allowed is not expected:
                        verdict = "allowed" if found.allowed else "denied"
                        rules = ", ".join((*found.allows, *found.denies)) or "no rule"
                        problems.append(
                            f"{profile} on {name} (consent {consent}) is {verdict} by {rules}"
                        )
        return problems

    def _request(self, request: Request) -> list[str]:
        decision = self._decide(request)
        self.touched |= set(decision.rules)
        if decision.value == request.expect and decision.allowed is (request.expect != ""):
            return []
        got = decision.value or f"a denial ({decision.reason})"
        return [f"expected {request.expect or 'a denial'}, got {got}"]

    def _decide(self, request: Request) -> Decision:
        words = request.words
        match request.decide:
            case Ask.PLACE:
                return self._snapshot.place(words["issuer"], request.claims)
            case Ask.PLACE_AGENT:
                return self._snapshot.place_agent(
                    frozenset(request.claims["roles"]), words["task"], words["tool"]
                )
            case Ask.ROUTE:
                return self._snapshot.decide_route(
                    words["audience"], words["route"], words["method"]
                )
            case Ask.CONSENT:
                return self._snapshot.decide_consent(
                    words["audience"], words["purpose"], words["approver"], words["ttl"]
                )
            case Ask.ADMIN:
                return self._snapshot.decide_admin(
                    request.claims["roles"], AdminAction(words["action"])
                )
            case Ask.LABEL:
                return self._snapshot.decide_label(
                    words["audience"], words["approver"], LabelAuthor(words["author"])
                )

    def _box(self, box: Box, *, wanted: bool) -> list[str]:
        inside = self._sets.box(box.cells)
        if not inside:
            return ["the invariant covers no state"]
        problems: list[str] = []
        for profile in box.profiles:
            for consent in box.consents:
                readable = self._snapshot.table.units.readable[profile, consent]
                wrong = inside & ~readable if wanted else inside & readable
                if wrong:
                    first = boxes(self._snapshot.vocabulary, members(wrong))[0]
                    verdict = "denied" if wanted else "readable"
                    problems.append(
                        f"{profile} (consent {consent}): {wrong.bit_count()} states are {verdict},"
                        f" such as {first.text(self._snapshot.vocabulary)}"
                    )
        return problems

    def _subset(self, subset: Subset) -> list[str]:
        problems: list[str] = []
        units = self._snapshot.table.units
        for inner, outer in zip(subset.profiles, subset.profiles[1:], strict=False):
            for consent in ("none", "granted"):
                extra = units.readable[inner, consent] & ~units.readable[outer, consent]
                if extra:
                    first = boxes(self._snapshot.vocabulary, members(extra))[0]
                    problems.append(
                        f"{inner} reads {extra.bit_count()} states that {outer} does not"
                        f" (consent {consent}): {first.text(self._snapshot.vocabulary)}"
                    )
        return problems

    def _count(self, count: Count) -> list[str]:
        found = self._snapshot.table.units.readable[count.profile, count.consent].bit_count()
        if found == count.allowed:
            return []
        return [f"{count.profile} (consent {count.consent}) reads {found}, not {count.allowed}"]
