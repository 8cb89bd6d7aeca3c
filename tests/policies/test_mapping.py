"""Ingest mappings: a source's words become our facets, or the record waits in quarantine."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from policies.errors import InvalidPolicy
from policies.loader import parse_mapping
from policies.mapping import IngestMapping
from policies.snapshot import Snapshot

PEPS = Path(__file__).parents[1] / "data" / "peps_mapping.yaml"
NATIVE = {
    "visibility": "public",
    "readiness": "published",
    "publication_state": "published",
    "risk_class": "low",
    "authority": "enacted",
    "kind": "faq",
    "lifecycle_stage": "other",
    "tenant": "*",
    "jurisdiction": "vn",
}
PEP: dict[str, object] = {
    "status": "Final",
    "type": "Standards Track",
    "topic": [],
    "number": 8,
    "heading": "Abstract",
}


@pytest.fixture(scope="module")
def peps(default: Snapshot) -> IngestMapping:
    return parse_mapping(PEPS, default.vocabulary)


def sections(shared_data: Path) -> Iterator[tuple[dict[str, Any], dict[str, object]]]:
    """(document, record of one section) for the whole corpus."""
    with (shared_data / "peps" / "peps.jsonl").open() as lines:
        for line in lines:
            document = json.loads(line)
            for section in document["sections"]:
                yield document, {**document, "heading": section["heading"]}


def expected(document: Mapping[str, Any], heading: str, words: Mapping[str, Any]) -> dict[str, str]:
    """What status_map.json says, read here without the mapping."""
    status = {k: v for k, v in words["status"][document["status"]].items() if k != "note"}
    overlay, topics = words["visibility_overlay_for_tests"], document["topic"]
    by_type = overlay["type"][document["type"]]
    visibility = overlay["topic"].get(topics[0], by_type) if topics else by_type
    if document["number"] % 17 == 0:
        visibility = "restricted"
    risk = "low" if document["type"] == "Informational" else "standard"
    if "Governance" in topics or heading.startswith("Security"):
        risk = "high"
    return {**status, "visibility": visibility, "risk_class": risk}


def test_the_pep_mapping_says_what_its_status_map_says(
    shared_data: Path, peps: IngestMapping
) -> None:
    """All 7,373 real sections; the map lies beside the corpus and is read independently."""
    words = json.loads((shared_data / "peps" / "status_map.json").read_text())
    seen: Counter[str] = Counter()
    for document, record in sections(shared_data):
        label = peps.label(record)
        assert label.accepted, label.quarantine
        wanted = expected(document, str(record["heading"]), words)
        assert {facet: label.facets[facet] for facet in wanted} == wanted
        assert (label.tenant, label.jurisdiction) == ("*", "*")
        seen[label.facets["readiness"]] += 1
    assert seen.total() == 7_373
    assert set(seen) == {"draft", "approved", "published", "superseded", "under_review"}


def test_a_threads_label_is_its_own(peps: IngestMapping, default: Snapshot) -> None:
    label = peps.label_thread({**PEP, "heading": None})
    assert label.facets["kind"] == "thread"
    assert default.vocabulary.class_id(label.facets) >= 0
    assert peps.label(PEP).facets["kind"] == "design"
    assert peps.thread is not None
    assert (peps.thread.id, peps.thread.absorbs) == ("id", "replaces")


@pytest.mark.parametrize(
    "change",
    [
        {"status": "Obsolete"},
        {"status": "final"},
        {"status": " Final"},
        {"status": ""},
        {"status": None},
        {"status": ["Final"]},
        {"status": {"a": 1}},
        {"type": "Meta"},
        {"topic": ["Sports"]},
        {"topic": "Typing"},
        {"topic": [["Typing"]]},
        {"number": "17"},
        {"number": 17.0},
        {"number": True},
        {"heading": 3},
    ],
)
def test_an_unknown_word_is_quarantined_though_a_later_rule_would_take_it(
    change: dict[str, object], peps: IngestMapping
) -> None:
    """Mandated: unknown words are quarantined, never coerced; the label is empty then."""
    assert peps.label(PEP).accepted
    label = peps.label({**PEP, **change})
    assert not label.accepted
    assert not label.facets
    assert label.quarantine[0].startswith(next(iter(change)))


def test_a_missing_field_is_quarantined(peps: IngestMapping) -> None:
    for field in ("status", "type", "number"):
        label = peps.label({key: value for key, value in PEP.items() if key != field})
        assert f"{field}: absent" in label.quarantine


def test_a_source_with_our_own_words_needs_no_rules(default: Snapshot) -> None:
    label = default.mappings["native"].label(NATIVE)
    assert label.accepted
    assert default.vocabulary.class_id(label.facets) >= 0
    assert (label.lifecycle_stage, label.tenant, label.jurisdiction) == ("other", "*", "vn")


@pytest.mark.parametrize("field", ["visibility", "kind", "lifecycle_stage", "tenant"])
@pytest.mark.parametrize("value", ["", None, "Public", " public", ["public"], {"a": 1}, "x y", 3])
def test_our_own_words_are_taken_exactly_or_not_at_all(
    field: str, value: object, default: Snapshot
) -> None:
    """Only a facet may be left blank, for the unit's thread to fill; a wrong word never passes."""
    label = default.mappings["native"].label({**NATIVE, field: value})
    blank = value in ("", None) and field in default.vocabulary.facets
    if blank:
        assert label.accepted
        assert field not in label.facets
    elif field == "tenant" and value == "Public":
        assert label.tenant == "Public"  # compartments are open-valued
    else:
        assert not label.accepted


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("status: Accepted}", "status: Acepted}", "unknown_word"),
        ("readiness: draft,", "readiness: drft,", "unknown_word"),
        ("set: {readiness", "set: {rediness", "unknown_word"),
        ("multiple_of: 17", "multiple_of: 0", "out_of_range"),
        ("multiple_of: 17", "prefix: 17", "wrong_test"),
        ("topic: {first: Typing}", "topic: Typing", "wrong_test"),
        ("when: always", "when: {}", "empty_condition"),
        ("when: always", "when: sometimes", "unknown_word"),
        ("number: {sort: integer}", "number: {sort: integer, words: [1]}", "field_words"),
        ("heading: {sort: text", "heading: {sort: word", "field_words"),
        ("tenant: {value: '*'}", "tenant: {}", "compartment"),
        ("tenant: {value: '*'}", "tenant: {field: tenant}", "unknown_word"),
        ("tenant: {value: '*'}", 'tenant: {value: "a b"}', "malformed"),
        ("set: {kind: thread}", "set: {kind: faq}", "thread_kind"),
        (", lifecycle_stage: law", "", ""),
        ("name: peps", "name: peps\nname: other", "duplicate_key"),
    ],
)
def test_a_mapping_that_would_guess_is_refused(
    old: str, new: str, code: str, tmp_path: Path, default: Snapshot
) -> None:
    path = tmp_path / "peps.yaml"
    text = PEPS.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if not code:  # one branch leaves a target open: its records are quarantined, no others
        mapping = parse_mapping(path, default.vocabulary)
        assert not mapping.label({**PEP, "type": "Process"}).accepted
        assert mapping.label(PEP).accepted
        return
    with pytest.raises(InvalidPolicy) as caught:
        parse_mapping(path, default.vocabulary)
    assert code in {fault.code for fault in caught.value.faults}


def test_a_target_that_nothing_sets_is_refused(tmp_path: Path, default: Snapshot) -> None:
    path = tmp_path / "peps.yaml"
    lines = [line for line in PEPS.read_text().split("\n") if "risk_class" not in line]
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidPolicy, match="target_unset"):
        parse_mapping(path, default.vocabulary)


def test_first_matching_rule_wins_per_target(peps: IngestMapping) -> None:
    """17 beats the topic, the topic beats the type; order in the file is the law."""
    for number, topics in itertools.product((17, 18), (["Packaging", "Governance"], [])):
        facets = peps.label({**PEP, "number": number, "topic": topics}).facets
        if number == 17:
            assert facets["visibility"] == "restricted"
        else:
            assert facets["visibility"] == ("partner" if topics else "public")
        assert facets["risk_class"] == ("high" if topics else "standard")
