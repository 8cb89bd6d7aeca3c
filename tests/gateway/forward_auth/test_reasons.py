"""Why forward-auth refused: the same words as where the gateway answers itself."""

from __future__ import annotations

import pytest

from gateway.reasons import Why
from tests.gateway.forward_auth.asking import ADDRESSES, decide, send, told
from tests.gateway.refused import bad_tokens, seen, unauthenticated
from tests.gateway.stage import Stage
from tests.gateway.tokens import Issuers

OWN = "/portal/partner/x"


def last(stage: Stage) -> tuple[str, str, str, str]:
    assert stage.records.some.wait(5)
    return seen(stage.records.all[-1])


@pytest.mark.parametrize("why", tuple(bad_tokens(Issuers())))
def test_token_that_is_not_believed_is_logged_with_what_is_wrong(deciding: Stage, why: Why) -> None:
    token, issuer = bad_tokens(deciding.issuers)[why]
    lines = [*told("nginx", "GET", OWN), f"Authorization: Bearer {token}"]
    reply = send(deciding, "/-/authz/nginx", lines, source=ADDRESSES["nginx"])
    assert reply.status == 401
    assert last(deciding) == unauthenticated(why, issuer)


@pytest.mark.parametrize(
    ("audience", "found"),
    [
        ("", ("unauthenticated", "no_credential", "place", "")),
        ("customer", ("forbidden", "no_rule", "decide", "idp:customers")),
        ("agent", ("no_audience", "no_tool", "place", "idp:agents")),
    ],
)
def test_caller_whom_policy_keeps_out_is_logged_with_why(
    deciding: Stage, audience: str, found: tuple[str, ...]
) -> None:
    decide(deciding, "nginx", OWN, audience=audience)
    assert last(deciding) == found


def test_proxy_that_policy_does_not_believe_is_logged_as_such(deciding: Stage) -> None:
    """Before anything that it says of a caller is read."""
    decide(deciding, "nginx", OWN, audience="partner", source=ADDRESSES["stranger"])
    assert last(deciding) == ("forbidden", "untrusted_proxy", "admit", "")
