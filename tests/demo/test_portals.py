"""The portals: they believe the gateway's assertion only, and carry no markup of others.

The gateway that stands before them here is made of its own parts (`gateway.relay.assertion`),
so that both ends are held to one form.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.demo.portals import page
from deploy.demo.portals.app import PORTALS, application
from deploy.demo.portals.assertion import Doorkeeper, Visitor
from deploy.demo.portals.backend import Backend
from deploy.demo.servers import Servers, listen, port_of
from gateway.authn.own_keys import OwnKeys
from gateway.relay.assertion import assertion
from policies.decision import PolicyDigest

GATEWAY_ID = "urn:test:gateway"
PORTAL = PORTALS[0]
HOSTILE = '<script>alert(1)</script> "quoted" & <img src=x onerror=y> '
Sign = Callable[..., str]


@pytest.fixture(scope="module")
def keys() -> OwnKeys:
    return OwnKeys.generate()


@pytest.fixture(scope="module")
def portal(keys: OwnKeys) -> Iterator[str]:
    """A portal on a port of its own; behind its back a gateway that has keys and refuses."""

    async def jwks(_: Request) -> Response:
        return Response(keys.jwks(), media_type="application/json")

    async def refuse(_: Request) -> Response:
        return JSONResponse({"code": "retrieval_unavailable"}, status_code=503)

    async def token(_: Request) -> Response:
        return JSONResponse({"access_token": "t", "expires_in": 600})

    gateway = Starlette(
        routes=[
            Route("/.well-known/jwks.json", jwks),
            Route("/v1/retrieve", refuse, methods=["POST"]),
            Route("/token", token, methods=["POST"]),
        ]
    )
    front, back = listen(0), listen(0)
    base = f"http://127.0.0.1:{port_of(back)}"
    with Servers() as servers, httpx.Client(trust_env=False) as http:
        doorkeeper = Doorkeeper(
            jwks_url=f"{base}/.well-known/jwks.json",
            gateway_id=GATEWAY_ID,
            token_audience=PORTAL.token_audience,
            http=http,
        )
        backend = Backend(
            gateway_url=base, token_url=f"{base}/token", name="n", secret="s", http=http
        )
        servers.serve(gateway, back)
        servers.serve(application(PORTAL, doorkeeper, backend), front)
        yield f"http://127.0.0.1:{port_of(front)}"


@pytest.fixture(scope="module")
def sign(keys: OwnKeys) -> Sign:
    def made(**other: object) -> str:
        fields: dict[str, Any] = {
            "gateway_id": GATEWAY_ID,
            "token_audience": PORTAL.token_audience,
            "subject_id": "s.1",
            "audience": "customer",
            "profile": "customer",
            "digest": PolicyDigest("d" * 64),
            "request_id": "r1",
            "method": "GET",
            "path": PORTAL.path,
            "now": time.time(),
        }
        return assertion(keys, **(fields | other)).decode()

    return made


def get(portal: str, *headers: tuple[str, str], question: str = "") -> httpx.Response:
    with httpx.Client(trust_env=False) as http:
        return http.get(f"{portal}{PORTAL.path}", params={"q": question}, headers=list(headers))


def test_a_request_with_the_gateways_assertion_gets_the_page(portal: str, sign: Sign) -> None:
    answer = get(portal, ("x-gateway-assertion", sign()))
    assert answer.status_code == 200
    assert "You are here as customer" in answer.text


def test_the_index_of_a_portal_is_the_same_page(portal: str, sign: Sign) -> None:
    """Who shortens the address in the browser's bar is still there."""
    index = PORTAL.path.removesuffix("ask")
    with httpx.Client(trust_env=False) as http:
        header = {"x-gateway-assertion": sign(path=index)}
        assert "You are here as customer" in http.get(f"{portal}{index}", headers=header).text
        assert http.get(f"{portal}{index}").status_code == 403


def test_a_request_that_did_not_come_through_the_gateway_is_refused(portal: str) -> None:
    assert get(portal).status_code == 403
    assert get(portal, ("x-gateway-subject", "s.1")).status_code == 403


@pytest.mark.parametrize(
    "other",
    [
        {"token_audience": "urn:portal:employee"},
        {"gateway_id": "urn:other:gateway"},
        {"method": "POST"},
        {"path": "/portal/customer/other"},
        {"now": 1_000_000.0},
        {"now": 9_999_999_999.0},
    ],
)
def test_an_assertion_for_another_place_request_or_time_is_refused(
    portal: str, sign: Sign, other: dict[str, object]
) -> None:
    """Attack: an assertion for one portal is replayed at another."""
    assert get(portal, ("x-gateway-assertion", sign(**other))).status_code == 403


def test_an_assertion_of_another_key_is_refused(portal: str) -> None:
    forged = assertion(
        OwnKeys.generate(),
        gateway_id=GATEWAY_ID,
        token_audience=PORTAL.token_audience,
        subject_id="s.1",
        audience="employee",
        profile="employee",
        digest=PolicyDigest("d" * 64),
        request_id="r1",
        method="GET",
        path=PORTAL.path,
        now=time.time(),
    )
    assert get(portal, ("x-gateway-assertion", forged.decode())).status_code == 403


def test_two_assertions_are_none(portal: str, sign: Sign) -> None:
    both = [("x-gateway-assertion", sign()), ("x-gateway-assertion", sign())]
    assert get(portal, *both).status_code == 403


def test_without_a_delegation_nothing_is_retrieved(portal: str, sign: Sign) -> None:
    """The hop sends an empty delegation for an anonymous visitor."""
    headers = [("x-gateway-assertion", sign()), ("x-gateway-delegation", "")]
    answer = get(portal, *headers, question="anything")
    assert answer.status_code == 200
    assert "Sign in to ask" in answer.text


def test_a_refusal_of_the_gateway_is_shown_as_its_code_only(portal: str, sign: Sign) -> None:
    headers = [("x-gateway-assertion", sign()), ("x-gateway-delegation", "d")]
    answer = get(portal, *headers, question="anything")
    assert "retrieval_unavailable" in answer.text


def test_hostile_text_stays_text_wherever_it_stands() -> None:
    """Attack: a unit, a title or the question itself carries markup."""
    visitor = Visitor("s.1", "customer", "customer", "d" * 64, "r1")
    unit = {
        "title": HOSTILE,
        "text": HOSTILE,
        "canonical_address": HOSTILE,
        "revision": 1,
        "kind": HOSTILE,
        "authority": HOSTILE,
        "risk_class": HOSTILE,
    }
    link = {"canonical_address": HOSTILE, "reason": HOSTILE, "confidence": 0.3}
    pack = {
        "thread_title": HOSTILE,
        "purpose": HOSTILE,
        "canonical_units": [unit],
        "supporting_units": [unit],
        "latest_reports": [unit],
        "known_gaps": [{"title": HOSTILE, "kind": HOSTILE}],
        "suspect_links": [link],
        "audience_scope_applied": {"profiles": [HOSTILE]},
    }
    text = page.page("Portal", "customer", visitor, HOSTILE, page.answer({"packs": [pack]}))

    seen = Tags()
    seen.feed(text)
    assert not {"script", "img"} & set(seen.tags)
    assert html.unescape(text).count(HOSTILE.strip()) >= 15
    assert f"'sha256-{page._STYLE_HASH}'" in page.CONTENT_SECURITY_POLICY
    assert page.STYLE in text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
