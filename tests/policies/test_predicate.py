"""Boxes: the form for people covers exactly the set that machines enforce."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.emit import json as as_json
from policies.emit import text as as_text
from policies.predicate import boxes, cell_text
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS


def covered(snapshot: Snapshot, found: tuple[object, ...]) -> list[int]:
    """The ids in the boxes, with repetition, by looking at every state."""
    ids: list[int] = []
    for class_id, values in snapshot.vocabulary.classes:
        state = dict(zip(FACETS, values, strict=True))
        ids += [class_id for box in found if state in box]  # type: ignore[operator]
    return ids


@given(st.sets(st.integers(0, 10_799), max_size=40))
def test_boxes_are_disjoint_and_exact_for_any_set(default: Snapshot, ids: set[int]) -> None:
    found = boxes(default.vocabulary, ids)
    members: list[int] = []
    for box in found:
        inside = list(itertools.product(*box.cells.values()))
        members += [default.vocabulary.class_id(dict(zip(FACETS, v, strict=True))) for v in inside]
        assert box.size == len(inside)
    assert sorted(members) == sorted(ids)


@pytest.mark.parametrize(("profile", "count"), [("customer", 1), ("partner", 1), ("employee", 2)])
def test_the_default_audiences_are_a_box_or_two(
    profile: str, count: int, default: Snapshot
) -> None:
    """Employee needs two: design is hidden while its authority is draft."""
    plain = default.grant([profile]).plain
    found = boxes(default.vocabulary, plain)
    assert len(found) == count
    assert covered(default, found) == list(plain)


@given(st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=6, max_size=6))
def test_one_product_folds_into_one_box(default: Snapshot, cells: list[set[int]]) -> None:
    vocabulary = default.vocabulary
    words = [
        [vocabulary.facets[facet][i] for i in sorted(cell)]
        for facet, cell in zip(FACETS, cells, strict=True)
    ]
    ids = [
        vocabulary.class_id(dict(zip(FACETS, values, strict=True)))
        for values in itertools.product(*words)
    ]
    (box,) = boxes(vocabulary, ids)
    assert [list(cell) for cell in box.cells.values()] == words


def test_nothing_is_no_box(default: Snapshot) -> None:
    assert boxes(default.vocabulary, ()) == ()


def test_text_names_values_and_exceptions(default: Snapshot) -> None:
    lines = as_text.profile_lines(default, "employee")
    assert lines[0] == "employee: 984 states, 1476 with consent"
    assert lines[1] == (
        "    visibility=public|partner|employee readiness=approved|published"
        " publication_state=unpublished|published risk_class=low|standard"
        " authority=enacted|runtime kind=*-code|incident  [672]"
    )
    assert "authority=draft kind=*-design|code|incident" in lines[2]
    assert lines[3].startswith("  + visibility=public|partner|employee ")
    assert "risk_class=high" in lines[3]
    assert lines[3].endswith("  [336]  (with consent)")
    assert not any(line.endswith("(with consent)") for line in lines[:3])
    assert as_text.rule_lines(default, "U-X-WITHDRAWN") == [
        "  visibility=* readiness=* publication_state=withdrawn risk_class=* authority=* kind=*"
        "  [3600]"
    ]
    assert as_text.rule_lines(default, "U-NO-1") == ()


@pytest.mark.parametrize(
    ("cell", "live", "text"),
    [
        ("abcd", "abcd", "*"),
        ("abcd", "abcdx", "*-x"),
        ("abc", "abcx", "a|b|c"),
        ("abcdefg", "abcdefgxy", "*-x|y"),
        ("abcdef", "abcdefxy", "a|b|c|d|e|f"),
    ],
)
def test_exceptions_are_named_when_they_are_few(cell: str, live: str, text: str) -> None:
    """Under a third as many words as the cell has: then the exceptions are the shorter list."""
    assert cell_text(tuple(cell), tuple(live)) == text


def test_the_document_holds_what_is_enforced(default: Snapshot) -> None:
    document = as_json.document(default)
    assert document["digest"] == default.digest
    assert document["class_count"] == default.vocabulary.class_count
    profiles = document["profiles"]
    assert isinstance(profiles, dict)
    assert list(profiles) == list(default.vocabulary.profiles)
    for profile, entry in profiles.items():
        grant = default.grant([profile])
        assert entry["none"]["classes"] == list(grant.plain)
        assert entry["granted"]["classes"] == list(grant.consented)
        for consent, ids in (("none", grant.plain), ("granted", grant.consented)):
            folded = [
                {facet: tuple(words) for facet, words in box.items()}
                for box in entry[consent]["boxes"]
            ]
            assert folded == [dict(box.cells) for box in boxes(default.vocabulary, ids)]
        assert entry["audience"] == default.vocabulary.profiles[profile]
