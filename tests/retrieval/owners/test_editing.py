"""What an owner may change of a thread, and what every change leaves behind.

Provenance: issue 5, "What to build" 9.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from psycopg import errors

from retrieval.ingest.identity import thread_id, unit_id
from retrieval.owners.errors import OwnersRefused, Why
from retrieval.stores.roles import CURATE, INGEST, dsn_for
from tests.retrieval.ingest.bench import thread
from tests.retrieval.owners.desk import LABEL, OPEN, STAFF, Desk, new


def member(unit: str = "u/1", **more: Any) -> dict[str, Any]:
    return {"do": "add_member", "unit": unit, **more}


def refusal(desk: Desk, *changes: Any, **options: Any) -> OwnersRefused:
    with pytest.raises(OwnersRefused) as caught:
        desk.edit(*changes, **options)
    return caught.value


def test_a_thread_is_made_filled_and_shown(desk: Desk) -> None:
    """Everything that belongs to it, in one edit and one revision."""
    made = desk.edit(
        new(aliases=["Money back"], description="All about refunds"),
        member(),
        member("u/2", role="supporting", confidence=0.5, status="needs_human"),
        {"do": "expect", "title": "A runbook", "lifecycle_stage": "report", "label": LABEL},
        {"do": "add_term", "term": "refund"},
        {"do": "add_edge", "source": "u/1", "target": "v/1", "relation": "mentions"},
    )
    assert (made.revision, made.changed, made.waiting) == (1, True, ())
    shown = desk.owners.show("ours", "t/1")
    assert (shown.title, shown.aliases, shown.label) == ("Refunds", ("Money back",), OPEN)
    assert [(m.unit, m.role, m.status) for m in shown.members] == [
        ("u/1", "canonical", "active"), ("u/2", "supporting", "needs_human"),
    ]  # fmt: skip
    assert [(a.title, a.lifecycle_stage) for a in shown.artifacts] == [("A runbook", "report")]
    assert [(t.term, t.aliases) for t in shown.terms] == [("refund", ("RFD", "money back"))]
    assert [(e.source, e.relation, e.target) for e in shown.edges] == [("u/1", "mentions", "v/1")]
    assert desk.class_of("thread", "t/1") == desk.snapshot.vocabulary.class_id(OPEN)
    assert desk.all("select from brain.thread_term where thread_id = %s", thread_id("t/1"))


def test_what_was_added_can_be_dropped_and_comes_back(desk: Desk) -> None:
    added = (
        member(),
        {"do": "expect", "title": "A runbook", "lifecycle_stage": "report", "label": LABEL},
        {"do": "add_term", "term": "refund"},
        {"do": "add_edge", "source": "u/1", "target": "v/1", "relation": "mentions"},
    )
    desk.edit(new(), *added)
    before = desk.owners.show("ours", "t/1")
    gone = desk.edit(
        {"do": "drop_edge", "source": "u/1", "target": "v/1", "relation": "mentions"},
        {"do": "drop_term", "term": "refund"},
        {"do": "unexpect", "title": "A runbook", "lifecycle_stage": "report"},
        {"do": "drop_member", "unit": "u/1"},
        expected=1,
    )
    shown = desk.owners.show("ours", "t/1")
    assert (gone.revision, shown.members, shown.artifacts, shown.terms, shown.edges) == (
        2, (), (), (), (),
    )  # fmt: skip
    desk.edit(*added, expected=2)
    assert desk.owners.show("ours", "t/1").model_dump(exclude={"revision"}) == before.model_dump(
        exclude={"revision"}
    )


def test_a_buried_thread_is_brought_back_by_saying_it_again(desk: Desk) -> None:
    desk.edit(new())
    desk.edit({"do": "bury"}, expected=1)
    assert desk.owners.show("ours", "t/1").buried
    desk.edit({"do": "set", "title": "Refunds"}, expected=2)
    assert not desk.owners.show("ours", "t/1").buried


def test_history_tells_who_changed_what_when_and_why(desk: Desk) -> None:
    desk.edit(new(), author="ann", reason="first draft")
    desk.edit(
        {"do": "set", "title": "Refunds and returns"}, member(), expected=1, author="ben",
        reason="asked by support",
    )  # fmt: skip
    second, first = desk.owners.history("ours", "t/1").revisions
    assert [(r.revision, r.author, r.reason) for r in (first, second)] == [
        (1, "ann", "first draft"), (2, "ben", "asked by support"),
    ]  # fmt: skip
    said, joined = second.changes
    assert (said.what, said.before["title"], said.after["title"]) == (  # type: ignore[index]
        "thread", "Refunds", "Refunds and returns",
    )  # fmt: skip
    assert (joined.what, joined.key, joined.before) == ("member", {"unit": "u/1"}, None)
    assert (joined.after or {})["role"] == "canonical"
    assert first.made_at < second.made_at


def test_history_is_told_page_by_page(desk: Desk) -> None:
    desk.edit(new())
    for number in range(1, 5):
        desk.edit({"do": "set", "title": f"T{number}"}, expected=number)
    page = desk.owners.history("ours", "t/1", limit=2)
    assert ([r.revision for r in page.revisions], page.before) == ([5, 4], 4)
    rest = desk.owners.history("ours", "t/1", before=4, limit=10)
    assert ([r.revision for r in rest.revisions], rest.before) == ([3, 2, 1], None)


def test_a_source_s_own_record_is_a_revision_like_an_owner_s_edit(desk: Desk) -> None:
    """Otherwise an editor would overwrite what ingest said in between."""
    desk.edit(new())
    desk.run([thread("t/1", title="From the source")], origin="ours", author="carol")
    page = desk.owners.history("ours", "t/1")
    assert [(r.revision, r.author) for r in page.revisions] == [(2, "carol"), (1, "ann")]
    assert page.revisions[0].reason == "ingest of s.jsonl"
    assert refusal(desk, {"do": "set", "title": "X"}, expected=1).why is Why.CONFLICT
    desk.run([thread("t/1", title="From the source")], origin="ours", author="carol")
    assert len(desk.owners.history("ours", "t/1").revisions) == 2


def test_an_edit_that_says_nothing_new_makes_no_revision(desk: Desk) -> None:
    desk.edit(new(), member())
    again = desk.edit({"do": "set", "title": "Refunds"}, member(), expected=1)
    assert (again.revision, again.changed) == (1, False)


def test_of_two_edits_of_one_revision_the_later_is_refused(desk: Desk) -> None:
    desk.edit(new())
    desk.edit({"do": "set", "title": "Mine"}, expected=1)
    refused = refusal(desk, {"do": "set", "title": "Also mine"}, expected=1)
    assert (refused.why, refused.reason) == (Why.CONFLICT, "the thread is at revision 2, not 1")
    assert desk.owners.show("ours", "t/1").title == "Mine"


def at_once(desk: Desk, expected: int) -> list[str]:
    """How four editors of one revision fare who all send at the same moment."""
    ready = threading.Barrier(4)
    outcomes: list[str] = []

    def go(number: int) -> None:
        ready.wait(20)
        try:
            desk.edit(new(f"T{expected}.{number}"), expected=expected)
            outcomes.append("made")
        except OwnersRefused as refused:
            outcomes.append(refused.why)

    editors = [threading.Thread(target=go, args=(n,)) for n in range(4)]
    for editor in editors:
        editor.start()
    for editor in editors:
        editor.join(60)
    return sorted(outcomes)


def test_two_editors_at_once_make_one_revision(desk: Desk) -> None:
    """Also when both make the thread: there is nothing to hold on to yet."""
    for expected in (0, 1):
        assert at_once(desk, expected) == ["made", *[Why.CONFLICT] * 3]
        assert desk.owners.show("ours", "t/1").revision == expected + 1


def test_an_edit_is_made_whole_or_not_at_all(desk: Desk) -> None:
    desk.edit(new())
    refused = refusal(
        desk, {"do": "set", "title": "Half"}, member(), member("u/absent"), expected=1
    )
    assert refused.why is Why.BAD_EDIT
    assert "change 3" in refused.reason
    shown = desk.owners.show("ours", "t/1")
    assert (shown.title, shown.members, shown.revision) == ("Refunds", (), 1)


BAD = {
    "no title": {"do": "set", "label": OPEN},
    "no label": {"do": "set", "title": "T"},
    "half a label": {"do": "set", "title": "T", "label": {**OPEN, "risk_class": None}},
    "a word that is not ours": {"do": "set", "title": "T", "label": {**OPEN, "visibility": "all"}},
    "a thread that is none": {"do": "set", "title": "T", "label": {**OPEN, "kind": "faq"}},
    "no compartment": {"do": "set", "title": "T", "label": {**OPEN, "tenant": "A B"}},
    "not begun by itself": {"do": "add_member", "unit": "u/1"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_thread_without_a_good_label_is_not_made(desk: Desk, name: str) -> None:
    """Nothing is coerced, nothing is put into quarantine: the owner is told."""
    assert refusal(desk, BAD[name]).why is Why.BAD_EDIT
    assert desk.owners.threads("ours").threads == ()
    assert desk.all("select from brain.quarantine where sort = 'thread'") == []


STRANGE = {
    "a foreign unit": member("v/1"),
    "an edge from elsewhere": {
        "do": "add_edge", "source": "u/2", "target": "u/1", "relation": "mentions"},
    "an absent end": {
        "do": "add_edge", "source": "u/1", "target": "absent", "relation": "mentions"},
    "a term of nobody": {"do": "add_term", "term": "absent"},
    "an absent link": {"do": "drop_member", "unit": "u/2"},
    "an absent artifact": {"do": "unexpect", "title": "X", "lifecycle_stage": "law"},
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_not_there_or_not_one_s_own_is_refused(desk: Desk, name: str) -> None:
    desk.edit(new(), member())
    assert refusal(desk, STRANGE[name], expected=1).why is Why.BAD_EDIT
    assert desk.owners.show("ours", "t/1").revision == 1


def test_a_unit_of_another_source_is_like_none(desk: Desk) -> None:
    """As a member and at the near end of an edge: the very same refusal."""
    desk.edit(new(), member())
    for sort in ("add_member", "add_edge"):
        told = set()
        for unit in ("v/1", "v/absent"):
            edge = {"do": sort, "source": unit, "target": "u/1", "relation": "mentions"}
            change = member(unit) if sort == "add_member" else edge
            told.add(str(refusal(desk, change, expected=1)).replace(unit, "X"))
        assert len(told) == 1


def test_a_thread_of_another_source_is_like_none(desk: Desk) -> None:
    """Shown, told, listed or edited: the very same refusal; only its address cannot be taken."""
    desk.edit(new(), source="theirs")
    told = []
    for address in ("t/1", "t/absent"):
        for ask in (desk.owners.show, desk.owners.history):
            with pytest.raises(OwnersRefused) as caught:
                ask("ours", address)
            told.append(str(caught.value).replace(address, "X"))
        edit = refusal(desk, {"do": "bury"}, thread=address, expected=1)
        told.append(str(edit).replace(address, "X"))
    assert len(set(told)) == 1
    assert desk.owners.threads("ours").threads == ()
    assert "another source" in refusal(desk, new()).reason


def test_the_list_is_told_page_by_page(desk: Desk) -> None:
    for number in range(3):
        desk.edit(new(), thread=f"t/{number}")
    page = desk.owners.threads("ours", limit=2)
    assert ([one.thread for one in page.threads], page.after) == (["t/0", "t/1"], "t/1")
    page = desk.owners.threads("ours", after="t/1", limit=2)
    assert ([one.thread for one in page.threads], page.after) == (["t/2"], None)


# --- labels ---------------------------------------------------------------------------------


def test_a_wider_label_waits_and_what_is_said_beside_it_takes_effect(desk: Desk) -> None:
    """As with ingest: the class stays, a wish waits for somebody else, the units below with it."""
    desk.edit(new(label=STAFF), member("u/2"))
    staff = desk.class_of("thread", "t/1"), desk.class_of("unit", "u/2")
    edited = desk.edit(
        {"do": "set", "title": "For all", "label": {"visibility": "public"}}, expected=1
    )
    assert [(w.sort, w.object_id, w.closed) for w in edited.waiting] == [
        ("thread", thread_id("t/1"), False)
    ]
    assert {"customer", "partner"} <= set(edited.waiting[0].opens_to)
    assert (desk.class_of("thread", "t/1"), desk.class_of("unit", "u/2")) == staff
    shown = desk.owners.show("ours", "t/1")
    assert (shown.title, shown.label["visibility"]) == ("For all", "employee")
    assert (shown.wished or {})["visibility"] == "public"
    assert desk.one("select author from gate.label_change where state = 'pending'") == ("ann",)


def test_saying_something_else_keeps_a_wish_that_waits(desk: Desk) -> None:
    desk.edit(new(label=STAFF))
    desk.edit({"do": "set", "label": {"visibility": "public"}}, expected=1)
    desk.edit({"do": "set", "title": "Another"}, expected=2)
    states = desk.all("select state, to_label[1] from gate.label_change")
    assert states == [("pending", "public")]


def test_a_narrower_label_takes_effect_at_once(desk: Desk) -> None:
    desk.edit(new(), member("u/2"))
    desk.edit({"do": "set", "label": {"visibility": "restricted"}}, expected=1)
    secret = desk.snapshot.vocabulary.class_id({**LABEL, "visibility": "restricted"})
    assert desk.class_of("unit", "u/2") == secret


def test_a_member_that_would_open_waits(desk: Desk) -> None:
    """A second thread takes a blank's contradiction away, or the strict one leaves: both open."""
    desk.edit(new(label=STAFF), member("u/2"), thread="t/staff")
    desk.edit(new(), member("u/2"), thread="t/open")
    staff = desk.class_of("unit", "u/2")
    edited = desk.edit({"do": "drop_member", "unit": "u/2"}, thread="t/staff", expected=1)
    assert [(w.sort, w.object_id) for w in edited.waiting] == [("unit", unit_id("u/2"))]
    assert desk.class_of("unit", "u/2") == staff


# --- the policy, the store, the login ---------------------------------------------------------


def test_nobody_edits_under_a_policy_that_is_not_in_force(desk: Desk) -> None:
    desk.all("update gate.active_revision set digest = 'another' returning 1")
    assert refusal(desk, new()).why is Why.POLICY_CHANGED


def test_an_edit_without_author_or_reason_is_refused(desk: Desk) -> None:
    assert refusal(desk, new(), author=" ").why is Why.BAD_EDIT
    assert refusal(desk, new(), reason="").why is Why.BAD_EDIT


@pytest.mark.parametrize("source", ["", "unclaimed", "A", "a b"])
def test_a_name_that_no_source_can_have_is_refused(desk: Desk, source: str) -> None:
    assert refusal(desk, new(), source=source).why is Why.BAD_EDIT


def test_a_store_that_is_down_is_said(desk: Desk) -> None:
    gone = type(desk.owners)("host=127.0.0.1 port=1 user=x", desk.snapshot.vocabulary, "")
    with pytest.raises(OwnersRefused) as caught:
        gone.threads("ours")
    assert caught.value.why is Why.STORE_UNAVAILABLE


ATTEMPTS = (
    "select title from brain.unit",
    "select from brain.unit_revision",
    "update brain.unit set title = 'x'",
    "insert into brain.thread_revision (thread_id, revision, origin, author, reason, changes)"
    " select id, 9, 'ours', 'x', 'x', '[]' from brain.thread",
    "update brain.thread_revision set author = 'x'",
    "delete from brain.thread_revision",
    "update brain.thread_partial set unit_count = 0",
    "update brain.thread set origin = 'theirs'",
    "update brain.thread set canonical_address = 'x'",
    "select brain.add_revisions('thread', '{}', '{}')",
    "update gate.active_revision set digest = 'x'",
)


def test_the_owners_login_can_do_nothing_else(desk: Desk) -> None:
    """It writes no unit and no history, reads no text, and leaves other sources alone."""
    desk.edit(new(), member())
    desk.edit(new(), thread="t/2", source="theirs")
    dsn = dsn_for(CURATE, desk.database.url, desk.database.secret)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select set_config('gw.origin', 'ours', false)")
        for statement in ATTEMPTS:
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        with pytest.raises(errors.InsufficientPrivilege, match="another source"):
            connection.execute("update brain.thread set title = 'x' where origin = 'theirs'")
        mine = connection.execute("select distinct origin from brain.thread_revision").fetchall()
    assert mine == [("ours",)]


def test_history_is_not_rewritten_even_by_the_superuser(desk: Desk) -> None:
    desk.edit(new())
    for statement in (
        "update brain.thread_revision set reason = 'x'",
        "delete from brain.thread_revision",
        "truncate brain.thread_revision",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            desk.all(statement)


def test_no_reader_sees_a_revision(desk: Desk) -> None:
    """History holds titles of hidden things; it is for owners alone."""
    desk.edit(new())
    dsn = dsn_for(INGEST, desk.database.url, desk.database.secret)
    for role in ("gw_reader", "gw_serve_employee", "gw_p_employee", "gw_guard", "gw_index"):
        has = "select has_any_column_privilege(%s, 'brain.thread_revision', 'select')"
        assert desk.one(has, role) == (False,)
    with psycopg.connect(dsn) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("select from brain.thread_revision")
