"""The canonical form: comments kept, nothing decided otherwise, and no second change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.errors import IncongruentPolicy
from policies.kinds import SHAPES, Kind
from policies.review.format import Formatted, canonical, text, write
from policies.review.reading import Reading, read_unproven
from policies.snapshot import DEFAULT_FOLDER


def untidy(line: str, luck: random.Random) -> str:
    """The same row with words in another order and blanks where they do not matter."""
    if not line or line.startswith("#"):
        return line + " " * luck.randrange(2)
    cells = []
    for cell in line.split(","):
        words = cell.strip().split("|")
        luck.shuffle(words)
        cells.append(" " * luck.randrange(3) + "|".join(words) + " " * luck.randrange(3))
    return ",".join(cells).lstrip() + "\n" * luck.randrange(3)


@given(seed=st.integers(0, 10_000), kind=st.sampled_from([*Kind]))
def test_any_untidy_form_of_a_file_has_one_canonical_form(
    seed: int, kind: Kind, shipped: Reading
) -> None:
    luck = random.Random(seed)
    shape, domains = SHAPES[kind], shipped.parsed.domains[kind]
    before = (DEFAULT_FOLDER / shape.file).read_text()
    after = text(shape, before, domains)
    spoilt = "\n".join(untidy(line, luck) for line in before.split("\n"))
    again = text(shape, spoilt, domains)
    assert [line for line in again.split("\n") if line] == [
        line for line in after.split("\n") if line
    ]
    assert text(shape, again, domains) == again
    assert text(shape, after, domains) == after


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_formatting_changes_no_decision_and_keeps_every_comment(seed: int, folder: Path) -> None:
    """Words of a cell are a set; the compiled table is the same bit by bit."""
    luck = random.Random(seed)
    for shape in SHAPES.values():
        lines = (DEFAULT_FOLDER / shape.file).read_text().split("\n")
        (folder / shape.file).write_text("\n".join(untidy(line, luck) for line in lines))
    before = read_unproven(folder)
    comments = [line for line in lines_of(folder) if line.startswith("#")]
    write(before, canonical(before))
    after = read_unproven(folder)
    assert after.snapshot.table.units.readable == before.snapshot.table.units.readable
    assert {k: r.entries for k, r in after.snapshot.table.relations.items()} == {
        k: r.entries for k, r in before.snapshot.table.relations.items()
    }
    assert [row.id for row in after.rows] == [row.id for row in before.rows]
    kept = [line for line in lines_of(folder) if line.startswith("#")]
    assert kept == [line.rstrip(" ") for line in comments]
    assert canonical(after).files == {}


def lines_of(folder: Path) -> list[str]:
    return [line for s in SHAPES.values() for line in (folder / s.file).read_text().split("\n")]


def test_the_shipped_rules_are_canonical(shipped: Reading) -> None:
    """Run `gateway policy fmt` when this fails."""
    assert canonical(shipped).files == {}


def test_a_text_that_says_something_else_is_never_left_in_place(folder: Path) -> None:
    """Should the formatter ever be wrong, the folder stays as it was."""
    reading = read_unproven(folder)
    file = SHAPES[Kind.UNITS].file
    before = (folder / file).read_text()
    wrong = before.replace("p, U-CUS-1, customer, public,", "p, U-CUS-1, customer, partner,")
    with pytest.raises(IncongruentPolicy, match="nothing changed"):
        write(reading, Formatted({file: wrong}))
    assert (folder / file).read_text() == before
    assert canonical(reading).files == {}
