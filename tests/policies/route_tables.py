"""Tables of routes as a policy file would hold them, read by the policy's own reader."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from policies.bindings import Route
from policies.faults import Faults
from policies.route_file import read_routes
from policies.snapshot import Snapshot
from policies.yamltree import parse

MODES = {
    "opaque": "mode: opaque\n    upstream: customer-portal",
    "guard": "mode: guard\n    operation: scope",
}
METHODS = ("GET", "POST")


@dataclass(frozen=True)
class Row:
    """One route of a file."""

    path: str
    mode: str
    methods: tuple[str, ...] = ("GET",)


@st.composite
def rows(draw: st.DrawFn, words: tuple[str, ...] = ("a", "b")) -> Row:
    """Any pattern of a few segments, often one that takes the rest of a path."""
    parts = draw(st.lists(st.sampled_from((*words, "{one}")), max_size=3, unique=True))
    if not parts or draw(st.booleans()):
        parts.append("{rest...}")
    mode = draw(st.sampled_from(sorted(MODES)))
    methods = draw(st.sampled_from((METHODS, METHODS[:1], METHODS[1:])))
    return Row("/" + "/".join(parts), mode, methods)


def read(snapshot: Snapshot, table: list[Row]) -> tuple[tuple[Route, ...], set[str]]:
    """The routes of a file of these rows, and the codes of its faults."""
    text = "routes:\n" + "".join(
        f"  r{at}:\n    path: '{row.path}'\n    methods: [{', '.join(row.methods)}]\n"
        f"    {MODES[row.mode]}\n"
        for at, row in enumerate(table)
    )
    faults = Faults()
    tree = parse("rules/routes.yaml", text, faults)
    routes = read_routes(tree, snapshot.vocabulary, snapshot.upstreams, faults)
    return routes, {fault.code for fault in faults}


def accepted(snapshot: Snapshot, table: list[Row]) -> tuple[Route, ...]:
    """The routes of the longest file that the policy takes, each row added if it may be."""
    kept: list[Row] = []
    for row in table:
        if not read(snapshot, [*kept, row])[1]:
            kept.append(row)
    return read(snapshot, kept)[0]
