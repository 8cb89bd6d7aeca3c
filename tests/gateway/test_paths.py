"""Paths: one reading or a refusal, and nothing denied ever reaches the upstream.

Provenance: attack log section 3.1, rows A1-A17.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Code, Refusal
from gateway.ingress.normalise import ends_in_slash, segments_of
from gateway.routes.match import find
from policies.snapshot import Snapshot
from tests.gateway.stage import Stage, parse
from tests.policies.route_tables import Row, accepted

BASE = "/portal/customer/"
REFUSED = {
    "A1 dot segments": BASE + "../employee/x",
    "A1 current segment": BASE + "./x",
    "A1 dots at the end": BASE + "..",
    "A2 encoded dots": BASE + "%2e%2e/employee/x",
    "A3 doubled slash": "//portal/customer/x",
    "A3 doubled slash inside": "/portal//customer/x",
    "A3 encoded slash": "/portal%2fcustomer/x",
    "A3 encoded backslash": BASE + "..%5cx",
    "A3 backslash": BASE + "a\\b",
    "A4 authority look-alike": "//employee/portal/customer/x",
    "A5 fragment": BASE + "x#/portal/employee/",
    "A8 parameters": BASE + "..;v=1/x",
    "A8 parameters of a segment": BASE + "a;b=c",
    "A9 nul": BASE + "a%00b",
    "A9 semicolon": BASE + "a%3bb",
    "A9 percent": BASE + "a%25b",
    "A9 question mark": BASE + "a%3fb",
    "A9 hash on a portal": BASE + "a%23b",
    "A10 double encoding": BASE + "%252e%252e%252fx",
    "A12 encoded blank": BASE + "x%20",
    "A12 slash at the end of a guarded route": "/v1/scope/",
    "A12 slash at the end of a route with one name": "/v1/packs/x/",
    "A12 slash at the end of an address": "/v1/units/a/",
    "A12 slash at the end of an address with its mark": "/v1/units/a%23b/",
    "A12 slash where an address should be": "/v1/units/",
    "A12 slash at the end of no route": "/portal/",
    "A12 slash behind another case": "/PORTAL/customer/",
    "A3 two slashes at the end": BASE + "/",
    "A3 two slashes at the end of a page": BASE + "x//",
    "A1 dot segments before a slash at the end": BASE + "../",
    "A1 current segment before a slash at the end": BASE + "./",
    "A3 encoded slash at the end": BASE + "x%2f",
    "A9 hash before a slash at the end": BASE + "x%23/",
    "dots only before a slash at the end": BASE + ".../",
    "A13 bad utf-8": BASE + "%ff",
    "A13 overlong": BASE + "%c0%ae",
    "A13 raw latin": BASE + "é",
    "escaped unreserved": "/portal/%63ustomer/x",
    "lower-case escape of an address": "/v1/units/a%2fb",
    "dots only": BASE + "...",
}


@pytest.mark.parametrize("target", REFUSED.values(), ids=REFUSED)
def test_path_with_two_readings_is_refused(stage: Stage, target: str) -> None:
    """Rejected, never repaired, whoever asks; the upstream sees nothing."""
    reply = stage.ask("GET", target, token=stage.issuers.token("customer"))
    assert reply.status in {400, 404}
    assert stage.upstream.requests == []


@pytest.mark.parametrize(
    "target",
    ["/PORTAL/customer/x", "/portal/Customer/x", "/portal/customer", "/portal./customer/x", "/"],
)
def test_path_that_only_resembles_a_route_is_none(stage: Stage, target: str) -> None:
    """A12: exact case, whole segments; A7: no prefix arithmetic."""
    assert stage.ask("GET", target, token=stage.issuers.token("customer")).status == 404
    assert stage.upstream.requests == []


def test_routes_of_one_path_are_told_apart_by_their_methods(believing: Snapshot) -> None:
    """What the policy accepts is answered: `route_overlap` says to make methods disjoint."""
    table = [Row("/a/{rest...}", "guard", ("GET",)), Row("/a/{rest...}", "opaque", ("POST",))]
    routes = accepted(believing, table)
    assert [find(routes, ("a", "x"), one)[0].mode for one in ("GET", "POST")] == ["guard", "opaque"]
    with pytest.raises(Refusal) as refused:
        find(routes, ("a", "x"), "PUT")
    assert refused.value.code is Code.METHOD_NOT_ALLOWED
    assert refused.value.headers == ((b"allow", b"GET, POST"),)


def test_query_never_takes_part_in_matching(stage: Stage) -> None:
    """A6: a permitted path inside the query opens nothing."""
    target = "/portal/employee/x?y=/portal/customer/x"
    assert stage.ask("GET", target, token=stage.issuers.token("customer")).status == 403
    assert stage.upstream.requests == []


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://evil.test/portal/customer/x HTTP/1.1",
        b"GET https://gateway.test/portal/customer/x HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET portal/customer/x HTTP/1.1",
        b"GET *portal HTTP/1.1",
        b"GET  HTTP/1.1",
        b"GET /portal/customer/\x80 HTTP/1.1",
    ],
)
def test_target_that_is_not_origin_form_is_refused(stage: Stage, line: bytes) -> None:
    """A14, A16, A13: absolute form, asterisk form, authority form, raw bytes."""
    token = stage.issuers.token("customer").encode()
    raw = stage.raw(line + b"\r\nHost: a\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
    assert parse(raw)[0].status == 400
    assert stage.upstream.requests == []


def test_bytes_that_were_authorised_are_the_bytes_sent(stage: Stage) -> None:
    """A11: every permitted character crosses unchanged, query included."""
    target = BASE + "a~b/!$&'()*+,=:@/-._?q=%2e%2e/%00&r=a//b"
    reply = stage.ask("GET", target, token=stage.issuers.token("customer"))
    assert reply.status == 200
    assert stage.upstream.requests[0].split(b" ")[1] == target.encode()


@given(st.binary(max_size=40))
def test_accepted_path_is_its_own_canonical_form(raw: bytes) -> None:
    """Law: what is accepted, joined again, is byte for byte what was sent."""
    try:
        segments = segments_of(raw)
    except Refusal:
        return
    assert ("/" + "/".join(segments)).encode() == raw
    assert not {"", ".", ".."} & set(segments[:-1] if ends_in_slash(segments) else segments)


def test_no_traversal_payload_reaches_another_portal(shared_data: Path, stage: Stage) -> None:
    """PayloadsAllTheThings, path-traversal: nothing of the list is seen as another path."""
    lines = (shared_data / "http" / "payloads.jsonl").read_text().splitlines()
    texts = [json.loads(line) for line in lines]
    token = stage.issuers.token("customer")
    tried = 0
    for entry in texts:
        text = next((v for k, v in entry.items() if k in {"payload", "input", "text", "value"}), "")
        if "traversal" not in json.dumps(entry) or not text.isprintable() or " " in text:
            continue
        if tried % 3 == 0 and text.isascii():
            stage.upstream.requests.clear()
            reply = stage.ask("GET", BASE + text.replace("{FILE}", "etc/passwd"), token=token)
            assert reply.status in {200, 400, 404}
            for request in stage.upstream.requests:
                path = request.split(b" ")[1].partition(b"?")[0]
                assert b".." not in path.split(b"/")
                assert b"%" not in path
                assert b"\\" not in path
        tried += 1
    assert tried > 100
