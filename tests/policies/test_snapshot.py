"""Snapshots: immutable, named by a digest over everything that can open access."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import InvalidPolicy, UnknownProfile
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load

Edit = Callable[[str, str, str], None]


def test_trap_39_loading_writes_nothing(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    load(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_trap_31_a_snapshot_cannot_change(default: Snapshot) -> None:
    """A reload builds another one; Casbin's own reload gave wrong allows under threads."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        default.digest = "0"  # type: ignore[misc,assignment]
    with pytest.raises(dataclasses.FrozenInstanceError):
        default.table.units.class_count = 0  # type: ignore[misc]


def test_the_digest_depends_on_content_alone(folder: Path, default: Snapshot) -> None:
    assert load(folder).digest == default.digest
    assert len(default.digest) == 64
    (folder / "README.md").write_text("notes")
    (folder / "rules" / ".swap").write_text("editor")
    assert load(folder).digest == default.digest


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("rules/units.csv", "# customer:", "# customers:"),
        ("rules/issuers.yaml", "max_age: 3600", "max_age: 3599"),
        ("rules/routes.yaml", "anonymous: customer", "anonymous: partner"),
        ("rules/upstreams.yaml", "may_retrieve: true", "may_retrieve: false"),
        ("rules/trusted_peers.yaml", "{}", "{lb: {networks: [10.0.0.0/24], headers: [forwarded]}}"),
        ("mappings/native.yaml", "# For", "# for"),
    ],
)
def test_every_file_that_can_open_access_changes_the_digest(
    file: str, old: str, new: str, folder: Path, edit: Edit, default: Snapshot
) -> None:
    edit(file, old, new)
    assert load(folder).digest != default.digest


def test_an_overlay_replaces_whole_files_and_is_in_the_digest(
    tmp_path: Path, default: Snapshot
) -> None:
    overlay = tmp_path / "overlay"
    (overlay / "rules").mkdir(parents=True)
    text = (DEFAULT_FOLDER / "rules/issuers.yaml").read_text()
    local = text.replace("https://login.staff.example", "http://127.0.0.1:8400")
    (overlay / "rules/issuers.yaml").write_text(local)
    snapshot = load(DEFAULT_FOLDER, overlay)
    assert snapshot.issuers[0].url == "http://127.0.0.1:8400/"
    assert snapshot.digest != default.digest

    merged = tmp_path / "merged"
    for part in ("rules", "models", "mappings"):
        shutil.copytree(DEFAULT_FOLDER / part, merged / part)
    (merged / "rules/issuers.yaml").write_text(local)
    with pytest.raises(InvalidPolicy, match="issuer url"):
        load(merged)  # a development issuer comes in by an overlay or not at all


def test_a_folder_of_links_reads_like_the_files_behind_them(
    tmp_path: Path, default: Snapshot
) -> None:
    """How orchestrators mount configuration: dot folders of data, and a link for each file."""
    for part in ("rules", "models", "mappings"):
        (tmp_path / part).mkdir()
        shutil.copytree(DEFAULT_FOLDER / part, tmp_path / part / "..2026")
        for path in (tmp_path / part / "..2026").iterdir():
            (tmp_path / part / path.name).symlink_to(path)
    assert load(tmp_path).digest == default.digest


def test_a_link_to_nowhere_is_refused(folder: Path) -> None:
    (folder / "rules/units.csv").unlink()
    (folder / "rules/units.csv").symlink_to(folder / "gone")
    with pytest.raises(InvalidPolicy, match=r"unreadable.*check its permissions"):
        load(folder)


def test_a_file_beyond_the_bound_is_refused(folder: Path) -> None:
    with (folder / "rules/units.csv").open("a") as rules:
        rules.write("# filler\n" * 460_000)
    with pytest.raises(InvalidPolicy, match="file_too_large"):
        load(folder)


def test_an_overlay_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicy, match="missing_folder"):
        load(DEFAULT_FOLDER, tmp_path / "nowhere")


def test_a_folder_that_is_not_there_is_one_fault(tmp_path: Path) -> None:
    """Not one more for each of its files, which would send a reader to mend those."""
    with pytest.raises(InvalidPolicy) as refused:
        load(tmp_path / "nowhere")
    (fault,) = refused.value.faults
    assert str(fault) == ".: missing_folder: there is no folder `nowhere`; name another"


def test_a_grant_of_several_profiles_is_their_intersection(default: Snapshot) -> None:
    profiles = list(default.vocabulary.profiles)
    for own, other in itertools.permutations(profiles, 2):
        both = default.grant([own, other])
        assert both.profile == own
        assert both.profiles == (own, other)
        single = [default.grant([own]), default.grant([other])]
        assert set(both.plain) == set(single[0].plain) & set(single[1].plain)
        assert set(both.consented) == set(single[0].consented) & set(single[1].consented)
        assert both.plain == tuple(sorted(both.plain))


def test_a_grant_holds_every_class_that_the_table_opens(default: Snapshot) -> None:
    """The first and the last id too, which the default policy opens to nobody."""
    everything = (1 << default.vocabulary.class_count) - 1
    units = dataclasses.replace(
        default.table.units, readable=dict.fromkeys(default.table.units.readable, everything)
    )
    opened = dataclasses.replace(default, table=dataclasses.replace(default.table, units=units))
    grant = opened.grant(["customer", "employee"])
    assert grant.plain == grant.consented == tuple(range(default.vocabulary.class_count))


def test_trap_44_cached_grants_do_not_take_each_others_place(default: Snapshot) -> None:
    """The key is the whole tuple, order included: the first profile is the database role."""
    one, two = default.grant(["employee", "partner"]), default.grant(["partner", "employee"])
    assert (one.profile, two.profile) == ("employee", "partner")
    assert default.grant(["employee", "partner"]) is one
    assert default.grant(["employee", "employee"]).profiles == ("employee",)


@pytest.mark.parametrize("profiles", [[], [""], ["agent"], ["Customer"], ["customer", "nobody"]])
def test_a_grant_for_an_unknown_profile_is_refused(profiles: list[str], default: Snapshot) -> None:
    with pytest.raises(UnknownProfile):
        default.grant(profiles)


def test_every_matching_rule_is_named(default: Snapshot) -> None:
    """Trap 40: Casbin explains one row; here an allow and all denies that beat it are told."""
    label = {
        "visibility": "public", "readiness": "published", "publication_state": "withdrawn",
        "risk_class": "high", "authority": "draft", "kind": "code",
    }  # fmt: skip
    class_id = default.vocabulary.class_id(label)
    found = default.table.units.rules("customer", class_id, "none")
    assert found.allows == ()
    assert found.denies == ("U-X-RISK", "U-X-WITHDRAWN", "U-X-RAW", "U-X-DRAFT")
    assert default.table.units.rules("customer", -1, "granted").allows == ()


_PARTS: Final = (
    "v1",
    "portal",
    "units",
    "scope",
    "customer",
    "partner",
    "retrieve",
    "threads",
    "x",
)


@given(st.lists(st.sampled_from((*_PARTS, "")), max_size=4))
def test_the_routes_a_path_can_be_on_are_those_that_match_it(
    default: Snapshot, parts: list[str]
) -> None:
    """What `routes_for` leaves out matches nothing, so that no route is lost or won by it."""
    snapshot = default
    path = "/" + "/".join(parts)
    matching = [route for route in snapshot.routes if route.match(path) is not None]
    for _ in range(2):  # the second time from memory
        among = snapshot.routes_for(tuple(parts))
        assert [route for route in among if route.match(path) is not None] == matching


def test_what_is_remembered_is_what_would_be_decided_anew(default: Snapshot) -> None:
    """Every issuer with every claim, every audience on every route, twice over."""
    words = {"groups": ("staff-all", "contractors", "partners", "suspended", "customers", "agents")}
    names = [f"grp:{one}" for one in words["groups"]]
    for issuer, group, other in itertools.product(
        [one.alias for one in default.issuers], names, names
    ):
        claims = {"groups": frozenset({group, other})}
        fresh = dataclasses.replace(default).place(issuer, claims)
        assert default.place(issuer, claims) == default.place(issuer, claims) == fresh
    audiences = (*default.vocabulary.profiles, "anonymous", "nobody")
    for audience, route in itertools.product(audiences, default.routes):
        for method in ("GET", "HEAD", "POST", "DELETE"):
            fresh = dataclasses.replace(default).decide_route(audience, route.id, method)
            asked = [default.decide_route(audience, route.id, method) for _ in range(2)]
            assert asked == [fresh, fresh]
