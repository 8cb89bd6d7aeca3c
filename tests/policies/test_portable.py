"""A snapshot taken apart and put together decides as it did (`policies.portable`)."""

from __future__ import annotations

import itertools

import pytest

from policies.faults import Faults
from policies.files import PolicyFiles, digest_of
from policies.loader import parse_files
from policies.portable import Assembly, parts_of
from policies.snapshot import Snapshot, compiled
from policies.vocabulary import CONSENTS
from tests import large_policy

PART_BYTES_MAX = 80_000
"""A part is received between two requests: what it holds takes some tenths of a millisecond."""


def rebuilt(snapshot: Snapshot) -> Snapshot:
    assembly = Assembly()
    for part in parts_of(snapshot):
        assembly.add(part)
    return assembly.whole()


def test_a_snapshot_decides_the_same_after_the_journey(snapshot: Snapshot) -> None:
    """Every grant, every entry of every small kind, every row and why each state is readable."""
    whole = rebuilt(snapshot)
    assert whole.digest == snapshot.digest
    assert whole.vocabulary == snapshot.vocabulary
    assert list(whole.vocabulary.classes) == list(snapshot.vocabulary.classes)
    for name in ("issuers", "routes", "upstreams", "trusted_peers", "mappings"):
        assert getattr(whole, name) == getattr(snapshot, name)
    for profile in snapshot.vocabulary.profiles:
        assert whole.grant([profile]) == snapshot.grant([profile])
    for kind, relation in snapshot.table.relations.items():
        assert whole.table.relations[kind].entries == relation.entries
        assert tuple(whole.table.relations[kind].rows) == tuple(relation.rows)
    units, before = whole.table.units, snapshot.table.units
    assert tuple(units.rows) == tuple(before.rows)
    assert dict(units.boxes) == dict(before.boxes)
    assert (units.rows[0], len(units.boxes)) == (before.rows[0], len(before.boxes))
    for profile, consent in itertools.product(snapshot.vocabulary.profiles, CONSENTS):
        for class_id in range(-1, before.class_count, 97):
            found = units.rules(profile, class_id, consent)
            assert found == before.rules(profile, class_id, consent)


def test_a_retired_value_stays_retired() -> None:
    files = large_policy.contents(profiles=10, rules=60)
    text = files["rules/vocabulary.yaml"].decode()
    files["rules/vocabulary.yaml"] = text.replace(
        "retired: {}", "retired: {publication_state: [withdrawn]}"
    ).encode()
    for name in ("rules/units.csv",):
        kept = [line for line in files[name].decode().split("\n") if "withdrawn" not in line]
        files[name] = "\n".join(kept).encode()
    parsed = parse_files(PolicyFiles(files, digest_of(files), frozenset()), Faults())
    before = compiled(parsed)[0]
    whole = rebuilt(before)
    count = before.vocabulary.class_count
    spent = [number for number in range(count) if before.vocabulary.is_retired(number)]
    assert spent
    assert [number for number in range(count) if whole.vocabulary.is_retired(number)] == spent


def test_no_part_is_too_large_to_be_received_between_two_requests() -> None:
    files = large_policy.contents(profiles=60, rules=3_000)
    parsed = parse_files(PolicyFiles(files, digest_of(files), frozenset()), Faults())
    parts = list(parts_of(compiled(parsed)[0]))
    assert len(parts) > 60
    assert max(map(len, parts)) < PART_BYTES_MAX


def test_a_snapshot_that_lacks_a_part_is_none(snapshot: Snapshot) -> None:
    parts = list(parts_of(snapshot))
    for left_out in (1, len(parts) // 2, len(parts) - 2, len(parts) - 1):
        assembly = Assembly()
        for number, part in enumerate(parts):
            if number != left_out:
                assembly.add(part)
        with pytest.raises(ValueError, match="missing"):
            assembly.whole()
