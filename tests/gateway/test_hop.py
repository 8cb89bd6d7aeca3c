"""The opaque route: what reaches a portal, and what comes back."""

from __future__ import annotations

from tests.gateway.stage import Stage


def test_customer_reaches_its_portal_and_sees_the_answer(stage: Stage) -> None:
    """The plain pass-through of the issue, part 4."""
    reply = stage.ask("GET", "/portal/customer/home?x=1", token=stage.issuers.token("customer"))
    assert (reply.status, reply.body) == (200, b"ok")
    assert stage.upstream.requests[0].startswith(b"GET /portal/customer/home?x=1 HTTP/1.1\r\n")
