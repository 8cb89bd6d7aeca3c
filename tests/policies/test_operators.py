"""Operators and approvers of labels: what their rows decide, and what no file decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.errors import Fault
from policies.kinds import AdminAction, Kind, LabelAuthor
from policies.review.change import Direction
from policies.review.diff import diff
from policies.review.reading import read_unproven
from policies.snapshot import Snapshot, load

REVIEWER, PIPELINE = "role:policy_reviewer", "role:policy_ci"
OPTIONAL = [Kind.ADMIN, Kind.LABELS]


def test_an_action_is_allowed_to_a_role_that_a_row_names(default: Snapshot) -> None:
    decision = default.decide_admin(frozenset({REVIEWER, "role:writer"}), AdminAction.LIVE_IDS)
    assert (decision.allowed, decision.value, decision.rules) == (True, "live_ids", ("M-REV-1",))


def test_a_deny_row_on_one_role_outweighs_the_other_roles(default: Snapshot) -> None:
    """Two roles are no way around the row that keeps pipelines from ids."""
    decision = default.decide_admin(frozenset({REVIEWER, PIPELINE}), AdminAction.LIVE_IDS)
    assert (decision.allowed, decision.reason) == (False, "denied_by_rule")
    assert decision.rules == ("M-X-CI",)


@pytest.mark.parametrize("action", AdminAction)
def test_nobody_without_a_role_is_an_operator(action: AdminAction, default: Snapshot) -> None:
    assert default.decide_admin(frozenset(), action).reason == "no_rule"


def test_a_label_is_approved_for_an_audience_by_a_role_that_did_not_write_it(
    default: Snapshot,
) -> None:
    """An agent profile counts as its audience, as it does for routes and consents."""
    owner = "role:knowledge_owner"
    allowed = default.decide_label("agent:reader", owner, LabelAuthor.OTHER)
    assert (allowed.allowed, allowed.value) == (True, "agent")
    assert not default.decide_label("agent:reader", owner, LabelAuthor.SAME).allowed
    assert not default.decide_label("customer", owner, LabelAuthor.OTHER).allowed


def test_whose_threads_an_owner_edits_is_a_verified_word(default: Snapshot) -> None:
    """Which role, says a row; which source, the token, in words that the policy gives a meaning."""
    staff = next(one for one in default.issuers if one.alias == "idp:staff")
    assert staff.aliases({"knowledge": ["handbook", "native", "*"]})["sources"] == {"native"}
    assert staff.aliases({})["sources"] == frozenset()


def test_one_more_source_of_an_owner_widens(folder: Path) -> None:
    old = read_unproven(folder)
    file = folder / "rules" / "issuers.yaml"
    text = file.read_text()
    file.write_text(text.replace("{handbook: native}", "{handbook: native, faq: faq}"))
    new = read_unproven(folder)
    assert diff(old, new).direction is Direction.WIDENING
    assert diff(new, old).direction is Direction.NARROWING


@pytest.mark.parametrize("name", ["unclaimed", "'*'", "A", "a b"])
def test_a_word_that_names_no_source_is_refused(
    name: str, folder: Path, faults: Callable[[], tuple[Fault, ...]]
) -> None:
    file = folder / "rules" / "issuers.yaml"
    file.write_text(file.read_text().replace("{handbook: native}", f"{{handbook: {name}}}"))
    assert faults()


@pytest.mark.parametrize("kind", OPTIONAL)
def test_a_policy_without_the_file_lets_nobody(kind: Kind, folder: Path) -> None:
    """Revisions from before these kinds still load, so that a diff can start from them."""
    (folder / "rules" / f"{kind}.csv").unlink()
    (folder / "models" / f"{kind}.conf").unlink()
    snapshot = load(folder)
    assert not snapshot.table.relations[kind].entries
    if kind is Kind.ADMIN:
        assert not snapshot.decide_admin(frozenset({REVIEWER}), AdminAction.LIVE_BUCKETED).allowed
    else:
        role = "role:risk_officer"
        assert not snapshot.decide_label("employee", role, LabelAuthor.OTHER).allowed
    assert snapshot.table.relations.keys() == {*Kind} - {Kind.UNITS}


@pytest.mark.parametrize("kind", OPTIONAL)
def test_writing_the_file_widens(kind: Kind, folder: Path) -> None:
    new = read_unproven(folder)
    (folder / "rules" / f"{kind}.csv").rename(folder / f"{kind}.csv")
    old = read_unproven(folder)
    assert diff(old, new).direction is Direction.WIDENING
    assert diff(new, old).direction is Direction.NARROWING


@pytest.mark.parametrize("kind", OPTIONAL)
def test_rules_without_their_model_are_refused(
    kind: Kind, folder: Path, faults: Callable[[], tuple[Fault, ...]]
) -> None:
    (folder / "models" / f"{kind}.conf").unlink()
    assert [fault.code for fault in faults()] == ["model_changed"]


@pytest.mark.parametrize("kind", OPTIONAL)
def test_an_empty_file_is_refused(
    kind: Kind, folder: Path, faults: Callable[[], tuple[Fault, ...]]
) -> None:
    """It looks like rules and holds none; leaving the file out says the same aloud."""
    (folder / "rules" / f"{kind}.csv").write_text("# nothing\n")
    assert [fault.code for fault in faults()] == ["no_rules"]
