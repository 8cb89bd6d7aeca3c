"""Two routes that a policy accepts never answer one request, whatever the path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.snapshot import Snapshot
from tests.policies.route_tables import METHODS, Row, read, rows


@given(
    st.lists(rows(), min_size=2, max_size=3),
    st.lists(st.lists(st.sampled_from(("a", "b", "c", "")), max_size=4), min_size=1, max_size=8),
)
def test_accepted_routes_share_no_path_not_even_one_that_ends_in_a_slash(
    default: Snapshot, table: list[Row], tried: list[list[str]]
) -> None:
    """`route_overlap` knows of every path that two patterns could both match."""
    routes, told = read(default, table)
    assert told <= {"route_overlap"}
    for parts in tried:
        path = "/" + "/".join(parts)
        for method in METHODS:
            here = [one for one in routes if method in one.methods and one.match(path) is not None]
            assert len(here) <= 1 or told


@pytest.mark.parametrize(("method", "codes"), [("HEAD", {"route_overlap"}), ("POST", set())])
def test_a_path_has_one_route_for_get_and_head(
    default: Snapshot, method: str, codes: set[str]
) -> None:
    """Forward-auth decides a HEAD as the GET whose head it is: another route would be passed by."""
    table = [Row("/a/{rest...}", "opaque"), Row("/a/b", "opaque", (method,))]
    assert read(default, table)[1] == codes
