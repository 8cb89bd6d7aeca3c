"""Recorded decisions under a candidate: what a shadow would have seen, and what is left out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.facts import Facts, PerClass
from gateway.decisions.reader import read_records
from gateway.routes.wishes import Wish
from gateway.shadow.observer import Shadow
from gateway.shadow.replay import Replayed
from gateway.shadow.replay import replay as replay_records
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.tally import Tally
from policies.snapshot import Snapshot, load
from tests.gateway.shadow.made import (
    EMPLOYEES_READ_NO_DRAFTS,
    STAFF,
    Held,
    candidate_of,
    class_id,
    line_of,
    request,
)

SHIPPED = load()
EDITS = (
    EMPLOYEES_READ_NO_DRAFTS,
    ("rules/audience.csv", "grp:contractors, employee, deny", "grp:contractors, partner, deny"),
    ("rules/agents.csv", "G-READ-1, role:assistant, answer|", "G-READ-1, role:assistant, "),
    ("rules/routes.csv", "p, R-UNIT-1, customer|partner|", "p, R-UNIT-1, "),
    ("rules/units.csv", "p, U-CUS-1, customer, public, published, published, low|standard",
     "p, U-CUS-1, customer, public|partner, published, published, low|standard"),
)  # fmt: skip
CLAIMS: dict[str, list[dict[str, frozenset[str]]]] = {
    "idp:staff": [STAFF, {"groups": frozenset({"grp:staff", "grp:contractors"})}],
    "idp:customers": [{"groups": frozenset({"grp:customers"})}, {}],
    "idp:agents": [
        {"groups": frozenset({"grp:agents"}), "roles": frozenset({role}),
         "task_scopes": frozenset({task})}
        for role in ("role:assistant", "role:auditor") for task in ("answer", "audit")
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return candidate_of(tmp_path_factory.mktemp("candidate"), *EDITS)


def replay(lines: list[str], candidate: Snapshot, base: Snapshot | None = None) -> Replayed:
    return replay_records(read_records(lines), candidate, base)


@dataclass(frozen=True, slots=True)
class Asking:
    """A request to be made of the shipped policy; its facts would be too long to print."""

    issuer: str
    claims: dict[str, frozenset[str]]
    route: str
    method: str
    wish: Wish
    classes: tuple[tuple[int, bool, int, int, int], ...] = ()

    @property
    def facts(self) -> Facts:
        classes = {(one[0], one[1]): PerClass(*one[2:]) for one in self.classes}
        return request(
            SHIPPED, classes, issuer=self.issuer, claims=self.claims, route=self.route,
            method=self.method, wish=self.wish,
        )  # fmt: skip

    @property
    def line(self) -> str:
        return line_of(self.facts, route=self.route, method=self.method)


@st.composite
def requests(draw: st.DrawFn) -> Asking:
    """A request of the shipped policy, with units that it shows or keeps back by their class."""
    issuer = draw(st.sampled_from([*CLAIMS]))
    claims = draw(st.sampled_from(CLAIMS[issuer]))
    route, method = draw(st.sampled_from([("retrieve", "POST"), ("unit", "GET")]))
    wish = Wish(audience=draw(st.sampled_from(["", "customer"])),
                purpose=draw(st.sampled_from(["", "support"])))  # fmt: skip
    asking = Asking(issuer, claims, route, method, wish)
    facts = asking.facts
    classes: dict[tuple[int, bool], tuple[int, int, int]] = {}
    if facts.subject is not None and facts.station == "inspect":
        near = st.sampled_from([
            class_id(SHIPPED, **words) for words in (
                {}, {"readiness": "approved"}, {"visibility": "partner"},
                {"visibility": "internal"}, {"risk_class": "high"})
        ])  # fmt: skip
        for one in draw(st.lists(near | st.integers(0, 10_799), max_size=4)):
            consent, times = draw(st.booleans()), draw(st.integers(1, 3))
            other = draw(st.integers(0, 2))
            if facts.subject.grant.permits_class(one, consent=consent):
                classes[one, consent] = (times, other, other)
            else:
                classes[one, consent] = (0, times + other, other)
    return replace(asking, classes=tuple((*key, *counts) for key, counts in classes.items()))


def shape(found: Counter[Disagreement]) -> Counter[tuple[object, ...]]:
    """Disagreements without the live side's rules, which a record tells all together."""
    told: Counter[tuple[object, ...]] = Counter()
    for one, times in found.items():
        told[one.point, one.way, one.profile, one.asked, one.live, one.candidate,
             one.candidate_rules, one.class_id, one.consent] += times  # fmt: skip
    return told


@given(st.lists(requests(), min_size=1, max_size=5))
def test_a_replay_finds_what_a_shadow_would_have_seen(
    candidate: Snapshot, asked: list[Asking]
) -> None:
    """With the base the same in every count; without it the same but for live rules."""
    shadow = Shadow(Held(candidate))
    for one in asked:
        shadow.observe(one.facts, route=one.route, method=one.method)
    (seen,) = shadow.take().values()
    lines = [one.line for one in asked]
    for base in (SHIPPED, None):
        replayed = replay(lines, candidate, base)
        assert not replayed.skipped
        found = replayed.tallies[SHIPPED.digest]
        assert +found.compared == +seen.compared
        assert shape(found.seen) == shape(seen.seen)
        if base is not None:
            assert found.seen == seen.seen


@given(st.lists(requests(), min_size=1, max_size=5))
def test_a_replay_under_the_same_policy_finds_nothing(
    asked: list[Asking],
) -> None:
    lines = [one.line for one in asked]
    for base in (SHIPPED, None):
        found = replay(lines, SHIPPED, base)
        assert found.records == len(asked)
        assert not any(tally.seen for tally in found.tallies.values())


def changed(line: str, **values: Any) -> str:
    return json.dumps(json.loads(line) | values)


def before(line: str) -> str:
    """The same record as a log has it of before the refusing station was told: the one passed."""
    told = json.loads(line)
    passed = {"place": "identify", "decide": "place"}
    refused = told["effect"] == "deny"
    return changed(line, station=passed[told["station"]] if refused else told["station"])


@given(st.lists(requests(), min_size=1, max_size=5))
def test_a_log_of_before_is_replayed_alike(candidate: Snapshot, asked: list[Asking]) -> None:
    lines = [one.line for one in asked]
    for base in (SHIPPED, None):
        now, then = replay(lines, candidate, base), replay([*map(before, lines)], candidate, base)
        assert (now.skipped, then.skipped) == ({}, {})
        assert now.tallies[SHIPPED.digest].seen == then.tallies[SHIPPED.digest].seen
        assert now.tallies[SHIPPED.digest].compared == then.tallies[SHIPPED.digest].compared


SKIPPED = [
    ("recorded under another policy than the base", {"policy_digest": "0" * 64}),
    ("not reproduced by the base: another placement", {"profile": "partner"}),
    ("not reproduced by the base: another verdict on the route",
     {"station": "decide", "effect": "deny", "code": "forbidden"}),
    ("not reproduced by the base: a profile that it does not have",
     {"profiles": ["employee", "gone"]}),
    ("refused before policy: not_found", {"station": "admit", "code": "not_found"}),
    ("refused before a profile was found: task_scope_required",
     {"station": "place", "audience": "", "profile": "", "code": "task_scope_required"}),
    ("refused before policy: unauthenticated",
     {"station": "identify", "audience": "", "profile": "", "code": "unauthenticated",
      "reason": "revoked", "claims": [], "rules": []}),
    ("a question of an operator", {"surface": "admin"}),
    ("masked: surface", {"surface": "***", "masked": ["surface"]}),
    ("masked: claims", {"claims": ["***"], "masked": ["claims"]}),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "values"), SKIPPED)
def test_a_record_that_cannot_be_replayed_is_counted_with_its_reason(
    candidate: Snapshot, reason: str, values: dict[str, Any]
) -> None:
    """And compared with nothing."""
    sound = line_of(request(SHIPPED))
    found = replay([sound, changed(sound, **values)], candidate, SHIPPED)
    assert found.skipped == {reason: 1}
    assert sum(tally.compared[Point.PLACEMENT, "employee"] for tally in found.tallies.values()) == 1


def test_a_record_without_units_is_still_replayed(candidate: Snapshot) -> None:
    found = replay([line_of(request(SHIPPED))], candidate, SHIPPED)
    assert (found.skipped, found.unit_skipped) == ({}, {"no governed unit was looked up": 1})


def test_what_a_log_left_out_is_told(candidate: Snapshot) -> None:
    line = changed(line_of(request(SHIPPED)), sampled=0.1, dropped=7)
    found = replay([line], candidate)
    assert (found.sampled, found.dropped) == (1, 7)


def test_a_closed_draft_is_blamed_on_class_and_consent(candidate: Snapshot) -> None:
    draft = class_id(SHIPPED, readiness="approved")
    line = line_of(request(SHIPPED, {(draft, False): PerClass(allowed=3)}))
    for base in (None, SHIPPED):
        tally: Tally = replay([line], candidate, base).tallies[SHIPPED.digest]
        assert {(one.way, one.class_id, times) for one, times in tally.seen.items()} == {
            (Way.CLOSES, draft, 3)
        }


def test_a_log_file_with_other_lines_is_read(candidate: Snapshot, tmp_path: Path) -> None:
    """Standard output of a gateway: access log and decisions in one stream."""
    log = tmp_path / "log"
    log.write_text('{"message": "hello"}\n\n' + line_of(request(SHIPPED)))
    with log.open("rb") as lines:
        found = replay_records(read_records(lines, skip_foreign=True), candidate)
    assert found.records == 1
