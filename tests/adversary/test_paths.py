"""Targets and paths against a running process: one reading or a refusal, nothing repaired.

Provenance: attack log section 3.1, rows A1-A17. `tests/gateway/test_paths.py` has the laws.
"""

from __future__ import annotations

import json

import pytest

from tests.adversary.process import Gateway, head
from tests.adversary.twice import STANCES

pytestmark = STANCES

BASE = b"/portal/customer/"
EMPLOYEE = b"portal/employee/x"
TARGETS = {
    "A1 dot segments": BASE + b"../employee/x",
    "A1 dot segment at the end": BASE + b"x/..",
    "A1 single dot": BASE + b"./x",
    "A2 encoded dots": BASE + b"%2e%2e/employee/x",
    "A2 half-encoded dots": BASE + b".%2E/employee/x",
    "A3 two slashes": b"//" + EMPLOYEE,
    "A3 two slashes inside": b"/portal//employee/x",
    "A3 encoded slash": b"/portal%2Femployee/x",
    "A3 encoded slash behind a portal": BASE + b"..%2f..%2f" + EMPLOYEE,
    "A3 encoded backslash": BASE + b"..%5c..%5c" + EMPLOYEE,
    "A3 backslash": BASE + b"..\\..\\portal\\employee\\x",
    "A4 authority": b"//employee@gateway.test/" + EMPLOYEE,
    "A4 three slashes": b"///" + EMPLOYEE,
    "A5 fragment": b"/" + EMPLOYEE + b"#/portal/customer/x",
    "A5 fragment of a portal": BASE + b"x#/" + EMPLOYEE,
    "A7 dot behind a prefix": b"/portal./customer/x",
    "A7 encoded letter of a prefix": b"/%70ortal/customer/x",
    "A8 parameters of a dot segment": BASE + b"..;v=1/employee/x",
    "A8 parameters": BASE + b"x;jsessionid=1",
    "A9 nul": BASE + b"x%00.png",
    "A9 semicolon": BASE + b"..%3b/x",
    "A9 question mark": BASE + b"x%3fy",
    "A9 hash": BASE + b"x%23y",
    "A9 percent": BASE + b"x%25y",
    "A9 line feed": BASE + b"x%0d%0aX-User:%20admin",
    "A10 double encoding": BASE + b"%252e%252e%252f" + EMPLOYEE,
    "A10 broken escape": BASE + b"%2",
    "A10 wide escape": BASE + b"%u002e%u002e",
    "A12 upper case": b"/PORTAL/CUSTOMER/x",
    "A12 trailing dot": b"/portal/customer./x",
    "A12 trailing blank": b"/portal/customer%20/x",
    "A12 trailing slash": b"/v1/retrieve/",
    "A12 trailing slash of a scope": b"/v1/scope/",
    "A12 trailing slash of another case": b"/PORTAL/customer/",
    "A12 no trailing slash": b"/portal/customer",
    "A3 two slashes at the end": BASE + b"x//",
    "A13 lone byte": BASE + b"%ff",
    "A13 overlong dot": BASE + b"%c0%ae%c0%ae/employee/x",
    "A13 raw byte": BASE + b"\xe9",
    "A13 raw utf-8": BASE + "é".encode(),
    "A14 absolute form": b"http://evil.test/portal/customer/x",
    "A14 absolute form of our own": b"http://gateway.test/portal/customer/x",
    "A14 another scheme": b"file:///portal/customer/x",
    "A16 asterisk": b"*",
    "A16 no slash": b"portal/customer/x",
    "A16 authority form": b"gateway.test:80",
    "A16 a query only": b"?x=/portal/customer/x",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_target_with_two_readings_arrives_nowhere(gateway: Gateway, target: bytes) -> None:
    """A1-A5, A7-A10, A12-A14, A16: refused as a whole, also for somebody who may go there."""
    for who in ("customer", "employee"):
        (reply,) = gateway.replies(
            head(gateway, b"GET " + target + b" HTTP/1.1", b"Connection: close", who=who)
        )
        assert reply.status in {400, 404}, reply
        assert reply.header("content-type") == "application/problem+json"
    assert gateway.arrived == []


def test_index_opens_for_those_alone_who_may_have_its_pages(gateway: Gateway) -> None:
    """A12: a slash at the end is another path, and arrives as it was decided."""
    for path in ("/portal/employee/", "/portal/employee/x/"):
        assert gateway.ask("GET", path, who="customer").status == 403
    assert gateway.arrived == []
    for path in ("/portal/customer/", "/portal/customer/x/"):
        assert gateway.ask("GET", path, who="customer").status == 200
    assert [seen.target for seen in gateway.arrived] == ["/portal/customer/", "/portal/customer/x/"]


def test_query_opens_no_route(gateway: Gateway) -> None:
    """A6: an allowed path in the query, in every spelling; the path alone is matched."""
    for query in ("x=/portal/customer/x", "/portal/customer/x", "/../../portal/customer/x"):
        assert gateway.ask("GET", f"/portal/employee/x?{query}", who="customer").status == 403
    assert gateway.arrived == []


def test_bytes_that_arrive_are_the_bytes_that_were_decided(gateway: Gateway) -> None:
    """A11, A7: every character that may stand in a path or query crosses unchanged."""
    target = "/portal/customer/a~b/!$&'()*+,=:@/-._?q=%2e%2e/%00&r=a//b&s=..\\..&t=%ff"
    assert gateway.ask("GET", target, who="customer").status == 200
    (seen,) = gateway.arrived
    assert (seen.portal, seen.target) == ("customer-portal", target)


@pytest.mark.parametrize(
    "host",
    ["a/portal/employee?", "a@b", "a b", "a/../..", "a#", "a?x", "a,b", "[::1", "a:port", ""],
)
def test_host_never_takes_part_in_a_path(gateway: Gateway, host: str) -> None:
    """A15: a Host that would move the path of an absolute address is no Host."""
    raw = f"GET /portal/customer/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    (reply,) = gateway.replies(raw.encode())
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "bad_host")
    assert gateway.arrived == []


def test_asterisk_of_options_is_no_target(gateway: Gateway) -> None:
    """A16: asterisk form is for servers themselves."""
    (reply,) = gateway.replies(head(gateway, b"OPTIONS * HTTP/1.1", b"Connection: close"))
    assert reply.status == 400
    assert gateway.arrived == []
