"""A proxy that asks and the gateway that relays let the same requests through.

Provenance: issue 4, item 6 ("over the same stations"); attack log A1-A17.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.forward_auth.asking import DIALECTS, decide
from tests.gateway.stage import Stage

AUDIENCES = ("", "customer", "partner", "employee", "agent")
PORTALS = ("customer", "partner", "employee")
PARTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=0, max_size=6)
PATHS = st.one_of(
    st.tuples(st.sampled_from(PORTALS), st.lists(PARTS, max_size=3)).map(
        lambda pair: "/".join(["/portal", pair[0], *pair[1]])
    ),
    st.sampled_from(
        [
            *("/portal/customer/a?b=c", "/portal/partner/a/b", "/v1/scope", "/"),
            *("/portal/employee/a", "/portal/partner/", "/portal/partner/a/", "/v1/scope/"),
        ]
    ),
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])


@given(PATHS, METHODS, st.sampled_from(AUDIENCES), st.sampled_from(DIALECTS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_allowed_exactly_where_the_gateway_itself_would_relay(
    deciding_stage: Stage, path: str, method: str, audience: str, dialect: str
) -> None:
    """Law: one policy, one reading of a path, two ways to use them."""
    stage = deciding_stage
    stage.reset()
    token = stage.issuers.token(audience) if audience else None
    relayed = stage.ask(method, path, token=token)
    arrived = len(stage.upstream.requests)
    assert (relayed.status == 200) == (arrived == 1) or path.startswith("/v1/")
    decided = decide(stage, dialect, path, method=method, audience=audience)
    assert (decided.status == 200) == (arrived == 1)
    assert len(stage.upstream.requests) == arrived
