"""Texts of the compiled policy hold the very lists that the product binds."""

from __future__ import annotations

import re

import pytest

from policies.decision import Scope
from policies.emit import postgres, qdrant, script
from policies.snapshot import Snapshot


def test_the_sql_holds_every_profiles_lists_and_leaves_the_callers_open(
    default: Snapshot,
) -> None:
    lines = script.sql(default).splitlines()
    assert lines[0] == f"-- policy {default.digest}"
    for profile, text in zip(default.vocabulary.profiles, lines[2::2], strict=True):
        grant = default.grant([profile])
        lists = [
            tuple(map(int, ids.split(","))) for ids in re.findall(r"'\{(.*?)\}'::smallint", text)
        ]
        assert lists == [grant.plain, grant.consented]
        assert set(re.findall(r"%\((\w+)\)s", text)) == {
            "scope_tenants", "scope_jurisdictions", "scope_units",
        }  # fmt: skip
        bound = postgres.predicate(Scope(grant, (), (), ()), "u").sql
        assert re.sub(r"'\{.*?\}'", "?", text) == re.sub(
            r"%\(scope_(plain|consented)\)s", "?", bound
        )
    with pytest.raises(ValueError, match="identifier"):
        script.sql(default, "u; drop")


def test_the_masks_are_those_that_activation_writes(default: Snapshot) -> None:
    statement = script.rls(default)
    found = re.findall(r"\('(\w+)', '(\w+)', '(\S+)', B'([01]+)', B'([01]+)'\)", statement)
    assert re.sub(r"  \('.*'\)", "ROW", statement) == (
        "insert into gate.profile_grant (digest, role, profile, plain, consented) values\n"
        + ",\n".join(["ROW"] * len(found))
        + ";\n"
    )
    assert found == [
        (default.digest, mask.role, mask.profile, mask.plain, mask.consented)
        for mask in postgres.masks(default.table)
    ]


def test_the_filters_are_those_of_a_caller(default: Snapshot) -> None:
    found = script.filters(default, ("acme",), ("eu",))
    for profile, form in found.items():
        assert form == qdrant.filter(Scope(default.grant([profile]), ("acme",), ("eu",), ()))
