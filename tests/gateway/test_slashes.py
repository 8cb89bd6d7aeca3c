"""A slash at the end of a path: the index of a portal, and never more than the pages below it.

Provenance: attack log row A12; the laws of `gateway/ingress/normalise.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from gateway.errors import Code, Refusal
from gateway.ingress.normalise import segments_of
from gateway.routes.match import find
from policies.bindings import Route, RouteMode, SegmentSort
from policies.snapshot import Snapshot
from tests.examples import examples
from tests.gateway.stage import Stage
from tests.policies.route_tables import METHODS, Row, accepted, rows

WORDS = ("a", "b", "v1", "units", "scope", "portal", "customer", "partner", "%23", "x.")


def paths(words: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Paths that end in a slash, some of them in two."""
    parts = st.lists(st.sampled_from((*words, *words, "")), max_size=4)
    return parts.map(lambda found: "/".join(("", *found, "")))


Found = tuple[Route, dict[str, str]]


def found_on(table: Sequence[Route], path: str, method: str) -> Found | Code:
    """The route and its named parts, or why there is none."""
    try:
        route, names = find(table, segments_of(path.encode("ascii")), method)
    except Refusal as refusal:
        return refusal.code
    return route, dict(names)


@given(
    st.lists(rows(WORDS[:2]), min_size=1, max_size=4),
    paths((*WORDS[:2], "c", "%23")),
    st.sampled_from(METHODS),
)
def test_a_path_with_a_slash_at_its_end_is_on_the_route_of_its_pages(
    believing: Snapshot, table: list[Row], path: str, method: str
) -> None:
    """Law: whatever table of routes, ``p/`` is found nowhere but where ``p/x`` is, and that is
    a relayed route that takes the rest."""
    routes = accepted(believing, table)
    found, page = found_on(routes, path, method), found_on(routes, path + "x", method)
    if isinstance(found, Code):
        none = Code.NOT_FOUND if path == "/" else Code.BAD_PATH
        assert found in {none, Code.METHOD_NOT_ALLOWED}
        return
    assert not isinstance(page, Code)
    route, names = found
    assert page == (route, names | {"rest": names["rest"] + "x"})
    assert route.mode in {RouteMode.OPAQUE, RouteMode.GUARD_JSON}
    assert route.segments[-1].sort is SegmentSort.REST


@given(paths(WORDS), st.sampled_from(METHODS))
def test_a_slash_at_the_end_opens_nothing_that_the_policy_closes(
    believing: Snapshot, path: str, method: str
) -> None:
    """Law: over the shipped policy and for every audience, what is allowed with a slash is
    allowed, by the same rules, for the page behind it."""
    found = found_on(believing.routes, path, method)
    page = found_on(believing.routes, path + "x", method)
    if isinstance(found, Code):
        return
    assert not isinstance(page, Code)
    for audience in ("anonymous", *believing.vocabulary.profiles):
        here = believing.decide_route(audience, found[0].id, method)
        assert here == believing.decide_route(audience, page[0].id, method)


@given(
    path=st.builds(
        "/portal/{}{}".format, st.sampled_from(("customer", "partner", "x")), paths(("a", "b."))
    ),
    audience=st.sampled_from(("", "customer", "partner", "employee", "agent")),
)
@examples(60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_who_is_let_in_at_an_index_is_let_in_at_a_page_of_it(
    stage: Stage, path: str, audience: str
) -> None:
    """Law: through the whole gateway an index answers as its pages do, or is no path at all."""
    token = stage.issuers.token(audience) if audience else None
    stage.reset()
    here = stage.ask("GET", path, token=token)
    arrived = len(stage.upstream.requests)
    page = stage.ask("GET", path + "x", token=token)
    assert (here.status == 200) == (arrived == 1)
    assert len(stage.upstream.requests) >= 2 * arrived
    if here.status == 200 or json.loads(here.body)["code"] != "bad_path":
        assert here.status == page.status


@pytest.mark.parametrize(
    "path", ["/portal/customer/", "/portal/customer/x/", "/portal/customer/x.y/a@b/"]
)
def test_an_index_is_relayed_and_signed_as_it_was_asked_for(stage: Stage, path: str) -> None:
    """A11: the bytes that were decided are sent, and are the ones that the assertion is for."""
    for _ in range(3):  # by the ordinary way and by the short one
        reply = stage.ask("GET", f"{path}?q=a//b/", token=stage.issuers.token("customer"))
        assert reply.status == 200
    for request in stage.upstream.requests:
        assert request.split(b" ")[1] == f"{path}?q=a//b/".encode()
        (line,) = [one for one in request.split(b"\r\n") if one.startswith(b"x-gateway-assertion")]
        claims = json.loads(base64.urlsafe_b64decode(line.split(b".")[1] + b"=="))
        assert claims["htu"] == path
    assert len(stage.upstream.requests) == 3
    assert {record.route for record in stage.records.all} == {"portal-customer"}


@pytest.mark.parametrize("audience", ["", "customer", "partner"])
def test_an_index_that_is_closed_stays_closed(stage: Stage, audience: str) -> None:
    token = stage.issuers.token(audience) if audience else None
    for path in ("/portal/employee/", "/portal/employee/x/"):
        assert stage.ask("GET", path, token=token).status == (403 if audience else 401)
    assert stage.upstream.requests == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/retrieve/"),
        ("GET", "/v1/units/"),
        ("GET", "/v1/scope/"),
        ("GET", "/v1/openapi.json/"),
        ("GET", "/.well-known/jwks.json/"),
        ("GET", "/portal/"),
        ("GET", "/PORTAL/customer/"),
    ],
)
def test_what_is_no_index_is_refused_as_a_path(stage: Stage, method: str, path: str) -> None:
    """One code for all of them, whoever asks, before anybody is identified."""
    for token in (None, stage.issuers.token("employee"), "x.y.z"):
        reply = stage.ask(method, path, token=token)
        assert (reply.status, json.loads(reply.body)["code"]) == (400, "bad_path")
    assert stage.retrieval.asks == []
    assert stage.upstream.requests == []
