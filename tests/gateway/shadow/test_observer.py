"""The shadow in memory: what it counts, what it costs an answer, what it does when it fails."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.facts import Facts, PerClass, UnitCounts
from gateway.routes.wishes import Wish
from gateway.shadow.observer import PAIRS_MAX, Shadow
from policies.review import unit_diff
from policies.review.reading import read_unproven
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.tally import KEYS_MAX, SAMPLES_MAX, Tally
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS
from tests.gateway.shadow.made import (
    EMPLOYEES_READ_NO_DRAFTS,
    STAFF,
    Counted,
    Held,
    candidate_of,
    class_id,
    copied,
    request,
)


@pytest.fixture(scope="module")
def narrower(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return candidate_of(tmp_path_factory.mktemp("narrower"), EMPLOYEES_READ_NO_DRAFTS)


def observed(candidate: Snapshot | None, *requests: Facts) -> Tally:
    """What a shadow counts of these requests, all of one pair."""
    shadow = Shadow(Held(candidate))
    for facts in requests:
        shadow.observe(facts, route="retrieve", method="POST")
    tallies = [*shadow.take().values()]
    assert len(tallies) <= 1
    return tallies[0] if tallies else Tally()


def units(tally: Tally) -> dict[tuple[Way, int, bool], int]:
    return {
        (one.way, one.class_id, one.consent): times
        for one, times in tally.seen.items()
        if one.point is Point.UNIT
    }


def test_without_a_candidate_nothing_is_looked_at(snapshot: Snapshot) -> None:
    """Not even the units are counted: the facts of such a request may hold anything."""
    facts = request(snapshot)
    facts.tally = None  # type: ignore[assignment]
    shadow = Shadow(Held())
    shadow.observe(facts, route="retrieve", method="POST")
    assert shadow.take() == {}
    assert not shadow.faults


@given(classes=st.dictionaries(
    st.tuples(st.integers(-1, 10_799), st.booleans()),
    st.builds(PerClass, st.integers(0, 3), st.integers(0, 3), st.just(0)),
))  # fmt: skip
def test_a_policy_beside_itself_agrees_on_everything(
    snapshot: Snapshot, classes: Mapping[tuple[int, bool], PerClass]
) -> None:
    """Whatever units came by: no disagreement, and every one in the denominator."""
    tally = observed(snapshot, request(snapshot, classes))
    assert not tally.seen
    wanted = sum(row.allowed + row.denied for row in classes.values())
    assert tally.compared[Point.UNIT, "employee"] == wanted
    assert tally.compared[Point.PLACEMENT, "employee"] == 1
    assert tally.compared[Point.ROUTE, "employee"] == 1


def test_every_state_that_a_diff_lists_as_closed_is_counted(
    snapshot: Snapshot, narrower: Snapshot, tmp_path: Path
) -> None:
    """One unit of each such state, shown to an employee; nothing else is counted."""
    candidate = read_unproven(copied(tmp_path, EMPLOYEES_READ_NO_DRAFTS))
    (found,) = unit_diff.compare(read_unproven(), candidate)
    assert found.profile == "employee"
    closed = {
        (snapshot.vocabulary.class_id(dict(zip(FACETS, values, strict=True))), consent == "granted")
        for part in found.parts
        for values in itertools.product(*part.cells.values())
        for consent in part.consents
    }
    assert len(closed) == found.lost > 0
    shown = {key: PerClass(allowed=2) for key in closed}
    open_to_both = {(class_id(snapshot), False): PerClass(allowed=5)}
    tally = observed(narrower, request(snapshot, shown | open_to_both))
    assert units(tally) == {(Way.CLOSES, *key): 2 for key in closed}
    assert tally.compared[Point.UNIT, "employee"] == 2 * len(closed) + 5


def test_a_unit_kept_back_for_its_compartment_is_denied_by_both(
    snapshot: Snapshot, narrower: Snapshot
) -> None:
    """The candidate would open its class; it would still be another tenant's."""
    draft = class_id(snapshot, readiness="approved")
    kept = {(draft, False): PerClass(denied=3, not_by_class=2)}
    tally = observed(snapshot, request(narrower, kept))
    assert units(tally) == {(Way.OPENS, draft, False): 1}


def test_only_what_was_shown_can_be_closed(snapshot: Snapshot, narrower: Snapshot) -> None:
    """A request that was walked twice, under two policies, may have shown and kept one class."""
    draft = class_id(snapshot, readiness="approved")
    both = {(draft, False): PerClass(allowed=2, denied=3)}
    assert units(observed(narrower, request(snapshot, both))) == {(Way.CLOSES, draft, False): 2}
    assert units(observed(snapshot, request(narrower, both))) == {(Way.OPENS, draft, False): 3}


def test_two_profiles_at_once_are_compared_as_their_intersection(
    snapshot: Snapshot, narrower: Snapshot
) -> None:
    """An employee who narrowed itself to customer loses nothing of what only employees read."""
    draft = class_id(snapshot, readiness="approved")
    kept = {(draft, False): PerClass(denied=1)}
    asking = request(snapshot, kept, wish=Wish(audience="customer"))
    tally = observed(narrower, asking)
    assert not tally.seen
    assert tally.compared[Point.UNIT, "employee&customer"] == 1
    assert tally.compared[Point.NARROWING, "employee"] == 1


def test_a_caller_whom_policy_refuses_is_compared_too(snapshot: Snapshot, tmp_path: Path) -> None:
    edit = (
        "rules/audience.csv",
        "p, A-EMP-X, idp:staff, groups, grp:contractors, employee, deny\n",
        "",
    )
    candidate = candidate_of(tmp_path, edit)
    contractor = {"groups": STAFF["groups"] | {"grp:contractors"}}
    refused = request(snapshot, claims=contractor)
    assert refused.subject is None
    (one,) = observed(candidate, refused).seen
    assert (one.point, one.way, one.candidate) == (Point.PLACEMENT, Way.OPENS, "employee")
    assert one.live_rules == ("A-EMP-X",)


def test_a_task_that_nobody_verified_is_worth_nothing_to_the_candidate_either(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    row = "p, G-AUD-X, role:assistant, audit, all, agent:auditor, deny\n"
    candidate = candidate_of(tmp_path, ("rules/agents.csv", row, ""))
    claims = {
        "groups": frozenset({"grp:agents"}),
        "roles": frozenset({"role:assistant", "role:auditor"}),
        "task_scopes": frozenset({"answer"}),
    }
    wish = Wish(task_scope="audit")
    asking = request(snapshot, issuer="idp:agents", claims=claims, wish=wish)
    assert asking.subject is None
    assert not observed(candidate, asking).seen
    claims["task_scopes"] = frozenset({"answer", "audit"})
    asking = request(snapshot, issuer="idp:agents", claims=claims, wish=wish)
    assert asking.subject is None
    assert [one.way for one in observed(candidate, asking).seen] == [Way.OPENS]


def test_each_pair_of_policies_has_counts_of_its_own(
    snapshot: Snapshot, narrower: Snapshot
) -> None:
    """Another candidate, another live policy: at once, and nothing is mixed."""
    held = Held(narrower)
    shadow = Shadow(held)
    shown = {(class_id(snapshot, readiness="approved"), False): PerClass(allowed=1)}
    for candidate, live in ((narrower, snapshot), (snapshot, snapshot), (narrower, narrower)):
        held.candidate = candidate
        shadow.observe(request(live, shown), route="retrieve", method="POST")
    assert {key: tally.seen.total() for key, tally in shadow.take().items()} == {
        (snapshot.digest, narrower.digest): 1,
        (snapshot.digest, snapshot.digest): 0,
        (narrower.digest, narrower.digest): 0,
    }


def test_a_request_refused_before_anybody_was_looked_at_is_not_compared(
    snapshot: Snapshot, narrower: Snapshot
) -> None:
    assert not observed(narrower, Facts(snapshot=snapshot), Facts())


class _Broken(Counted):
    def counts(self) -> UnitCounts:
        raise KeyError("a defect")


def test_a_fault_of_the_shadow_is_counted_and_stays_in_it(
    snapshot: Snapshot, narrower: Snapshot
) -> None:
    facts = request(snapshot)
    facts.tally = _Broken()
    shadow = Shadow(Held(narrower))
    for _ in range(3):
        shadow.observe(facts, route="retrieve", method="POST")
    (tally,) = shadow.take().values()
    assert (tally.faults, shadow.faults[()]) == (3, 3)
    assert tally.compared[Point.PLACEMENT, "employee"] == 3


def test_samples_hold_route_and_classes_and_are_few(snapshot: Snapshot, narrower: Snapshot) -> None:
    """One request with two closed classes is one sample; the same again is none."""
    drafts = [class_id(snapshot, readiness="approved", kind=k) for k in ("faq", "guide")]
    asking = request(snapshot, {(one, False): PerClass(allowed=1) for one in drafts})
    tally = observed(narrower, asking, asking)
    ((sample,),) = tally.samples.values()
    assert (sample.route, sample.profile) == ("retrieve", "employee")
    assert sample.class_ids == tuple(sorted(drafts))
    other = Tally()
    for number in range(SAMPLES_MAX + 5):
        one = Disagreement(Point.ROUTE, Way.CLOSES, "employee", "GET x", "x", "")
        other.sample([one], f"route-{number}")
    assert [len(kept) for kept in other.samples.values()] == [SAMPLES_MAX]


def test_a_callers_own_words_are_neither_counted_nor_kept(
    snapshot: Snapshot, narrower: Snapshot
) -> None:
    """Found by attack: five hundred made-up purposes filled what is remembered of callers, and
    every later request was compared from scratch."""
    wishes = [Wish(purpose=f"canary-{n}", audience=f"canary-{n}") for n in range(20)]
    held = Held(narrower)
    shadow = Shadow(held)
    for wish in [*wishes, Wish(), Wish(purpose="audit", audience="employee")]:
        shadow.observe(request(snapshot, wish=wish), route="retrieve", method="POST")
    pair = shadow._pair
    assert pair is not None
    assert {(one.purpose, one.audience) for one in pair._callers} == {
        ("", ""), ("audit", "employee"),
    }  # fmt: skip
    (tally,) = shadow.take().values()
    assert tally.compared[Point.PLACEMENT, "employee"] == 22
    assert tally.compared[Point.PURPOSE, "employee"] == 1
    assert "canary" not in repr(tally)


def test_too_many_kinds_of_disagreement_are_counted_together() -> None:
    """The sum stays whole."""
    tally = Tally()
    for number in range(KEYS_MAX + 100):
        tally.add(Disagreement(Point.UNIT, Way.CLOSES, "employee", "", "", "", class_id=number))
    assert len(tally.seen) == KEYS_MAX + 1
    assert tally.seen.total() == KEYS_MAX + 100


def test_counts_that_could_not_be_kept_are_not_lost(snapshot: Snapshot, narrower: Snapshot) -> None:
    shadow = Shadow(Held(narrower))
    draft = class_id(snapshot, readiness="approved")
    for _ in range(2):
        facts = request(snapshot, {(draft, False): PerClass(allowed=3)})
        shadow.observe(facts, route="retrieve", method="POST")
        shadow.give_back(shadow.take())
    (tally,) = shadow.take().values()
    assert tally.compared[Point.PLACEMENT, "employee"] == 2
    assert units(tally) == {(Way.CLOSES, draft, False): 6}
    assert shadow.take() == {}


def test_pairs_of_policies_that_wait_are_bounded() -> None:
    """A database that is away for long costs counts, not memory, and says so."""
    shadow = Shadow(Held())
    full = Tally()
    full.look(Point.ROUTE, "employee")
    for number in range(PAIRS_MAX + 3):
        shadow.give_back({(f"live-{number}", "candidate"): full})
    assert len(shadow.take()) == PAIRS_MAX
    assert shadow.faults[()] == 3
