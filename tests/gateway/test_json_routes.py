"""guard_json: units in the JSON of an upstream that is not retrieval.

Provenance: attack log section 3.7, rows F1, F4, F7-F18.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.facets import FacetFilter
from gateway.ingress.limits import Limits
from gateway.journal.event import EventAction
from policies.bindings import CompartmentField, FacetMap, FacetSource
from policies.decision import Scope
from policies.snapshot import Snapshot, load
from policies.vocabulary import FACETS
from tests.gateway.stage import Reply, Stage
from tests.gateway.tokens import Issuers

RULES = Path(__file__).parents[2] / "policies" / "rules"
OPEN = {
    "visibility": "Public",
    "readiness": "Published",
    "publication_state": "Published",
    "risk_class": "Low",
    "authority": "Enacted",
    "kind": "Faq",
}
WORDS = {**{facet: {word: word.lower()} for facet, word in OPEN.items()}}
WORDS["visibility"]["Internal"] = "internal"
WORDS["risk_class"]["High"] = "high"


def labels_of_upstream() -> FacetMap:
    return FacetMap(
        {facet: FacetSource(f"x_{facet}", words) for facet, words in WORDS.items()},
        CompartmentField("x_tenant", "", frozenset({"everybody"})),
        CompartmentField("x_jurisdiction", "", frozenset({"everywhere"})),
    )


def hit(title: str, **changes: object) -> dict[str, Any]:
    whole = {**OPEN, "tenant": "everybody", "jurisdiction": "everywhere", **changes}
    labels = {f"x_{label}": value for label, value in whole.items()}
    return {"title": title, **{name: value for name, value in labels.items() if value != "-"}}


@pytest.fixture(scope="module")
def filtering(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A gateway whose customer portal is a guarded JSON upstream with a facet map."""
    overlay = tmp_path_factory.mktemp("json-overlay")
    issuers.write(overlay)
    routes = (RULES / "routes.yaml").read_text()
    before, _, after = routes.partition("  portal-customer:")
    after = after.replace("mode: opaque", "mode: guard_json", 1)
    (overlay / "rules" / "routes.yaml").write_text(before + "  portal-customer:" + after)
    listed = "\n".join(
        f"      {facet}: {{field: x_{facet}, words: {json.dumps(words)}}}"
        for facet, words in WORDS.items()
    )
    listed += """
      tenant: {field: x_tenant, shared: [everybody]}
      jurisdiction: {field: x_jurisdiction, shared: [everywhere]}"""
    upstreams = (RULES / "upstreams.yaml").read_text()
    upstreams = upstreams.replace("    facets: null", "    facets:\n" + listed, 1)
    (overlay / "rules" / "upstreams.yaml").write_text(upstreams)
    with Stage(load(overlay=overlay), issuers, Limits(request_s=5, keep_alive_s=1)) as stage:
        yield stage


def get(
    stage: Stage,
    body: bytes | object,
    head: str = "",
    status: str = "200 OK",
    path: str = "/portal/customer/x",
) -> Reply:
    stage.reset()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = head or "content-type: application/json"
    stage.upstream.answer = (
        f"HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw
    )
    return stage.ask("GET", path, token=stage.issuers.token("customer"))


def test_denied_hit_is_dropped_and_journaled(filtering: Stage) -> None:
    """The permitted one stays, the other is an event by an opaque id."""
    reply = get(filtering, {"hits": [hit("a"), hit("secret", visibility="Internal")]})
    assert json.loads(reply.body) == {"hits": [hit("a")]}
    (event,) = filtering.journal.events
    assert (event.layer, event.action) == ("upstream:customer-portal", EventAction.WITHHELD)
    assert filtering.records.all[-1].event == event
    assert reply.header("cache-control") == "private, no-store"


@pytest.mark.parametrize("path", ["/portal/customer/", "/portal/customer/x/"])
def test_an_index_is_filtered_like_its_pages(filtering: Stage, path: str) -> None:
    """A12: a slash at the end asks for another page, never for a way around the guard."""
    reply = get(filtering, {"hits": [hit("a"), hit("secret", visibility="Internal")]}, path=path)
    assert json.loads(reply.body) == {"hits": [hit("a")]}
    assert len(filtering.journal.events) == 1
    assert filtering.upstream.requests[0].startswith(f"GET {path} HTTP/1.1\r\n".encode())


def test_units_of_an_upstream_are_counted_for_the_decision_log(filtering: Stage) -> None:
    """By class, kept and dropped; a body with nothing left returned nothing."""
    get(filtering, {"hits": [hit("a"), hit("b"), hit("c", visibility="Internal")]})
    assert filtering.records.some.wait(5)
    counts = filtering.records.all[-1].facts.tally.counts()
    assert (counts.returned, counts.denied) == (2, 1)
    assert sorted((one.allowed, one.denied) for one in counts.classes.values()) == [(0, 1), (2, 0)]
    get(filtering, {"hits": [hit("c", visibility="Internal")]})
    assert filtering.records.some.wait(5)
    counts = filtering.records.all[-1].facts.tally.counts()
    assert (counts.returned, counts.denied) == (0, 1)


def test_a_delegation_opens_no_foreign_upstream(filtering: Stage) -> None:
    """The next upstream would get an assertion, and a delegation of its own, for a caller whom
    only the first one knows: the narrowing by the first would be lost on the way."""
    assert get(filtering, {"hits": [hit("a")]}).status == 200
    head = filtering.upstream.requests[-1].decode("latin-1").split("\r\n")
    (line,) = [line for line in head if line.startswith("x-gateway-delegation:")]
    filtering.upstream.requests.clear()
    reply = filtering.ask(
        "GET",
        "/portal/customer/x",
        token=filtering.issuers.service("portal-customer"),
        headers=[("X-Gateway-Delegation", line.partition(":")[2].strip())],
    )
    assert (reply.status, json.loads(reply.body)["code"]) == (403, "forbidden")
    assert filtering.upstream.requests == []


def test_a_caller_that_does_not_read_is_given_up(
    filtering: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: whole answers wait for a slow reader as streams do, and no longer."""
    monkeypatch.setattr("gateway.app.WRITE_STALL_S", 0.2)
    assert get(filtering, {"hits": [hit("a" * 3_000_000)]}).status == 200
    lines = "GET /portal/customer/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", filtering.port)) as caller:
        caller.sendall(lines.format(filtering.issuers.token("customer")).encode() * 6)
        while "truncated" not in {record.code for record in filtering.records.all}:
            filtering.records.some.clear()
            assert filtering.records.some.wait(5)


def test_counts_cursors_and_headers_around_hits_do_not_leave(filtering: Stage) -> None:
    """F17: what would tell of the dropped ones is dropped with them, or when none is."""
    body = {"total": 2, "next": "c", "facets": {"internal": 1}, "hits": [hit("a")]}
    head = 'content-type: application/json\r\nx-total-count: 2\r\nlink: </x>\r\netag: "e"'
    reply = get(filtering, body, head)
    assert json.loads(reply.body) == {"hits": [hit("a")]}
    names = {name for name, _ in reply.headers}
    assert not {"x-total-count", "link", "etag"} & names


@pytest.mark.parametrize(
    "changes",
    [
        {"visibility": "-"},
        {"visibility": None},
        {"visibility": ""},
        {"visibility": "public"},
        {"visibility": " Public"},
        {"visibility": ["Public"]},
        {"visibility": {"Public": 1}},
        {"visibility": "Unknown"},
        {"risk_class": "High"},
        *(
            {compartment: value}
            for compartment in ("tenant", "jurisdiction")
            for value in ("-", None, "", "*", "other", " acme", "Acme", ["acme"], {"acme": 1}, 1)
        ),
    ],
)
def test_facet_corrupted_in_any_way_is_denied(filtering: Stage, changes: dict[str, object]) -> None:
    """F16 and the issue's eight ways: the visible set never grows; no consent for foreign units."""
    reply = get(filtering, {"hits": [hit("secret", **changes)]})
    assert b"secret" not in reply.body
    assert len(filtering.journal.events) == 1


def test_a_tenant_gets_its_own_units_and_the_shared_ones(filtering: Stage) -> None:
    """Two tenants, one upstream: neither sees a unit of the other, and each refusal is an event."""
    mine = {"acme": hit("a", tenant="acme"), "globex": hit("g", tenant="globex")}
    for tenant, own in mine.items():
        get(filtering, {"hits": [*mine.values(), hit("all")]})
        filtering.journal.events.clear()
        token = filtering.issuers.token("customer", tenant=tenant)
        reply = filtering.ask("GET", "/portal/customer/x", token=token)
        assert json.loads(reply.body) == {"hits": [own, hit("all")]}
        assert [event.unit_count for event in filtering.journal.events] == [1]


def test_a_unit_inside_a_permitted_one_is_judged_by_its_own_tenant(filtering: Stage) -> None:
    """A compartment alone makes an object a hit, so a nested one cannot hide as plain data."""
    inner = {"title": "secret", "x_tenant": "globex"}
    reply = get(filtering, {"hits": [{**hit("a", tenant="acme"), "related": inner}]})
    assert json.loads(reply.body) == {"hits": [hit("a", tenant="acme")]}


@pytest.mark.parametrize(
    "body",
    [
        b'{"hits": [{"x_visibility": "Internal", "x_visibility": "Public"}]}',
        b'{"hits": [NaN]}',
        b'{"hits": [1e999]}',
        b"\xef\xbb\xbf{}",
        '{"hits": []}'.encode("utf-16"),
        b'{"a": "\\ud800"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"hits": [',
        b"",
    ],
    ids=["F8", "F9 nan", "F9 inf", "F13 bom", "F13 utf-16", "F13", "F10", "F11", "cut", "empty"],
)
def test_document_with_more_than_one_reading_is_refused(filtering: Stage, body: bytes) -> None:
    """F8-F13: never repaired, never passed on."""
    reply = get(filtering, body)
    assert (reply.status, json.loads(reply.body)["code"]) == (502, "upstream_invalid")


@pytest.mark.parametrize(
    ("head", "status", "expected"),
    [
        ("content-type: text/html", "200 OK", 502),
        ("content-type: application/x-ndjson", "200 OK", 502),
        ("x: y", "200 OK", 502),
        ("content-type: application/json\r\ncontent-encoding: gzip", "200 OK", 502),
        ("content-type: application/json\r\ncontent-encoding: x-gzip", "200 OK", 502),
        ("content-type: application/json", "206 Partial Content", 502),
        ("content-type: application/json", "500 Oops", 502),
        ("content-type: application/json", "404 Not Found", 404),
        ("content-type: application/json", "302 Found", 502),
    ],
)
def test_other_shapes_and_statuses_are_replaced_by_our_own(
    filtering: Stage, head: str, status: str, expected: int
) -> None:
    """F1, F4, F14, F18: an error body may carry the unit; none of it leaves."""
    reply = get(filtering, {"hits": [hit("secret")]}, head, status)
    assert reply.status == expected
    assert b"secret" not in reply.body


def test_single_hidden_unit_is_absent(filtering: Stage) -> None:
    """A document that is the unit itself: 404 as for anything absent."""
    assert get(filtering, hit("secret", visibility="Internal")).status == 404
    assert json.loads(get(filtering, hit("a")).body) == hit("a")


def test_what_is_kept_is_written_compactly_and_as_it_was_spelt(filtering: Stage) -> None:
    body = get(filtering, {"hits": [hit("grüße")]}).body
    assert body.startswith(b'{"hits":[{"title":"gr\xc3\xbc\xc3\x9fe",')


def test_request_asks_for_an_answer_that_can_be_read(filtering: Stage) -> None:
    """F1, F4: identity encoding, no range, no conditions."""
    filtering.reset()
    filtering.ask(
        "GET",
        "/portal/customer/x",
        token=filtering.issuers.token("customer"),
        headers=[("Range", "bytes=0-9"), ("Accept-Encoding", "gzip"), ("If-None-Match", "x")],
    )
    (request,) = filtering.upstream.requests
    assert b"accept-encoding: identity" in request
    assert b"range" not in request.lower()
    assert b"if-none-match" not in request.lower()


def test_long_integers_stay_what_they_are(filtering: Stage) -> None:
    """F12: a thirty-digit id is not a float."""
    reply = get(filtering, {"hits": [{**hit("a"), "id": 10**30}]})
    assert json.loads(reply.body)["hits"][0]["id"] == 10**30


def test_nothing_leaves_when_the_leak_cannot_be_journaled(filtering: Stage) -> None:
    """As for retrieval: durable first."""
    get(filtering, {"hits": []})
    filtering.journal.full = True
    reply = filtering.ask("GET", "/portal/customer/x", token=filtering.issuers.token("customer"))
    assert reply.status == 200
    filtering.upstream.answer = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n"
        b'{"hits": [{"a": 1}]}'
    )
    reply = filtering.ask("GET", "/portal/customer/x", token=filtering.issuers.token("customer"))
    assert (reply.status, json.loads(reply.body)["code"]) == (503, "journal_unavailable")


LEAVES = st.none() | st.booleans() | st.integers() | st.sampled_from(["secret", "x"])
LABELS = st.sampled_from(["Public", "Internal", "public", "", None])
TENANTS = st.sampled_from(["everybody", "acme", "globex", "", "*", None])
HITS = st.builds(
    lambda word, tenant: {
        "marker": "may stay" if word == "Public" and tenant in ("everybody", "acme") else "may not",
        **hit("t", visibility=word, tenant=tenant),
    },
    LABELS,
    TENANTS,
)
TREES = st.recursive(
    LEAVES | HITS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=12,
)


def _markers(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "marker" in node:
            yield node["marker"]
        for value in node.values():
            yield from _markers(value)
    elif isinstance(node, list):
        for value in node:
            yield from _markers(value)


@given(TREES)
def test_only_permitted_hits_and_structure_are_ever_kept(snapshot: Snapshot, tree: Any) -> None:
    """Law: no denied hit survives, wherever it stands; no scalar survives outside a hit."""
    scope = Scope(
        grant=snapshot.grant(["customer"]), tenants=("acme",), jurisdictions=(), consented_units=()
    )
    sieve = FacetFilter(labels_of_upstream(), snapshot.vocabulary, scope)
    kept = sieve.kept(tree)
    assert set(_markers(kept)) <= {"may stay"}
    assert set(FACETS) == set(sieve.labels.facets)
    if not any(True for _ in _markers(kept)):
        assert "secret" not in json.dumps(kept)
