"""The one reference: what comes into force, and what never does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.errors import Refusal
from gateway.holder import PREPARED_MAX, SnapshotHolder
from policies.decision import PolicyDigest
from policies.snapshot import Snapshot


def under(snapshot: Snapshot, digit: str) -> Snapshot:
    """The same policy under another digest."""
    return replace(snapshot, digest=PolicyDigest(digit * 64))


def test_only_what_is_prepared_comes_into_force(snapshot: Snapshot) -> None:
    """Last good: an unknown digest changes nothing; a candidate never decides."""
    told: list[tuple[Snapshot | None, Snapshot]] = []
    holder = SnapshotHolder(snapshot)
    holder.on_advance = lambda before, now: told.append((before, now))
    new, candidate = under(snapshot, "a"), under(snapshot, "c")
    holder.candidate = candidate
    assert not holder.advance(new.digest)
    assert not holder.advance(candidate.digest)
    assert not holder.advance("")
    assert holder.current is snapshot
    holder.prepare(new)
    assert holder.prepared == {new.digest}
    assert holder.current is snapshot
    assert holder.advance(new.digest)
    assert holder.current is new
    assert holder.prepared == frozenset()
    assert holder.advance(new.digest)
    assert told == [(snapshot, new)]


def test_what_is_prepared_is_bounded_and_can_be_forgotten(snapshot: Snapshot) -> None:
    holder = SnapshotHolder(snapshot)
    made = [under(snapshot, digit) for digit in "abcd"]
    for one in made:
        holder.prepare(one)
    assert holder.prepared == {one.digest for one in made[-PREPARED_MAX:]}
    assert holder.forget(made[-1].digest) is made[-1]
    assert holder.forget(made[-1].digest) is None
    assert not holder.advance(made[-1].digest)


def test_a_holder_without_a_policy_refuses() -> None:
    holder = SnapshotHolder()
    assert not holder.ready
    with pytest.raises(Refusal, match="policy_unavailable"):
        holder.current  # noqa: B018 - the property itself is asked
