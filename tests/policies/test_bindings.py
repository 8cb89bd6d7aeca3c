"""Issuers, routes, upstreams and peers: what they say as values, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.bindings import CompartmentField, IssuerBinding, Route, RouteMode
from policies.decision import SHARED
from policies.errors import Fault
from policies.snapshot import Snapshot, load
from policies.vocabulary import FACETS

Edit = Callable[[str, str, str], None]
Refused = Callable[[], tuple[Fault, ...]]
ISSUERS, ROUTES = "rules/issuers.yaml", "rules/routes.yaml"
UPSTREAMS, PEERS = "rules/upstreams.yaml", "rules/trusted_peers.yaml"


def issuer(snapshot: Snapshot, alias: str) -> IssuerBinding:
    return next(binding for binding in snapshot.issuers if binding.alias == alias)


def route(snapshot: Snapshot, route_id: str) -> Route:
    found = snapshot.route(route_id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("claim", "aliases"),
    [
        (["staff-all"], {"grp:staff"}),
        ("staff-all", {"grp:staff"}),
        (["staff-all", "bowling-club"], {"grp:staff"}),
        (["grp:staff", "employee", "admin"], set()),
        (["STAFF-ALL", " staff-all"], set()),
        (["staff-all", 7], set()),
        ({"staff-all": True}, set()),
        (None, set()),
        ("", set()),
    ],
)
def test_only_listed_words_become_aliases(
    claim: object, aliases: set[str], default: Snapshot
) -> None:
    """Trap 17: a provider cannot name a group `employee` and thereby make one."""
    found = issuer(default, "idp:staff").aliases({"groups": claim})
    assert found["groups"] == aliases


def test_trap_11_a_directory_name_with_commas_can_be_aliased(folder: Path, edit: Edit) -> None:
    edit(ISSUERS, "staff-all: grp:staff", '"CN=staff,OU=x": grp:staff')
    staff = issuer(load(folder), "idp:staff")
    assert staff.aliases({"groups": ["CN=staff,OU=x"]})["groups"] == {"grp:staff"}


@pytest.mark.parametrize(
    ("claim", "tenants"),
    [
        (["acme", "beta"], ("acme", "beta")),
        ("acme", ("acme",)),
        (["*", "acme"], ("acme",)),
        (["", " acme", "a|b", "a,b", "á"], ()),
        ([["acme"]], ()),
        (None, ()),
        (7, ()),
    ],
)
def test_compartments_are_taken_as_they_are_but_never_everything(
    claim: object, tenants: tuple[str, ...], default: Snapshot
) -> None:
    """`*` belongs to units: a caller who claims it would read every tenant."""
    assert issuer(default, "idp:staff").tenants.values({"tenants": claim}) == tenants


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("[RS256, ES256]", "[HS256]", "unknown_word"),
        ("[RS256, ES256]", "[none]", "unknown_word"),
        ("[RS256, ES256]", "[]", "empty_list"),
        ("[RS256, ES256]", "RS256", "wrong_type"),
        ("url: https://login.staff.example/", "url: http://login.staff.example/", "malformed"),
        ("url: https://login.partners.example/", "url: https://login.staff.example/",
         "duplicate_issuer"),
        ('keys: {jwks_uri: "https://login.staff.example/jwks"}', "keys: {}", "keys"),
        ('keys: {jwks_uri: "https://login.staff.example/jwks"}',
         'keys: {jwks_uri: "https://x.example/j", jwks_file: a.json}', "keys"),
        ('keys: {jwks_uri: "https://login.staff.example/jwks"}', "keys: {jwks_file: a.json}",
         "missing_file"),
        ("max_age: 3600", "max_age: 0", "out_of_range"),
        ("max_age: 3600", "max_age: never", "wrong_type"),
        ("max_age: 3600", "max_age: 999999999999999999", "out_of_range"),
        ("risk-officer: role:risk_officer", "risk-officer: role:risk_offcer", "unknown_word"),
        ("tenants: {claim: tenants}", "tenants: {}", "compartment"),
        ("tenants: {claim: tenants}", 'tenants: {values: ["*"]}', "malformed"),
        ("groups:\n        claim", "gruops:\n        claim", "unknown_word"),
    ],
)  # fmt: skip
def test_an_issuer_that_would_be_believed_too_much_is_refused(
    old: str, new: str, code: str, edit: Edit, faults: Refused
) -> None:
    edit(ISSUERS, old, new)
    found = [fault for fault in faults() if fault.file == ISSUERS]
    assert code in {fault.code for fault in found}
    assert all(fault.line > 0 for fault in found)


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        ('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "abc"}]}', True),
        ('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "abc", "d": "secret"}]}', False),
        ('{"keys": [{"kty": "oct", "k": "secret"}]}', False),
        ('{"keys": []}', False),
        ("[]", False),
        ("{", False),
    ],
)
def test_a_key_file_holds_public_keys_only(
    content: str, accepted: bool, folder: Path, edit: Edit, faults: Refused
) -> None:
    edit(
        ISSUERS, 'keys: {jwks_uri: "https://login.staff.example/jwks"}', "keys: {jwks_file: a.json}"
    )
    (folder / "rules/a.json").write_text(content)
    if accepted:
        assert issuer(load(folder), "idp:staff").jwks == content
    else:
        assert [(f.file, f.code) for f in faults()] == [("rules/a.json", "bad_jwks")]


@pytest.mark.parametrize(
    ("route_id", "path", "names"),
    [
        ("retrieve", "/v1/retrieve", {}),
        ("retrieve", "/v1/retrieve/", None),
        ("retrieve", "/v1/retrieve\n", None),
        ("retrieve", "/V1/retrieve", None),
        ("retrieve", "v1/retrieve", None),
        ("pack", "/v1/threads/t-1/pack", {"reference": "t-1"}),
        ("pack", "/v1/threads//pack", None),
        ("pack", "/v1/threads/a/b/pack", None),
        ("unit", "/v1/units/PEP-0001#abstract", {"address": "PEP-0001#abstract"}),
        ("unit", "/v1/units/law/a/b#1", {"address": "law/a/b#1"}),
        ("unit", "/v1/units", None),
        ("unit", "/v1/units/", None),
        ("unit", "/v1/units/a/", None),
        ("delivery", "/v1/packs/", None),
        ("delivery", "/v1/packs/p/", None),
        ("portal-customer", "/portal/customer/", {"rest": ""}),
        ("portal-customer", "/portal/customer/x/", {"rest": "x/"}),
        ("portal-customer", "/portal/customer-secret/x", None),
        ("portal-customer", "/portal/customer", None),
    ],
)
def test_a_path_matches_whole_segments(
    route_id: str, path: str, names: dict[str, str] | None, default: Snapshot
) -> None:
    """Traps 23 to 26: anchored, segment by segment, byte for byte."""
    assert route(default, route_id).match(path) == names


def test_trap_24_a_dot_is_a_dot(folder: Path, edit: Edit) -> None:
    edit(ROUTES, "path: /v1/scope", "path: /v1.0/scope")
    scope = route(load(folder), "scope")
    assert scope.match("/v1.0/scope") == {}
    assert scope.match("/v1x0/scope") is None


@given(st.text(max_size=30))
def test_no_path_is_answered_by_two_routes(default: Snapshot, rest: str) -> None:
    for start in ("", "/v1/", "/v1/units/", "/v1/threads/", "/portal/customer/"):
        matching = [r.id for r in default.routes if r.match(start + rest) is not None]
        assert len(matching) <= 1


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("path: /v1/scope", "path: /v1/retrieve\n    x: y", "unknown_word"),
        ("path: /v1/scope\n    methods: [GET]", "path: /v1/retrieve\n    methods: [POST]",
         "route_overlap"),
        ("path: /v1/scope", "path: /v1/units/{a}", "route_overlap"),
        ("path: /v1/scope", "path: /-/authz/nginx", "own_path"),
        ("path: /v1/scope", "path: '/-/{rest...}'", "own_path"),
        ("path: /v1/scope", "path: /-", "own_path"),
        ("path: /v1/scope", "path: /.well-known/jwks.json", "own_path"),
        ("mode: guard\n    operation: scope", "mode: gaurd\n    operation: scope", "unknown_word"),
        ("operation: scope\n", "upstream: customer-portal\n", "stray_key"),
        ("upstream: partner-portal", "upstream: prtner-portal", "unknown_word"),
        ("mode: opaque\n    upstream: partner", "mode: guard_json\n    upstream: partner",
         "no_facets"),
        ("methods: [POST]", "methods: [post]", "unknown_word"),
        ("methods: [POST]", "methods: []", "empty_list"),
        ("tool: scope", "tool: scoop", "unknown_word"),
        ("  scope:\n", "  all:\n", "reserved_word"),
        ("anonymous: customer", "anonymous: everybody", "unknown_word"),
        ("tool: scope", "origins: [absent]", "stray_key"),
        ("anonymous: customer", "origins: []", "empty_list"),
        ("anonymous: customer", "origins: https://a.example", "wrong_type"),
        ("anonymous: customer", "origins: ['*']", "malformed"),
        ("anonymous: customer", "origins: ['null']", "malformed"),
        ("anonymous: customer", "origins: [https://*.a.example]", "malformed"),
        ("anonymous: customer", "origins: [https://A.example]", "malformed"),
        ("anonymous: customer", "origins: [https://a.example/]", "malformed"),
        ("anonymous: customer", "origins: ['https://a.example:443']", "malformed"),
        ("anonymous: customer", "origins: [absent, absent]", "duplicate_word"),
        ("methods: [GET, HEAD, POST]\n    mode: opaque\n    upstream: customer-portal",
         "methods: [POST]\n    mode: opaque\n    origins: [absent]\n    upstream: customer-portal",
         "stray_key"),
    ],
)  # fmt: skip
def test_a_route_that_would_answer_otherwise_is_refused(
    old: str, new: str, code: str, edit: Edit, faults: Refused
) -> None:
    edit(ROUTES, old, new)
    assert code in {fault.code for fault in faults() if fault.file == ROUTES}


@pytest.mark.parametrize(
    ("file", "old", "new", "code"),
    [
        (UPSTREAMS, "may_retrieve: true", "may_retrieve: yes", "wrong_type"),
        (UPSTREAMS, "may_retrieve: true", 'may_retrieve: "true"', "wrong_type"),
        (UPSTREAMS, "subject: portal-partner", "subject: portal-customer", "shared_credential"),
        (UPSTREAMS, "issuer: idp:services", "issuer: idp:servces", "unknown_word"),
        (UPSTREAMS, "profile: customer", "profile: agent", "unknown_word"),
        (UPSTREAMS, "tenants: caller", "tenants: all", "unknown_word"),
        (UPSTREAMS, "tenants: caller", 'tenants: ["*"]', "malformed"),
        (UPSTREAMS, "facets: null", "facets: {}", "missing_key"),
        (PEERS, "{}", "{lb: {networks: [0.0.0.0/0], headers: [forwarded]}}", "wide_network"),
        (PEERS, "{}", "{lb: {networks: [10.0.0.1/24], headers: [forwarded]}}", "bad_network"),
        (PEERS, "{}", '{lb: {networks: ["::ffff:0:0/96"], headers: [forwarded]}}', "wide_network"),
        (PEERS, "{}", "{lb: {networks: [10.0.0.0/24], headers: [x-user]}}", "unknown_word"),
    ],
)  # fmt: skip
def test_an_upstream_or_peer_with_too_much_trust_is_refused(
    file: str, old: str, new: str, code: str, edit: Edit, faults: Refused
) -> None:
    edit(file, old, new)
    assert code in {fault.code for fault in faults() if fault.file == file}


def test_socket_is_opened_by_listed_origins_only(folder: Path, edit: Edit) -> None:
    """Attack log W2: a positive list; whoever is not on it opens nothing, absence included."""
    assert not any(
        one.opens_socket(origin)
        for one in load(folder).routes
        for origin in (None, "absent", "null", "https://a.example")
    )
    edit(
        ROUTES,
        "anonymous: customer",
        "anonymous: customer\n    origins: [https://a.example, absent]",
    )
    opened = route(load(folder), "portal-customer").opens_socket
    assert opened("https://a.example")
    assert opened(None)
    for foreign in ("absent", "null", "", "https://a.example:8443", "http://a.example"):
        assert not opened(foreign)


def test_upstreams_and_peers_are_typed(folder: Path, edit: Edit) -> None:
    edit(PEERS, "{}", "{lb: {networks: [10.0.0.0/28, '::1/128'], headers: [forwarded]}}")
    edit(UPSTREAMS, "tenants: caller", "tenants: [beta, acme]")
    snapshot = load(folder)
    assert [str(n) for n in snapshot.trusted_peers[0].networks] == ["10.0.0.0/28", "::1/128"]
    upstream = snapshot.upstreams["customer-portal"]
    assert upstream.credential == ("idp:services", "portal-customer")
    assert upstream.tenants == ("acme", "beta")
    assert snapshot.upstreams["partner-portal"].tenants is None
    assert route(snapshot, "portal-partner").mode is RouteMode.OPAQUE


def test_an_upstream_that_labels_its_own_units_has_a_full_map(folder: Path, edit: Edit) -> None:
    """`guard_json`: each facet says where it stands and what each of the upstream's words means."""
    words = {
        "visibility": "{open: public, shut: internal}",
        "readiness": "{done: published}",
        "publication_state": "{out: published}",
        "risk_class": "{none: low}",
        "authority": "{yes_sir: enacted}",
        "kind": "{paper: guide}",
    }
    entries = ", ".join(f"{f}: {{field: meta_{f}, words: {w}}}" for f, w in words.items())
    entries += ', tenant: {field: owner, shared: [all]}, jurisdiction: {fixed: "*"}'
    edit(UPSTREAMS, "facets: null", f"facets: {{{entries}}}")
    edit(ROUTES, "mode: opaque", "mode: guard_json")
    snapshot = load(folder)
    labels = snapshot.upstreams["customer-portal"].facets
    assert labels is not None
    assert labels.facets["visibility"].field == "meta_visibility"
    assert labels.facets["visibility"].words == {"open": "public", "shut": "internal"}
    assert "owner" in labels.fields
    assert route(snapshot, "portal-customer").mode is RouteMode.GUARD_JSON


@pytest.mark.parametrize(
    ("hit", "tenant"),
    [
        ({"owner": "acme"}, "acme"),
        ({"owner": "all"}, SHARED),
        ({"owner": SHARED}, ""),
        ({"owner": "All"}, "All"),
        ({"owner": ""}, ""),
        ({"owner": None}, ""),
        ({"owner": " acme"}, ""),
        ({"owner": ["acme"]}, ""),
        ({"Owner": "acme"}, ""),
        ({}, ""),
    ],
)
def test_a_foreign_unit_is_nobodys_unless_it_says_whose(
    hit: dict[str, object], tenant: str
) -> None:
    """Its `*` means nothing here: what is shared is said in policy, word by word."""
    assert CompartmentField("owner", "", frozenset({"all"})).value(hit) == tenant


@pytest.mark.parametrize(
    ("compartments", "code"),
    [
        ('tenant: {fixed: "*"}', "missing_compartment"),
        ("jurisdiction: {field: land}", "missing_compartment"),
        ("tenant: {}, jurisdiction: {field: land}", "ambiguous_compartment"),
        ("tenant: {field: a, fixed: b}, jurisdiction: {field: land}", "ambiguous_compartment"),
        ("tenant: {fixed: a, shared: [b]}, jurisdiction: {field: a}", "ambiguous_compartment"),
        ('tenant: {fixed: ""}, jurisdiction: {field: land}', "malformed"),
        ('tenant: {fixed: "**"}, jurisdiction: {field: land}', "malformed"),
        ("tenant: null, jurisdiction: {field: land}", "wrong_type"),
        ("tenant: {field: null}, jurisdiction: {field: land}", "wrong_type"),
    ],
)
def test_an_upstream_must_say_whose_its_units_are(
    compartments: str, code: str, edit: Edit, faults: Refused
) -> None:
    """Neither a missing compartment nor an unclear one may come to mean everybody's."""
    facets = ", ".join(f"{facet}: {{field: f, words: {{}}}}" for facet in FACETS)
    edit(UPSTREAMS, "facets: null", f"facets: {{{facets}, {compartments}}}")
    found = {fault.code: fault for fault in faults() if fault.file == UPSTREAMS}
    assert code in found
    assert found[code].remedy
