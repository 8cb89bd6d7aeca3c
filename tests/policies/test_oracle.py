"""Casbin, held to one shape: what the oracle accepts, and which distribution it may be."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import congruence
from policies.decision import Effect
from policies.errors import Fault, IncongruentPolicy
from policies.faults import Place
from policies.kinds import MODEL_SHA256, SHAPES, Kind
from policies.loader import parse
from policies.oracle import Oracle, check_distribution, meets
from policies.rows import Row
from policies.snapshot import DEFAULT_FOLDER, compiled
from policies.table import Relation, Verdict, relation

Refused = Callable[[], tuple[Fault, ...]]
words = st.sets(st.sampled_from(["a", "b", "ab", "public", "pub"]), max_size=4)


def row(rule_id: str, *cells: str, effect: Effect = Effect.ALLOW) -> Row:
    return Row(rule_id, tuple(frozenset(c.split("|")) for c in cells), effect, Place("t"))


@given(words, words)
def test_meets_is_set_intersection(request_words: set[str], cell: set[str]) -> None:
    """Trap 27: Casbin's `in` on text is a substring test, and the empty text is in anything."""
    assert meets("|".join(request_words), "|".join(cell)) is bool(request_words & cell)


@pytest.mark.parametrize(
    ("request_word", "cell"), [("", "a"), ("", ""), ("pub", "public"), ("|", "a|")]
)
def test_meets_never_takes_a_part_or_nothing_for_a_word(request_word: str, cell: str) -> None:
    assert meets(request_word, cell) is False


def test_the_fixed_models_are_those_that_were_proven(folder: Path) -> None:
    for kind, shape in SHAPES.items():
        assert hashlib.sha256(shape.model_text.encode()).hexdigest() == MODEL_SHA256[kind]
        assert (folder / shape.model_file).read_text() == shape.model_text


def test_trap_38_rows_that_casbin_did_not_take_are_noticed() -> None:
    twins = [row("C-1", "customer", "audit", "role:x", "1h")] * 2
    with pytest.raises(IncongruentPolicy, match="1 of 2 rows"):
        Oracle(SHAPES[Kind.CONSENT], twins)


def test_trap_42_verdicts_leave_no_raw_values_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    oracle = Oracle(SHAPES[Kind.CONSENT], [row("C-1", "customer", "audit", "role:x", "1h")])
    assert oracle.allows("customer", "audit", "role:x", "1h") is True
    assert oracle.allows("secret-name", "audit", "role:x", "1h") is False
    assert "secret-name" not in caplog.text


def test_deny_beats_allow_whatever_the_order() -> None:
    allow = row("C-1", "customer|partner", "audit", "role:x", "1h")
    deny = row("C-2", "partner", "audit|incident", "role:x", "1h", effect=Effect.DENY)
    for rows in ([allow, deny], [deny, allow]):
        oracle = Oracle(SHAPES[Kind.CONSENT], rows)
        assert oracle.allows("customer", "audit", "role:x", "1h") is True
        assert oracle.allows("partner", "audit", "role:x", "1h") is False


@pytest.mark.parametrize("name", ["casbin", "asynccasbin", "Casbin"])
def test_an_older_distribution_beside_ours_is_refused(name: str, tmp_path: Path) -> None:
    """Both install the same folder and no tool reports it; a metadata folder is what shows."""
    info = tmp_path / f"{name}-1.43.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.43.0\n")
    code = "import sys; from policies.__main__ import main; sys.exit(main(['show', 'customer']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{DEFAULT_FOLDER.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "is installed beside `pycasbin`" in done.stderr


def test_our_own_environment_has_the_right_distribution() -> None:
    check_distribution()


@pytest.mark.parametrize("kind", list(Kind))
def test_every_foreign_model_is_refused_aloud(
    kind: Kind, shared_data: Path, folder: Path, faults: Refused
) -> None:
    """Casbin's own example models: other shapes are not compiled, and never in silence."""
    with (shared_data / "casbin" / "sets.jsonl").open() as lines:
        models = [json.loads(line)["model"] for line in lines]
    assert len(models) == 34
    for model in models[kind_position(kind) :: len(Kind)]:
        (folder / SHAPES[kind].model_file).write_text(model)
        assert "model_changed" in {fault.code for fault in faults()}


def kind_position(kind: Kind) -> int:
    return list(Kind).index(kind)


def test_casbins_own_decisions_are_ours_where_our_shape_can_say_them(shared_data: Path) -> None:
    """Real policies with three equality columns and allow rows, asserted by Casbin's own tests."""
    shape = replace(SHAPES[Kind.ROUTES], columns=("sub", "obj", "act"))
    plain = re.compile(r"m = r\.sub == p\.sub && r\.obj == p\.obj && r\.act == p\.act\s*\Z")
    tables: dict[str, Relation] = {}
    with (shared_data / "casbin" / "sets.jsonl").open() as lines:
        for found in map(json.loads, lines):
            cells = [line.split(", ") for line in found["policy"].split("\n") if line.strip()]
            ours = all(cell[0] == "p" and len(cell) == 4 for cell in cells) and cells
            if ours and plain.search(found["model"]) and "deny" not in found["model"]:
                rows = [row(f"R-{n}", *cell[1:]) for n, cell in enumerate(cells)]
                tables[found["set"]] = relation(shape, rows)
    checked = 0
    with (shared_data / "casbin" / "cases.jsonl").open() as lines:
        for case in map(json.loads, lines):
            if case["set"] in tables:
                request = [frozenset({word}) for word in case["request"]]
                assert tables[case["set"]].verdict(*request).allowed is case["expected"]
                checked += 1
    assert checked >= 20


def test_a_table_that_differs_from_casbin_is_never_served() -> None:
    """The check is shown to bite: one class added to, and one taken from, one profile."""
    parsed = parse(DEFAULT_FOLDER)
    snapshot, sets = compiled(parsed)
    units = snapshot.table.units
    readable = units.readable
    assert isinstance(readable, dict)
    for profile, consent in (("customer", "none"), ("agent:auditor", "granted")):
        good = readable[profile, consent]
        for wrong in (good | 1, good & (good - 1)):
            readable[profile, consent] = wrong
            with pytest.raises(IncongruentPolicy, match=f"disagree on {profile}, {consent}"):
                congruence.check_units(parsed.vocabulary, units, sets)
            readable[profile, consent] = good
    readable["employee", "none"] |= 1 << parsed.vocabulary.class_count
    with pytest.raises(IncongruentPolicy, match="no label can have"):
        congruence.check_units(parsed.vocabulary, units, sets)
    readable["employee", "none"] ^= 1 << parsed.vocabulary.class_count
    assert congruence.check_units(parsed.vocabulary, units, sets) > 500


def test_a_small_table_that_differs_from_casbin_is_never_served() -> None:
    """One forgotten deny, one forgotten allow, one allow too many, in each small kind."""
    parsed = parse(DEFAULT_FOLDER)
    for kind, good in compiled(parsed)[0].table.relations.items():
        denied = [key for key, verdict in good.entries.items() if verdict.denies]
        allowed = [key for key, verdict in good.entries.items() if verdict.allowed]
        changes = {key: Verdict(("R-1",), ()) for key in denied[:1]} | {
            key: Verdict((), ()) for key in allowed[:1]
        }
        for key, verdict in changes.items():
            spoilt = replace(good, entries={**good.entries, key: verdict})
            with pytest.raises(IncongruentPolicy, match=f"disagree on {kind}"):
                congruence.check_relation(spoilt, parsed.domains[kind])
        assert congruence.check_relation(good, parsed.domains[kind]) > 10


def test_a_cell_that_casbin_reads_in_another_way_is_never_served() -> None:
    """A row dropped from a question is one that Casbin itself says cannot match."""
    rows = [
        Row("R-1", (frozenset({"r1"}), frozenset({"t1"}), frozenset({"u1"}), frozenset({"p1|p2"})),
            Effect.DENY, Place("t")),
    ]  # fmt: skip
    domains = (["r1", "r2"], ["t1"], ["u1"], ["p1", "p1|p2"])
    with pytest.raises(IncongruentPolicy, match="R-1 in another way"):
        congruence.check_cells(SHAPES[Kind.AGENTS], rows, domains)
