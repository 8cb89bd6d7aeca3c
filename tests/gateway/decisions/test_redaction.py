"""Masks and drops: what they name is gone, nothing else changes, and the record says so.

Provenance: issue 3 item 7; policy traps row 13.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.decisions.fields import BY_PATH, CONTAINERS, MASKED, REDACTABLE, leaves
from gateway.decisions.redaction import Redaction
from gateway.decisions.writing import values_of
from gateway.telemetry.fields import RequestRecord
from policies.snapshot import Snapshot
from tests.gateway.decisions.made import facts, finished, requests, tally

PATHS = st.lists(st.sampled_from((*REDACTABLE, *CONTAINERS)), max_size=6)


def written(record: RequestRecord) -> dict[str, Any]:
    """The record's values, but for the random id."""
    return values_of(record, sampled=1.0) | {"decision_id": "x"}


def at(values: dict[str, Any], path: str) -> list[Any]:
    """Every value that stands at a path; none when it is absent."""
    holder, _, name = path.rpartition(".")
    inside = values.get(holder, []) if holder else values
    rows = inside if isinstance(inside, list) else [inside]
    return [row[name] for row in rows if name in row]


@given(st.data())
def test_redaction_takes_what_it_names_and_leaves_the_rest(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Dropped is absent (also when masked, too), masked is a mask, all else is as it was."""
    record = data.draw(requests(snapshot))
    mask, drop, key = data.draw(PATHS), data.draw(PATHS), data.draw(st.sampled_from(["", "k"]))
    plain = written(record)
    found = Redaction(mask=mask, drop=drop, key=key).applied(written(record))
    gone = {leaf for path in drop for leaf in leaves(path)}
    hidden = {leaf for path in mask for leaf in leaves(path)} - gone
    for path, field in BY_PATH.items():
        values = at(found, path)
        if path in gone:
            assert values == []
        elif path in hidden:
            flat = [
                one for value in values for one in (value if isinstance(value, list) else [value])
            ]
            assert all(MASKED.fullmatch(one) for one in flat)
        elif field.path not in {"masked", "erased"}:
            assert values == at(plain, path)
    assert found["masked"] == sorted(hidden)
    assert found["erased"] == sorted(set(drop))


@given(st.data())
def test_a_keyed_hash_is_the_same_for_the_same_value_and_key_only(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """In every field, record and replica; another key gives other hashes."""
    one, two = data.draw(requests(snapshot)), data.draw(requests(snapshot))
    path = data.draw(st.sampled_from(("issuer", "audience", "request_id", "duration_us")))
    before = [at(written(record), path)[0] for record in (one, two)]
    after = [
        at(Redaction(mask=[path], key="k").applied(written(record)), path)[0]
        for record in (one, two)
    ]
    assert (before[0] == before[1]) == (after[0] == after[1])
    other = at(Redaction(mask=[path], key="K").applied(written(one)), path)[0]
    assert other != after[0]
    assume(str(before[0]))
    assert str(before[0]) not in after[0][1:] or len(str(before[0])) < 4


def test_one_value_in_two_fields_can_be_joined_by_its_hash(snapshot: Snapshot) -> None:
    redaction = Redaction(mask=["profile", "profiles"], key="k")
    found = redaction.applied(written(finished(facts(snapshot))))
    assert found["profiles"] == [found["profile"]]
    assert re.fullmatch("~[0-9a-f]{24}", found["profile"])


def test_without_a_key_a_mask_tells_not_even_how_many(snapshot: Snapshot) -> None:
    found = Redaction(mask=["claims", "rules"]).applied(written(finished(facts(snapshot))))
    assert (found["claims"], found["rules"]) == (["***"], ["***"])


def test_the_order_of_hashed_words_is_not_that_of_the_words(snapshot: Snapshot) -> None:
    """Sorted hashes: the place of a claim in its list would tell of its name."""
    redaction = Redaction(mask=["claims"], key="k")
    found = redaction.applied(written(finished(facts(snapshot))))
    assert found["claims"] == sorted(found["claims"])
    assert len(found["claims"]) == 4


def test_a_dropped_container_is_gone_as_a_whole(snapshot: Snapshot) -> None:
    made = facts(snapshot, tally=tally(snapshot, [1, 2], [3]))
    found = Redaction(drop=["classes", "units"]).applied(written(finished(made)))
    assert {"classes", "units"}.isdisjoint(found)
    assert found["erased"] == ["classes", "units"]


def test_no_value_of_a_hidden_field_is_anywhere_in_the_line(snapshot: Snapshot) -> None:
    """The caller's own group, issuer and ids, masked or dropped."""
    made = finished(facts(snapshot), request_id="request-7f3")
    redaction = Redaction(mask=["claims", "request_id"], drop=["issuer", "trace_id"], key="k")
    line = json.dumps(redaction.applied(written(made)))
    for text in ("grp:agents", "request-7f3", "idp:agents", f"{0xABC:032x}"):
        assert text not in line
