"""One portal as an ASGI application: a search box, and what the gateway lets its user read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from deploy.demo.portals import page
from deploy.demo.portals.assertion import HEADER, Doorkeeper, NotFromGateway
from deploy.demo.portals.backend import DELEGATION, Backend, RetrievalRefused

QUESTION_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Portal:
    """What differs between the three. ``upstream`` is its name in the policy's upstreams."""

    upstream: str
    client: str
    token_audience: str
    path: str
    title: str
    style: str


PORTALS: Final = (
    Portal(
        "customer-portal",
        "portal-customer",
        "urn:portal:customer",
        "/portal/customer/ask",
        "Ferrowick help for sellers",
        "customer",
    ),
    Portal(
        "partner-portal",
        "portal-partner",
        "urn:portal:partner",
        "/portal/partner/ask",
        "Ferrowick partner area",
        "partner",
    ),
    Portal(
        "employee-portal",
        "portal-employee",
        "urn:portal:employee",
        "/portal/employee/ask",
        "Ferrowick handbook",
        "employee",
    ),
)


def application(portal: Portal, doorkeeper: Doorkeeper, backend: Backend) -> Starlette:
    """The portal. Every request needs the gateway's assertion; anything else is 403."""

    def ask(request: Request) -> Response:  # not async: Starlette runs it in a thread
        try:
            visitor = doorkeeper.visitor(
                request.headers.getlist(HEADER),
                method=request.method,
                path=request.scope["raw_path"].decode("ascii"),
            )
        except NotFromGateway:
            return PlainTextResponse("only through the gateway\n", status_code=403)
        question = request.query_params.get("q", "").strip()[:QUESTION_MAX]
        body = page.welcome()
        if question:
            try:
                found = backend.retrieve(question, request.headers.getlist(DELEGATION))
                body = page.answer(found)
            except RetrievalRefused as refusal:
                body = page.refused(refusal.code)
        return HTMLResponse(
            page.page(portal.title, portal.style, visitor, question, body),
            headers={
                "content-security-policy": page.CONTENT_SECURITY_POLICY,
                "x-content-type-options": "nosniff",
                "referrer-policy": "no-referrer",
            },
        )

    index = portal.path.removesuffix("ask")
    return Starlette(routes=[Route(path, ask, methods=["GET"]) for path in (portal.path, index)])
