"""Every measured way in which a Casbin file says something else than its author meant.

Numbers are those of the list of pitfalls in the project's policy notes (section 3); each
was seen to grant too much or to deny silently with pycasbin 2.8.0. The loader refuses the
file, at the right place, with a remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.errors import Fault
from policies.route_file import ROUTES_MAX
from policies.snapshot import DEFAULT_FOLDER
from tests.policies.traps import CSV, FIRST, MODEL_EDITS, PATHS, ROUTES, ROWS, UNITS

Edit = Callable[[str, str, str], None]
Refused = Callable[[], tuple[Fault, ...]]


@pytest.mark.parametrize(("trap", "old", "new"), MODEL_EDITS)
def test_a_model_of_any_other_text_is_refused(
    trap: int, old: str, new: str, edit: Edit, faults: Refused
) -> None:
    """Mandated by the notes: one fixed model per kind, compared by hash."""
    edit(UNITS, old, new)
    assert [(f.file, f.code) for f in faults()] == [(UNITS, "model_changed")]


@pytest.mark.parametrize(("trap", "row", "code"), ROWS)
def test_a_row_that_casbin_would_read_differently_is_refused(
    trap: int, row: str, code: str, edit: Edit, faults: Refused
) -> None:
    """Each row replaces a good one; the fault stands on a line of it, with a remedy."""
    edit(ROUTES, FIRST, row)
    found = [fault for fault in faults() if fault.file == ROUTES]
    assert code in {fault.code for fault in found}
    assert all(fault.line > 0 and fault.remedy for fault in found)


def test_trap_7_a_byte_order_mark_is_refused(folder: Path, faults: Refused) -> None:
    path = folder / CSV
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [(f.file, f.line, f.column, f.code) for f in faults()] == [
        (CSV, 1, 1, "byte_order_mark")
    ]


def test_other_encodings_are_refused(folder: Path, faults: Refused) -> None:
    path = folder / CSV
    path.write_bytes(path.read_bytes().replace(b"# Never", b"# Ni\xe9mals", 1))
    assert [f.code for f in faults()] == ["not_utf8"]


@pytest.mark.parametrize("kind", ["audience", "agents", "routes", "units", "consent"])
def test_trap_14_an_empty_policy_is_refused(kind: str, folder: Path, faults: Refused) -> None:
    """With no rows Casbin runs its matcher once with every field empty."""
    (folder / f"rules/{kind}.csv").write_text("# nothing\n")
    assert (f"rules/{kind}.csv", "no_rules") in [(f.file, f.code) for f in faults()]


def test_a_short_row_cannot_name_more_requests_than_fit_into_memory(
    folder: Path, edit: Edit, faults: Refused
) -> None:
    """Found by attack: a thousand purposes times a thousand roles took 8 GB, from 30 KB of text."""
    roles, purposes = ([f"{prefix}{n}" for n in range(300)] for prefix in ("role:r", "purpose_"))
    edit("rules/vocabulary.yaml", "roles: [", f"roles: [{', '.join(roles)}, ")
    edit("rules/vocabulary.yaml", "purposes: [", f"purposes: [{', '.join(purposes)}, ")
    path = folder / "rules/consent.csv"
    row = "p, C-BIG-1, customer|partner|employee, {}, {}, 15m|1h|8h|24h, allow\n"
    path.write_text(path.read_text() + row.format("|".join(purposes), "|".join(roles)))
    assert [(f.file, f.code) for f in faults()] == [("rules/consent.csv", "too_many_requests")]


def test_more_routes_than_can_be_compared_are_refused(edit: Edit, faults: Refused) -> None:
    """Found by attack: 8,000 of them took longer than a build may."""
    route = "  r{0}:\n    path: /r{0}/x\n    methods: [GET]\n    mode: opaque\n    upstream: {1}\n"
    many = "".join(route.format(number, "partner-portal") for number in range(ROUTES_MAX))
    edit("rules/routes.yaml", "routes:\n", f"routes:\n{many}")
    assert "too_many_routes" in {f.code for f in faults()}


def test_trap_17_a_raw_claim_value_cannot_be_an_alias(edit: Edit, faults: Refused) -> None:
    edit("rules/issuers.yaml", "staff-all: grp:staff", "staff-all: employee")
    assert "malformed" in {f.code for f in faults() if f.file == "rules/issuers.yaml"}


@pytest.mark.parametrize("path", PATHS)
def test_trap_23_a_path_pattern_of_another_language_is_refused(
    path: str, edit: Edit, faults: Refused
) -> None:
    edit("rules/routes.yaml", "path: /v1/scope", f'path: "{path}"')
    assert ("rules/routes.yaml", "bad_path") in [(f.file, f.code) for f in faults()]


def test_trap_45_a_token_audience_cannot_be_left_out(edit: Edit, faults: Refused) -> None:
    edit("rules/issuers.yaml", "    token_audience: https://gateway.example\n", "")
    assert [(f.file, f.code) for f in faults()] == [("rules/issuers.yaml", "missing_key")]


def test_a_consent_that_closes_something_is_refused(edit: Edit, faults: Refused) -> None:
    """Decided here: consent only opens, so that one list contains the other everywhere."""
    edit(
        CSV,
        "# Never, whatever",
        "p, U-X-ODD, customer, all, all, all, low, all, faq, granted, deny\n# Never",
    )
    (fault,) = faults()
    assert (fault.file, fault.code) == (CSV, "consent_closes")
    assert fault.line > 1


def test_an_allow_row_behind_a_deny_row_is_refused(edit: Edit, faults: Refused) -> None:
    edit(
        CSV,
        "# Never, whatever",
        "p, U-ODD-1, customer, public, superseded, published, low, enacted, faq, none, allow"
        "\n# Never",
    )
    assert [(f.code, f.line) for f in faults()] == [("dead_rule", faults()[0].line)]


def test_every_fault_of_every_file_is_told_at_once(edit: Edit, faults: Refused) -> None:
    edit(CSV, "p, U-CUS-1, customer, public", "p, U-CUS-1, custmer, publik")
    edit(ROUTES, FIRST, "P, x")
    edit("rules/agents.csv", "role:assistant, answer", "role:asistant, answer")
    edit("rules/upstreams.yaml", "profile: partner", "profile: prtner")
    found = faults()
    assert {f.file for f in found} == {CSV, ROUTES, "rules/agents.csv", "rules/upstreams.yaml"}
    assert len(found) == 5
    assert list(found) == sorted(found)


@pytest.mark.parametrize("content", ["", "issuers:\n\tidp:staff: {}\n"])
def test_a_file_that_cannot_be_read_is_told_before_what_follows_from_it(
    folder: Path, faults: Refused, content: str
) -> None:
    (folder / "rules/issuers.yaml").write_text(content)
    found = faults()
    assert found[0].file == "rules/issuers.yaml"
    assert found[0].code in ("empty_file", "control_character")
    assert {f.file for f in found} > {"rules/issuers.yaml", "rules/audience.csv"}


def test_an_unknown_word_is_shown_with_place_and_nearest_known(edit: Edit, faults: Refused) -> None:
    edit(CSV, "p, U-CUS-1, customer, public,", "p, U-CUS-1, customer, publik,")
    (fault,) = faults()
    assert re.fullmatch(
        r"rules/units.csv:\d+:23: unknown_word: `publik` is not a known visibility; "
        r"the rule would never match it; did you mean `public`",
        str(fault),
    )


def test_the_second_word_of_a_cell_has_a_column_of_its_own(edit: Edit, faults: Refused) -> None:
    edit(CSV, "p, U-PAR-1, partner, public|partner,", "p, U-PAR-1, partner, public|prtner,")
    (fault,) = faults()
    assert fault.column == len("p, U-PAR-1, partner, public|") + 1


@pytest.mark.parametrize(
    "name",
    ["rules/units.csv.bak", "rules/extra.csv", "mappings/x.yml", "models/extra.conf",
     "rules/Routes.yaml", "rules/trusted_peers.json"],
)  # fmt: skip
def test_a_file_that_nobody_would_read_is_refused(name: str, folder: Path, faults: Refused) -> None:
    (folder / name).write_text("p, X\n")
    assert [(f.file, f.code) for f in faults()] == [(name, "unknown_file")]


@pytest.mark.parametrize("name", [b"\xff.yaml", b"a\nb.yaml", b"a b.yaml"])
def test_a_file_name_that_reads_in_two_ways_is_refused(
    name: bytes, folder: Path, faults: Refused
) -> None:
    """The digest and every fault carry names: a name has to be plain text itself."""
    (folder / "mappings" / os.fsdecode(name)).write_text("a: b\n")
    assert [fault.code for fault in faults()] == ["bad_file_name"]
    assert all(fault.file.isprintable() for fault in faults())


@pytest.mark.parametrize("name", ["rules/units.csv", "rules/vocabulary.yaml", "rules/classes.lock",
                                  "rules/routes.yaml", "models/units.conf"])  # fmt: skip
def test_a_missing_file_is_refused(name: str, folder: Path, faults: Refused) -> None:
    (folder / name).unlink()
    assert name in {f.file for f in faults()}


ELSEWHERE = {
    34: "test_placement.test_trap_34_unknown_callers_leave_nothing_behind",
    24: "test_bindings.test_trap_24_a_dot_is_a_dot",
    31: "test_snapshot.test_trap_31_a_snapshot_cannot_change",
    38: "test_oracle.test_trap_38_rows_that_casbin_did_not_take_are_noticed",
    39: "test_snapshot.test_trap_39_loading_writes_nothing",
    40: "test_snapshot.test_every_matching_rule_is_named",
    42: "test_oracle.test_trap_42_verdicts_leave_no_raw_values_in_the_log",
    43: "test_table_properties.test_the_unit_table_equals_casbin_on_every_state",
    44: "test_snapshot.test_trap_44_cached_grants_do_not_take_each_others_place",
}
HERE = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 26,
        27, 28, 29, 30, 36, 45, 46}  # fmt: skip
IN_THE_FILTER = {47}  # tests/congruence/test_policy_forms.py
NEVER_CALLED = {
    32: "SyncedEnforcer",
    33: "FastEnforcer",
    35: "cached_enforcer",  # speed: compiled to a table instead
    37: "enable_enforce",
    41: "load_policy",  # the editor's verdicts are never asked for; rows come from our reader
}


def test_all_47_traps_have_a_test_or_a_call_that_is_never_made() -> None:
    numbers = HERE | set(ELSEWHERE) | IN_THE_FILTER | set(NEVER_CALLED)
    assert numbers == set(range(1, 48))
    for name in ELSEWHERE.values():
        module, function = name.split(".")
        assert f"def {function}(" in (Path(__file__).parent / f"{module}.py").read_text()
    source = "".join(path.read_text() for path in DEFAULT_FOLDER.rglob("*.py"))
    for call in (
        *NEVER_CALLED.values(),
        "save_policy",
        "AsyncEnforcer",
        "keyMatch",
        "add_policies",
    ):
        assert call not in source
