"""A record is written in one form and read back as it was, or refused with its line.

Provenance: issue 3 item 7 ("stable schema"); the form is `gateway/decisions/fields.py`.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.fields import FIELDS, REDACTABLE, SCHEMA, TOP_LEVEL, WORD
from gateway.decisions.reader import InvalidRecord, read_records
from gateway.decisions.record import DecisionRecord
from gateway.decisions.redaction import Redaction
from gateway.decisions.writing import values_of
from gateway.routes.wishes import Wish
from policies.decision import Effect
from policies.snapshot import Snapshot
from tests.gateway.decisions.made import facts, finished, refused, requests, tally

ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def values(snapshot: Snapshot, **changed: Any) -> dict[str, Any]:
    return values_of(finished(facts(snapshot), **changed), sampled=1.0)


def read(tree: object) -> DecisionRecord:
    (record,) = read_records([json.dumps(tree)])
    return record


def strings(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for value in node.values() for text in strings(value)]
    if isinstance(node, list):
        return [text for value in node for text in strings(value)]
    return [node] if isinstance(node, str) else []


def test_an_allowed_request_says_who_was_placed_where_and_by_which_rules(
    snapshot: Snapshot,
) -> None:
    record = read(values(snapshot))
    assert (record.issuer, record.audience, record.profile) == (
        "idp:agents",
        "agent",
        "agent:reader",
    )
    assert record.claims == (
        "groups=grp:agents",
        "roles=role:assistant",
        "roles=role:auditor",
        "task_scopes=answer",
    )
    assert record.claim_sets["roles"] == {"role:assistant", "role:auditor"}
    assert record.rules == ("A-AGT-1", "G-READ-1", "R-RET-1")
    assert (record.effect, record.reason, record.station) == (Effect.ALLOW, "rule", "inspect")
    assert (record.duration_us, record.at) == (5_000, "2026-01-01T00:00:00.000000+00:00")
    assert record.task_scope == "answer"


def test_units_are_counted_by_class_and_consent(snapshot: Snapshot) -> None:
    """A class that the grant has was denied by something else: its compartment, or its text."""
    permitted = snapshot.grant(["agent:reader"]).plain[0]
    shown, denied = [permitted, permitted, 7], [permitted, -1]
    made = facts(snapshot, tally=tally(snapshot, shown, denied, late=2))
    record = read(values_of(finished(made), sampled=1.0))
    assert (record.units.returned, record.units.denied, record.units.stale) == (3, 2, 2)
    rows = {(one.class_id, one.consent): one for one in record.classes}
    first = rows[permitted, False]
    assert (first.allowed, first.denied, first.not_by_class) == (2, 1, 1)
    assert (rows[-1, False].denied, rows[-1, False].not_by_class) == (1, 0)


@given(st.data())
def test_every_request_reads_back_as_it_was_written(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Whatever happened, and whatever is masked or dropped: no record that its reader refuses."""
    record = data.draw(requests(snapshot))
    paths = st.lists(st.sampled_from((*REDACTABLE, "units", "classes")), max_size=5)
    redaction = Redaction(
        mask=data.draw(paths), drop=data.draw(paths), key=data.draw(st.sampled_from(["", "key"]))
    )
    line = orjson.dumps(redaction.applied(values_of(record, sampled=0.25)))
    (found,) = read_records([line])
    assert found.masked == set(redaction.masked)
    assert found.erased == set(redaction.erased)
    assert (found.sampled, found.weight, found.dropped) == (0.25, 4.0, 0)
    plain = values_of(record, sampled=0.25)
    hidden = found.masked | found.erased
    for name in ("issuer", "audience", "code", "purpose", "station", "request_id"):
        assert name in hidden or getattr(found, name) == plain[name]


@given(st.data())
def test_no_text_but_a_word_ever_stands_in_a_record(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """A caller's own words (method, wishes) are compared with the vocabulary, not copied."""
    record = data.draw(requests(snapshot))
    written = values_of(record, sampled=1.0)
    texts = strings(written)
    assert all(WORD.fullmatch(text) and text.isascii() for text in texts)
    words = snapshot.vocabulary
    assert written["purpose"] in {"", *words.purposes}
    assert written["narrowed"] in {"", *words.profiles}
    assert written["task_scope"] in {"", *words.tasks}
    assert written["method"] in {"GET", "POST", "_OTHER"} or written["method"].isupper()
    assert list(written) == list(TOP_LEVEL)


def test_a_defect_upstream_of_the_record_becomes_no_leak(snapshot: Snapshot) -> None:
    """A text with a blank, foreign letters or too long is left out, whichever field bears it."""
    given = facts(snapshot)
    for text in ("two words", "Müller", "x" * 300, 'a"b', "a\nb", "~" + "0" * 24, "***"):
        written = values_of(finished(given, audience=text), sampled=1.0)
        assert written["audience"] == ""
        assert written["profile"] == "agent:reader"


@given(name=st.sampled_from(TOP_LEVEL), value=ANY_JSON)
def test_what_is_no_record_is_refused_by_its_line_and_nothing_else(
    snapshot: Snapshot, name: str, value: object
) -> None:
    """Any one thing changed: a record of that form, or InvalidRecord. Never another error."""
    tree: dict[str, Any] = values(snapshot) | {name: value}
    refusal, found = None, None
    try:
        (found,) = read_records([json.dumps(tree)])
    except InvalidRecord as error:
        refusal = (error.line, bool(error.reason), bool(error.remedy))
    assert refusal == (1, True, True) if found is None else isinstance(found, DecisionRecord)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "3",
        '{"schema": "audience-gateway/decision/2"}',
        '{"schema": "audience-gateway/decision/1"}',
        '{"event": "request"}',
        '{"schema": "x", "schema": "audience-gateway/decision/1"}',
        "NaN",
        "[" * 100_000,
        b"\xff\xfe{}",
    ],
)
def test_a_line_of_another_form_ends_the_reading(snapshot: Snapshot, line: str | bytes) -> None:
    """Another version, a cut line, a doubled key: guesses would become findings of a replay."""
    sound = json.dumps(values(snapshot))
    with pytest.raises(InvalidRecord) as caught:
        list(read_records([sound, "", line]))
    assert caught.value.line == 3
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", FIELDS, ids=lambda one: one.path)
def test_a_field_is_missing_only_when_the_record_says_so(snapshot: Snapshot, field: Any) -> None:
    made = facts(snapshot, tally=tally(snapshot, [1]))
    tree = values_of(finished(made), sampled=1.0)
    holder, _, name = field.path.rpartition(".")
    inside = tree[holder] if holder else tree
    for one in inside if isinstance(inside, list) else [inside]:
        del one[name]
    with pytest.raises(InvalidRecord):
        read(tree)
    if "erased" in tree:
        tree["erased"] = [field.path]
        if field.fixed:
            with pytest.raises(InvalidRecord):
                read(tree)
        else:
            assert field.path in read(tree).erased


def test_the_access_log_on_the_same_stream_is_passed_over_on_request(snapshot: Snapshot) -> None:
    """Standard output carries both; a record of another version is never passed over."""
    lines = ['{"event":"request"}', json.dumps(values(snapshot)), '{"schema": 3}']
    assert len(list(read_records(lines, skip_foreign=True))) == 1
    with pytest.raises(InvalidRecord):
        list(read_records([f'{{"schema":"{SCHEMA[:-1]}9"}}'], skip_foreign=True))


def test_a_record_says_why_it_cannot_be_decided_anew(snapshot: Snapshot) -> None:
    """Masked or erased inputs, a request that ended before policy, a word that is not kept."""
    shown = facts(snapshot, tally=tally(snapshot, [3]))
    whole = read(values_of(finished(shown), sampled=1.0))
    assert whole.request_obstacles == whole.unit_obstacles == ()
    redaction = Redaction(mask=["claims"], drop=["issuer", "classes"])
    gone = read(redaction.applied(values_of(finished(shown), sampled=1.0)))
    assert gone.request_obstacles == ("masked: claims", "erased: issuer")
    assert gone.unit_obstacles[0] == "erased: classes.class_id"
    early = read(values_of(refused("bad_path"), sampled=1.0))
    assert early.request_obstacles == ("refused before policy: bad_path",)
    assert early.unit_obstacles == ("no governed unit was looked up",)
    wish = facts(snapshot, wish=Wish(task_scope="invented"), subject=None, station="identify")
    record = finished(wish, decision="deny", code="task_scope_refused")
    named = read(values_of(record, sampled=1.0))
    assert named.task_scope == ""
    assert named.request_obstacles == ("refused for a word that no record keeps",)
