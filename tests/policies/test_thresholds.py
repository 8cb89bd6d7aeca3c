"""``rules/retrieval.yaml``: read strictly, optional, and no way to open anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.errors import Fault
from policies.loader import parse
from policies.review.change import Direction
from policies.review.diff import reach
from policies.review.reading import Reading, of_parsed
from policies.snapshot import Snapshot, load
from policies.thresholds import DEFAULTS

FILE = "rules/retrieval.yaml"
Edit = Callable[[str, str, str], None]


def test_the_shipped_file_says_what_holds_without_one(folder: Path, default: Snapshot) -> None:
    """A policy from before the file had a name behaves as the shipped one."""
    assert default.thresholds == DEFAULTS
    (folder / FILE).unlink()
    assert load(folder).thresholds == DEFAULTS


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("match_percent: 40", "match_percent: 0", "out_of_range"),
        ("match_percent: 40", "match_percent: 0.4", "bad_scalar"),
        ("subjects_min: 5", "subjects_min: 1", "out_of_range"),
        ("wrong_link_days: 90", "wrong_link_days: soon", "wrong_type"),
        ("weak: [stale,", "weak: [tired,", "unknown_word"),
        ("threads_max: 3 ", "threads: 3 ", "missing_key"),
    ],
)
def test_a_threshold_that_is_none_is_refused(
    edit: Edit, faults: Callable[[], tuple[Fault, ...]], old: str, new: str, code: str
) -> None:
    """With file and code, like every other fault; nothing falls back to a default."""
    edit(FILE, old, new)
    assert code in {fault.code for fault in faults() if fault.file == FILE}


def test_a_changed_threshold_is_told_and_opens_nothing(folder: Path, edit: Edit) -> None:
    """It is under the digest, and one signer is enough for it."""
    before = of_parsed(parse(folder))
    edit(FILE, "match_percent: 40", "match_percent: 60")
    after: Reading = of_parsed(parse(folder))
    found = reach(before, after)
    assert after.snapshot.digest != before.snapshot.digest
    assert after.snapshot.thresholds.match_percent == 60
    assert [change.what for change in found.changes] == ["match_percent: 40 -> 60"]
    assert found.direction is Direction.NEUTRAL
