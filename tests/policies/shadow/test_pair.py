"""One caller under two policies: itself, edited copies of the shipped one, and the diff."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.review import binding_diff, placement_diff, relation_diff, vocabulary_diff
from policies.review.change import Change, Direction
from policies.review.reading import Reading, read_unproven
from policies.shadow.disagreement import Disagreement, Point, Way
from policies.shadow.pair import Pair
from policies.shadow.sides import Asked, claims_key
from policies.snapshot import DEFAULT_FOLDER, Snapshot

GROUPS = ("grp:staff", "grp:contractors", "grp:customers", "grp:suspended", "grp:partners",
          "grp:agents")  # fmt: skip
ISSUERS = ("idp:staff", "idp:customers", "idp:partners", "idp:agents", "idp:nobody")


@st.composite
def asked(draw: st.DrawFn, policy: Snapshot) -> Asked:
    """Any caller of any route, also such as no provider would let through."""
    vocabulary = policy.vocabulary
    some: Callable[[tuple[str, ...]], st.SearchStrategy[frozenset[str]]] = lambda words: (  # noqa: E731
        st.frozensets(st.sampled_from(words), max_size=3)
    )
    route = draw(st.sampled_from(policy.routes))
    claims = {
        "groups": draw(some(GROUPS)),
        "roles": draw(some(vocabulary.roles)),
        "task_scopes": draw(some(vocabulary.tasks)),
    }
    return Asked(
        issuer=draw(st.sampled_from(["", *ISSUERS])),
        claims=claims_key(claims),
        route=route.id,
        method=draw(st.sampled_from(route.methods)),
        task_scope=draw(st.sampled_from(["", *vocabulary.tasks])),
        audience=draw(st.sampled_from(["", "no-such-word", *vocabulary.profiles])),
        purpose=draw(st.sampled_from(["", "no-such-word", *vocabulary.purposes])),
        upstream=draw(st.sampled_from(["", "no-such-service", *policy.upstreams])),
    )


SHIPPED = read_unproven()
EDITS = {
    "contractors may come in": (
        "rules/audience.csv", "grp:contractors, employee, deny", "grp:contractors, partner, deny"),
    "staff are partners": (
        "rules/audience.csv", "idp:staff, groups, grp:staff, employee, allow",
        "idp:staff, groups, grp:staff, partner, allow"),
    "analysts only answer": (
        "rules/agents.csv", "G-ANA-1, role:analyst, answer|summarise",
        "G-ANA-1, role:analyst, answer"),
    "customers retrieve no more": (
        "rules/routes.csv", "customer|partner|employee|agent, retrieve, POST",
        "partner|employee|agent, retrieve, POST"),
}  # fmt: skip


def edited(tmp_path: Path, *edit: str) -> Reading:
    """A copy of the shipped policy, with file, old text and new text as often as wanted."""
    for part in ("rules", "models", "mappings", "cases"):
        shutil.copytree(DEFAULT_FOLDER / part, tmp_path / part)
    for file, old, new in zip(edit[::3], edit[1::3], edit[2::3], strict=True):
        path = tmp_path / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1))
    return read_unproven(tmp_path)


@given(asked(SHIPPED.snapshot))
def test_a_policy_agrees_with_itself_on_every_caller(question: Asked) -> None:
    found = Pair(SHIPPED.snapshot, SHIPPED.snapshot).caller(question)
    assert found.found == ()
    assert found.points[0][0] is Point.PLACEMENT


@pytest.fixture(scope="module", params=EDITS)
def candidate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reading:
    return edited(tmp_path_factory.mktemp("candidate"), *EDITS[request.param])


AREAS = {
    Point.PLACEMENT: {"audience", "agents"},
    Point.ROUTE: {"routes", "route"},
    Point.NARROWING: {"vocabulary", "upstream"},
    Point.PURPOSE: {"vocabulary"},
}


def listed(one: Disagreement, changes: list[Change]) -> bool:
    """Whether a diff tells a change of this kind and direction, of this placement or route."""
    wide = one.way is not Way.CLOSES
    return any(
        change.area in AREAS[one.point]
        and (change.direction is Direction.WIDENING) is wide
        and all(
            word in f"{change.name} {change.what}"
            for word in (
                [f": {one.live or 'nobody'} -> {one.candidate or 'nobody'}"]
                if one.point is Point.PLACEMENT
                else one.asked.split()
            )
        )
        for change in changes
    )


@given(st.data())
def test_whatever_two_policies_disagree_about_a_diff_lists(
    candidate: Reading, data: st.DataObject
) -> None:
    changes = [
        *placement_diff.compare(SHIPPED, candidate),
        *relation_diff.compare(SHIPPED, candidate),
        *vocabulary_diff.compare(SHIPPED, candidate),
        *binding_diff.compare(SHIPPED, candidate),
    ]
    pair = Pair(SHIPPED.snapshot, candidate.snapshot)
    for _ in range(5):
        question = data.draw(asked(SHIPPED.snapshot))
        found = pair.caller(question)
        assert found == pair.caller(question)
        for one in found.found:
            assert listed(one, changes), one
        assert {(one.point, one.profile) for one in found.found} <= set(found.points)


def of(policy: Reading, **changes: object) -> tuple[Disagreement, ...]:
    question: dict[str, object] = {
        "issuer": "idp:staff",
        "claims": claims_key({"groups": ["grp:staff"]}),
        "route": "retrieve",
        "method": "POST",
    }
    return Pair(SHIPPED.snapshot, policy.snapshot).caller(Asked(**question | changes)).found  # type: ignore[arg-type]


def test_a_caller_who_would_move_is_one_disagreement_with_both_rules(tmp_path: Path) -> None:
    """Its route and units are looked up for the audience that the live policy gave it."""
    found = of(edited(tmp_path, *EDITS["staff are partners"]))
    (one,) = found
    assert (one.point, one.way) == (Point.PLACEMENT, Way.MOVES)
    assert (one.profile, one.live, one.candidate) == ("employee", "employee", "partner")
    assert one.live_rules == one.candidate_rules
    assert len(one.live_rules) == 1


def test_a_caller_who_is_nobody_today_would_be_let_in(tmp_path: Path) -> None:
    candidate = edited(tmp_path, *EDITS["contractors may come in"])
    (one,) = of(candidate, claims=claims_key({"groups": ["grp:staff", "grp:contractors"]}))
    assert (one.point, one.way, one.profile) == (Point.PLACEMENT, Way.OPENS, "employee")


def test_a_route_that_is_closed_to_an_audience_is_named_with_its_method(tmp_path: Path) -> None:
    candidate = edited(tmp_path, *EDITS["customers retrieve no more"])
    customer = {"issuer": "idp:customers", "claims": claims_key({"groups": ["grp:customers"]})}
    (one,) = of(candidate, **customer)
    assert (one.point, one.way, one.asked) == (Point.ROUTE, Way.CLOSES, "POST retrieve")
    assert of(candidate) == ()


AGENT = {
    "issuer": "idp:agents",
    "claims": claims_key({
        "groups": ["grp:agents"], "roles": ["role:assistant", "role:auditor"],
        "task_scopes": ["audit"],
    }),
    "task_scope": "audit",
}  # fmt: skip


def test_an_agent_is_placed_in_its_profile_by_the_rules_of_both_files(tmp_path: Path) -> None:
    """A denial names the row that denies, not the audience that came before it."""
    row = "p, G-AUD-X, role:assistant, audit, all, agent:auditor, deny\n"
    (one,) = of(edited(tmp_path, "rules/agents.csv", row, ""), **AGENT)
    assert (one.point, one.way, one.profile) == (Point.PLACEMENT, Way.OPENS, "agent:auditor")
    assert one.asked == "idp:agents audit on retrieve"
    assert (one.live_rules, one.candidate_rules) == (("G-AUD-X",), ("A-AGT-1", "G-AUD-1"))


def test_a_method_that_a_route_loses_is_closed_whatever_the_rows_say(tmp_path: Path) -> None:
    candidate = edited(tmp_path, "rules/routes.yaml", "methods: [POST]", "methods: [PUT]")
    (one,) = of(candidate)
    assert (one.point, one.way, one.candidate_rules) == (Point.ROUTE, Way.CLOSES, ())


ACTING = [
    ("may_retrieve: true", "may_retrieve: false", Way.CLOSES, ""),
    ("profile: customer", "profile: partner", Way.MOVES, "partner"),
]


@pytest.mark.parametrize(("old", "new", "way", "becomes"), ACTING)
def test_a_service_that_acts_for_callers_is_compared_too(
    tmp_path: Path, old: str, new: str, way: Way, becomes: str
) -> None:
    candidate = edited(tmp_path, "rules/upstreams.yaml", old, new)
    (name,) = [
        name for name, upstream in SHIPPED.snapshot.upstreams.items()
        if upstream != candidate.snapshot.upstreams[name]
    ]  # fmt: skip
    (one,) = of(candidate, upstream=name)
    assert (one.point, one.way, one.candidate) == (Point.NARROWING, way, becomes)
    assert one.asked == f"upstream {name}"


def test_words_of_a_request_that_the_candidate_lacks_are_closed(tmp_path: Path) -> None:
    """A profile to narrow to, a purpose."""
    files = "rules/vocabulary.yaml", "rules/consent.csv"
    words = "legal_review", "legal_check"
    candidate = edited(tmp_path, files[0], *words, files[1], *words)
    (one,) = of(candidate, purpose="legal_review")
    assert (one.point, one.way, one.asked) == (Point.PURPOSE, Way.CLOSES, "legal_review")
    assert of(candidate, purpose="no-such-word") == ()
