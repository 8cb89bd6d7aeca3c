"""Which way an edit of a real policy goes, and what the reviewer is told of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from policies.bindings import IssuerBinding, Route, TrustedPeer, Upstream
from policies.kinds import AdminAction
from policies.mapping import IngestMapping
from policies.review import binding_diff, vocabulary_diff
from policies.review.change import Direction
from policies.review.diff import COMPARED, diff
from policies.review.diff_page import page, ranges
from policies.review.reading import Reading, read_unproven
from policies.review.writers import json as json_writer
from policies.review.writers import markdown, text
from policies.snapshot import Snapshot
from policies.vocabulary import Vocabulary

Edit = Callable[[str, str, str], None]
UNITS, AUDIENCE, AGENTS = "rules/units.csv", "rules/audience.csv", "rules/agents.csv"
ROUTES, CONSENT, ISSUERS = "rules/routes.csv", "rules/consent.csv", "rules/issuers.yaml"
ADMIN, LABELS = "rules/admin.csv", "rules/labels.csv"
PATHS, UPSTREAMS, PEERS = "rules/routes.yaml", "rules/upstreams.yaml", "rules/trusted_peers.yaml"
WORDS, MAPPING = "rules/vocabulary.yaml", "mappings/native.yaml"
WIDE, NARROW, NEUTRAL = Direction.WIDENING, Direction.NARROWING, Direction.NEUTRAL
UP_TO_KIND = "{}, {}, published, published, low|standard, enacted|runtime, law|"


@pytest.mark.parametrize(
    ("file", "old", "new", "direction", "told"),
    [
        (UNITS, UP_TO_KIND.format("customer", "public"),
         UP_TO_KIND.format("customer", "public|partner"), WIDE, "U-CUS-1 edited"),
        (UNITS, UP_TO_KIND.format("partner", "public|partner"),
         UP_TO_KIND.format("partner", "public"), NARROW, "U-PAR-1 edited"),
        (UNITS, "p, U-X-DESIGN,", "# p, U-X-DESIGN,", WIDE, "U-X-DESIGN removed"),
        (UNITS, "p, U-X-RISK,", "# p, U-X-RISK,", NEUTRAL, "changes no reach"),
        (UNITS, "# customer:", "# Customers:", NEUTRAL, "files that differ: rules/units.csv"),
        (UNITS, "p, U-CUS-2,", "p, U-CUS-9,", NEUTRAL, "changes no reach"),
        (AUDIENCE, "p, A-EMP-X,", "# p, A-EMP-X,", WIDE,
         "`groups=staff-all` and `groups=contractors`: nobody -> employee"),
        (AUDIENCE, "p, A-PAR-1,", "# p, A-PAR-1,", NARROW, "`groups=partners`: partner -> nobody"),
        (AUDIENCE, "grp:customers, customer, allow", "grp:customers, partner, allow", WIDE,
         "customer -> partner"),
        (AGENTS, "p, G-AUD-X,", "# p, G-AUD-X,", WIDE, "nobody -> agent:auditor"),
        (AGENTS, "p, G-READ-1,", "# p, G-READ-1,", WIDE, "agent:reader -> nobody"),
        (AGENTS, "p, G-DRA-1, role:engineer|role:writer", "p, G-DRA-1, role:writer", NARROW,
         "agent:drafter -> nobody"),
        (ROUTES, "R-PAR-1, partner,", "R-PAR-1, partner|customer,", WIDE,
         "+ audience=customer route=portal-partner method=GET|HEAD|POST"),
        (ROUTES, "R-ANON-1, anonymous, portal-customer, GET|HEAD",
         "R-ANON-1, anonymous, portal-customer, GET", NARROW, "- audience=anonymous"),
        (ROUTES, "p, R-X-AGENT,", "# p, R-X-AGENT,", NEUTRAL, "changes no reach"),
        (CONSENT, "role:risk_officer, 15m|1h|8h", "role:risk_officer, 15m|1h|8h|24h", WIDE,
         "ttl=24h"),
        (CONSENT, "p, C-CUS-1,", "# p, C-CUS-1,", NARROW, "- audience=customer"),
        (ADMIN, "p, M-RISK-1, role:risk_officer, live_bucketed|",
         "p, M-RISK-1, role:risk_officer, live_bucketed|live_ids|", WIDE,
         "+ role=role:risk_officer action=live_ids"),
        (ADMIN, "p, M-CI-1,", "# p, M-CI-1,", NARROW, "- role=role:policy_ci"),
        (ADMIN, "p, M-X-CI,", "# p, M-X-CI,", WIDE,
         "+ role=role:policy_ci&role:policy_reviewer action="),
        (LABELS, "customer|partner, role:risk_officer", "customer|partner, role:risk_officer|"
         "role:knowledge_owner", WIDE, "+ audience=customer|partner approver=role:knowledge_owner"),
        (LABELS, "p, L-IN-1,", "# p, L-IN-1,", NARROW, "- audience=agent|employee"),
        (LABELS, "p, L-X-SAME,", "# p, L-X-SAME,", NEUTRAL, "changes no reach"),
        (ISSUERS, "https://login.staff.example/\n", "https://login.staph.example/\n", WIDE, "url:"),
        (ISSUERS, "token_audience: https://gateway.example", "token_audience: https://x.example",
         WIDE, "token_audience:"),
        (ISSUERS, "[RS256, ES256]", "[RS256, ES256, PS256]", WIDE, "algorithms:"),
        (ISSUERS, "[RS256, ES256]", "[ES256]", NARROW, "algorithms:"),
        (ISSUERS, "staff.example/jwks", "staff.example/jwks2", WIDE, "jwks_uri:"),
        (ISSUERS, "max_age: 3600", "max_age: 7200", WIDE, "3600 -> 7200"),
        (ISSUERS, "max_age: 3600", "max_age: 600", NARROW, "3600 -> 600"),
        (ISSUERS, "staff-all: grp:staff,", "staff-all: grp:staff, temps: grp:staff,", WIDE,
         "`groups=temps`: nobody -> employee"),
        (ISSUERS, "contractors: grp:contractors", "contractor: grp:contractors", WIDE,
         "`groups=staff-all` and `groups=contractors`: nobody -> employee"),
        (ISSUERS, "values: {risk-officer: role:risk_officer,",
         "values: {intern: role:risk_officer, risk-officer: role:risk_officer,", WIDE, "`intern`"),
        (ISSUERS, "writer: role:writer, ", "", NARROW, "`writer` means nothing"),
        (ISSUERS, "draft: draft, ", "", NARROW, "`draft` means nothing"),
        (ISSUERS, "tenants: {claim: tenants}", "tenants: {claim: teams}", WIDE, "tenants:"),
        (PATHS, "    anonymous: customer\n", "", NARROW, "anonymous: customer -> (none)"),
        (PATHS, "anonymous: customer", "anonymous: employee", WIDE, "anonymous:"),
        (PATHS, "    anonymous: customer\n",
         "    anonymous: customer\n    origins: [https://a.example]\n", WIDE, "origins: (none)"),
        (PATHS, "/portal/partner/{rest...}", "/portals/partner/{rest...}", WIDE, "path:"),
        (PATHS, "upstream: partner-portal", "upstream: employee-portal", WIDE, "upstream:"),
        (PATHS, "    methods: [GET, HEAD, POST]\n    mode: opaque\n    upstream: partner-portal",
         "    methods: [GET, HEAD]\n    mode: opaque\n    upstream: partner-portal", NARROW,
         "methods:"),
        (PATHS, "    tool: scope\n", "", NARROW, "tool: scope -> (none)"),
        (PATHS, "    tool: scope\n", "    tool: unit\n", WIDE, "tool: scope -> unit"),
        (PATHS, "routes:\n", "routes:\n  new:\n    path: /new\n    methods: [GET]\n    mode: opaque"
         "\n    upstream: partner-portal\n", NEUTRAL, "added"),
        (UPSTREAMS, "may_retrieve: true", "may_retrieve: false", NARROW, "true -> false"),
        (UPSTREAMS, "profile: employee", "profile: customer", NARROW, "employee -> customer"),
        (UPSTREAMS, "profile: customer", "profile: employee", WIDE, "customer -> employee"),
        (UPSTREAMS, "tenants: caller", "tenants: [acme]", NARROW, "tenants:"),
        (UPSTREAMS, "subject: portal-customer", "subject: portal-other", WIDE, "credential:"),
        (PEERS, "{}", "{lb: {networks: [10.0.0.0/24], headers: [forwarded]}}", WIDE, "added"),
        (WORDS, "agent:auditor: agent", "agent:auditor: employee", WIDE, "is served as employee"),
        (WORDS, "risk_class: [low, standard, high]\n\n#", "risk_class: [high, standard, low]\n\n#",
         WIDE, "orders"),
        (WORDS, "role:policy_ci]", "role:policy_ci, role:new]", NEUTRAL, "role:new"),
        (WORDS, "ttls: [15m, 1h, 8h, 24h]", "ttls: [15m, 1h, 8h]", NARROW, "removed: 24h"),
        (MAPPING, "readiness: {sort: text, optional: true}", "readiness: {sort: text}", WIDE,
         "fields:"),
        (MAPPING, "inherited: [visibility, ", "inherited: [", NARROW, "inherited:"),
        (MAPPING, "name: native\n", "name: native\nrelabel: trusted\n", WIDE,
         "approval -> trusted"),
        (MAPPING, "name: native\n", "name: native\nrelabel: approval\n", NEUTRAL,
         "changes no reach"),
        (MAPPING, "# For", "# for", NEUTRAL, "changes no reach"),
    ],
)  # fmt: skip
def test_an_edit_goes_one_way_and_is_told(
    file: str, old: str, new: str, direction: Direction, told: str,
    shipped: Reading, folder: Path, edit: Edit,
) -> None:  # fmt: skip
    """Each kind of file that can open access, in the ways that a reviewer edits it."""
    edit(file, old, new)
    edited = read_unproven(folder)
    report = diff(shipped, edited)
    shown = text.write(page(report))
    assert report.direction is direction, shown
    assert told in shown.lower() if told.islower() else told in shown, shown
    assert report.files == (file,)
    if direction is NARROW and file != WORDS:
        assert diff(edited, shipped).direction is WIDE


def test_a_mapping_that_is_trusted_no_more_narrows(
    shipped: Reading, folder: Path, edit: Edit
) -> None:
    """What it widened by itself waits for an approver from then on."""
    edit(MAPPING, "name: native\n", "name: native\nrelabel: trusted\n")
    assert diff(read_unproven(folder), shipped).direction is NARROW


@pytest.mark.parametrize(
    ("gone", "direction"),
    [(", policy-ci: role:policy_ci", WIDE), ("risk-officer: role:risk_officer, ", NARROW)],
)
def test_a_role_that_is_read_no_more_widens_where_it_took_something_away(
    gone: str, direction: Direction, folder: Path, edit: Edit
) -> None:
    """A deny row on one role of a caller stops to be met when a provider's word for that role is
    dropped: no row changes, and one signer must not be enough. Found by attack."""
    last = "knowledge-owner: role:knowledge_owner"
    edit(ISSUERS, last, f"{last}, policy-ci: role:policy_ci")
    before = read_unproven(folder)
    edit(ISSUERS, gone, "")
    after = read_unproven(folder)
    both = frozenset({"role:policy_reviewer", "role:policy_ci"})
    assert not before.snapshot.decide_admin(both, AdminAction.LIVE_IDS).allowed
    assert diff(before, after).direction is direction
    assert diff(after, before).direction is WIDE


def test_the_same_folder_does_not_differ(shipped: Reading, folder: Path) -> None:
    report = diff(shipped, read_unproven(folder))
    assert report.direction is NEUTRAL
    assert (report.profiles, report.changes, report.broken, report.files) == ((), (), (), ())
    assert text.write(page(report)) == "no difference\n"


@pytest.mark.parametrize(("issuer", "direction"), [("services", NARROW), ("partners", WIDE)])
def test_an_upstream_that_goes_narrows_unless_its_service_becomes_a_caller(
    issuer: str, direction: Direction, folder: Path, edit: Edit
) -> None:
    """Its profile was a ceiling; without it, whoever audience.csv places is what it says."""
    block = (
        "  idle:\n    token_audience: urn:portal:idle\n    may_retrieve: true\n    credential: "
        f"{{issuer: idp:{issuer}, subject: idle}}\n    profile: customer\n    tenants: caller\n"
        "    facets: null\n"
    )
    edit(UPSTREAMS, "upstreams:\n", f"upstreams:\n{block}")
    before = read_unproven(folder)
    edit(UPSTREAMS, block, "")
    assert diff(before, read_unproven(folder)).direction is direction


def test_a_retired_value_narrows_and_coming_back_widens(
    shipped: Reading, folder: Path, edit: Edit
) -> None:
    edit(WORDS, "retired: {}", "retired: {kind: [other]}")
    path = folder / UNITS
    path.write_text(path.read_text().replace("|thread|other", "|thread"))
    retired = read_unproven(folder)
    assert diff(shipped, retired).direction is NARROW
    back = diff(retired, shipped)
    assert back.direction is WIDE
    assert "its labels get a class again" in text.write(page(back))


def test_a_lock_that_was_rewritten_widens(shipped: Reading, folder: Path) -> None:
    """No rule reads another state, and every stored label means another one."""
    swap = ("low, standard, high", "standard, low, high")
    words, lock = folder / WORDS, folder / "rules/classes.lock"
    words.write_text(words.read_text().replace(*swap))
    lock.write_text(lock.read_text().replace("low|standard", "standard|low"))
    report = diff(shipped, read_unproven(folder))
    assert report.direction is WIDE
    assert not report.profiles
    assert "ids that stored labels hold mean other states" in text.write(page(report))


def test_a_broken_invariant_is_told_although_the_change_removes_it(
    shipped: Reading, folder: Path, edit: Edit
) -> None:
    """The edit that hides itself: the rule and the case that forbids it, in one change."""
    edit(UNITS, "p, U-X-DRAFT, customer|partner,", "p, U-X-DRAFT, customer,")
    edit(
        UNITS,
        "U-PAR-1, partner, public|partner, published, published, low|standard, enacted|",
        "U-PAR-1, partner, public|partner, published, published, low|standard, enacted|draft|",
    )
    kept = (folder / "cases/audiences.yaml").read_text()
    lines = [line for line in kept.splitlines(keepends=True) if "authority: [draft]}" not in line]
    (folder / "cases/audiences.yaml").write_text("".join(lines))
    report = diff(shipped, read_unproven(folder))
    broken = [one for one in report.broken if "visibility=public" in " ".join(one.problems)]
    assert [one.cases for one in broken] == ["old"]
    assert broken[0].at in {
        f"cases/audiences.yaml:{number}"
        for number, line in enumerate(kept.splitlines(), 1) if "authority: [draft]" in line
    }  # fmt: skip


def test_filters_are_told_before_and_after_and_whole_in_json(
    shipped: Reading, folder: Path, edit: Edit
) -> None:
    edit(UNITS, UP_TO_KIND.format("customer", "public"),
         UP_TO_KIND.format("customer", "public|partner"))  # fmt: skip
    edited = read_unproven(folder)
    report = diff(shipped, edited)
    (customer,) = json.loads(json_writer.write(report))["profiles"]
    assert customer["after"]["classes"][0] == list(edited.snapshot.grant(["customer"]).plain)
    integers = customer["before"]["qdrant"]["must"][2]["match"]["any"]
    assert integers == list(shipped.snapshot.grant(["customer"]).plain)
    shown = markdown.write(page(report))
    assert "\n```sql\n(u.tenant = any" in shown
    assert f"scope_plain = {{{ranges(tuple(integers))}}}" in shown


def test_ranges_say_the_same_numbers() -> None:
    assert ranges((1, 2, 3, 7, 9, 10)) == "1-3, 7, 9-10"
    assert ranges(()) == ""


def test_every_part_of_a_policy_is_compared(shipped: Reading) -> None:
    """A field that somebody adds fails here, and until it has a judge it counts as widening."""
    fields = {field.name for field in dataclasses.fields(Snapshot) if field.compare}
    assert fields == COMPARED
    known = {"facets", "orders", "compartments", "retired", "profiles", "generations",
             *vocabulary_diff._LISTS}  # fmt: skip
    assert {field.name for field in dataclasses.fields(Vocabulary) if field.compare} == known
    owners = {"issuer": IssuerBinding, "route": Route, "upstream": Upstream,
              "trusted peer": TrustedPeer, "mapping": IngestMapping}  # fmt: skip
    for area, owner in owners.items():
        names = {field.name for field in dataclasses.fields(owner)}
        assert binding_diff._JUDGES[area].keys() <= names
        assert binding_diff._SILENT[area] <= names
