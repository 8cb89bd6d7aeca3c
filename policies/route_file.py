"""Reads ``rules/routes.yaml``: what is answered at all, segment by segment."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from policies.bindings import (
    ABSENT_ORIGIN,
    Route,
    RouteMode,
    Segment,
    SegmentSort,
    Upstream,
)
from policies.faults import Faults, shown
from policies.vocabulary import RESERVED, Vocabulary
from policies.yamltree import Node, Reader

FILE: Final = "rules/routes.yaml"
ROUTES_MAX: Final = 2_000
"""Every two of them are compared: a few seconds."""
NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OPERATIONS: Final = (
    "retrieve",
    "pack",
    "unit",
    "units",
    "delivery",
    "check",
    "feedback",
    "scope",
)
ORIGIN: Final = re.compile(
    rf"{ABSENT_ORIGIN}|https?://[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?(?::[1-9][0-9]{{0,4}})?"
)
"""As browsers write it (RFC 6454 section 6.2), or none at all; ``null`` is nobody's."""
OWN: Final = ("-", ".well-known")
"""First segments that the gateway answers itself, before any route is looked at."""
_LITERAL: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")
_NAMED: Final = re.compile(r"\{([a-z][a-z0-9_]*)(\.\.\.)?\}")


def read_routes(
    tree: Node, vocabulary: Vocabulary, upstreams: Mapping[str, Upstream], faults: Faults
) -> tuple[Route, ...]:
    """The routes in file order. Two that could answer one request are refused."""
    read = Reader(faults)
    top = read.fields(tree, required=("routes",))
    entries = read.entries(top["routes"], "route", NAME)
    if len(entries) > ROUTES_MAX:
        reason = f"{len(entries):,} routes, over {ROUTES_MAX:,}"
        faults.add(tree.place, "too_many_routes", reason, "join paths with `{name...}`")
        return ()
    routes = tuple(
        _route(read, name, node, vocabulary, upstreams) for name, node in entries.items()
    )
    places = [node.place for node in entries.values()]
    for name, place in zip(entries, places, strict=True):
        if name in RESERVED:
            faults.add(place, "reserved_word", f"`{name}` has a meaning of its own", "rename it")
    for position, route in enumerate(routes):
        for other in routes[:position]:
            if _answers(route) & _answers(other) and _overlap(route.segments, other.segments):
                faults.add(
                    places[position],
                    "route_overlap",
                    f"routes `{other.id}` and `{route.id}` could both answer one request",
                    "make their paths or methods disjoint (a HEAD is a GET)",
                )
    return routes


def _route(
    read: Reader,
    name: str,
    node: Node,
    vocabulary: Vocabulary,
    upstreams: Mapping[str, Upstream],
) -> Route:
    fields = read.fields(
        node,
        required=("path", "methods", "mode"),
        optional=("upstream", "operation", "tool", "anonymous", "origins"),
    )

    def word(key: str, what: str, known: Collection[str]) -> str:
        return read.word(fields[key], what, known) if key in fields else ""

    mode = RouteMode(read.word(fields["mode"], "mode", tuple(RouteMode)) or RouteMode.GUARD)
    methods = read.words(fields["methods"], "method", METHODS)
    if not methods and fields["methods"].sort == "list":
        read.faults.add(fields["methods"].place, "empty_list", "no method is listed", "name one")
    wanted, excluded = (
        ("operation", "upstream") if mode is RouteMode.GUARD else ("upstream", "operation")
    )
    if wanted not in fields:
        read.faults.add(node.place, "missing_key", f"mode `{mode}` needs `{wanted}`", "write it")
    if excluded in fields:
        read.faults.add(
            fields[excluded].place, "stray_key", f"mode `{mode}` takes no `{excluded}`", "remove it"
        )
    upstream = word("upstream", "upstream", tuple(upstreams))
    if mode is RouteMode.GUARD_JSON and upstream and upstreams[upstream].facets is None:
        read.faults.add(
            node.place,
            "no_facets",
            f"upstream `{upstream}` has no facets map, so its units could not be inspected",
            "write the map in upstreams.yaml",
        )
    path = fields["path"].text
    return Route(
        id=name,
        path=path,
        segments=_segments(read, fields["path"]),
        methods=methods,
        mode=mode,
        upstream=upstream,
        operation=word("operation", "operation", OPERATIONS),
        tool=word("tool", "tool", vocabulary.tools),
        anonymous=word("anonymous", "audience", vocabulary.audiences),
        origins=_origins(read, fields["origins"], mode, methods) if "origins" in fields else (),
    )


def _origins(read: Reader, node: Node, mode: RouteMode, methods: Sequence[str]) -> tuple[str, ...]:
    """Whose pages may open a WebSocket on an opaque route."""
    if mode is not RouteMode.OPAQUE:
        reason = f"mode `{mode}` opens no socket: its frames could not be inspected"
        read.faults.add(node.place, "stray_key", reason, "remove it")
    elif "GET" not in methods:
        reason = "a socket is opened by GET, which this route does not take"
        read.faults.add(node.place, "stray_key", reason, "add GET to its methods, or remove it")
    if node.sort == "list" and not node.items:
        read.faults.add(node.place, "empty_list", "no origin is listed", "name one, or remove it")
    origins = read.texts(node, "origin", ORIGIN)
    for item, origin in zip(node.items, origins, strict=True):
        scheme, _, port = origin.partition("://")[0], *origin.rpartition(":")[1:]
        if (scheme, port) in {("http", "80"), ("https", "443")}:
            reason = f"no browser sends {shown(origin)}: it leaves the scheme's own port out"
            read.faults.add(item.place, "malformed", reason, f"write it without `:{port}`")
    return origins


def _segments(read: Reader, node: Node) -> tuple[Segment, ...]:
    if node.sort != "text" or not node.text.startswith("/"):
        if node.sort != "broken":
            read.faults.add(node.place, "bad_path", "a path starts with `/`", "write it so")
        return ()
    parts = node.text.split("/")[1:]
    if parts[0] in OWN:
        reason = f"`/{parts[0]}/` is the gateway's own, which no route is asked about"
        read.faults.add(node.place, "own_path", reason, "begin the path with another segment")
        return ()
    segments: list[Segment] = []
    for position, part in enumerate(parts):
        named = _NAMED.fullmatch(part)
        if named and named[2] and position == len(parts) - 1:
            segments.append(Segment(SegmentSort.REST, named[1]))
        elif named and not named[2]:
            segments.append(Segment(SegmentSort.NAME, named[1]))
        elif _LITERAL.fullmatch(part):
            segments.append(Segment(SegmentSort.LITERAL, part))
        else:
            read.faults.add(
                node.place,
                "bad_path",
                f"segment {shown(part)} is neither plain text, `{{name}}` nor a last `{{name...}}`",
                "patterns inside a segment, dot segments and empty segments are not allowed",
            )
    names = [s.text for s in segments if s.sort is not SegmentSort.LITERAL]
    if len(set(names)) != len(names):
        read.faults.add(node.place, "bad_path", "a name stands twice in the path", "rename one")
    return tuple(segments)


def _answers(route: Route) -> set[str]:
    """Its methods. HEAD is the GET whose head it asks for: a proxy's is decided as one, so both
    are of one route."""
    return {"GET" if method == "HEAD" else method for method in route.methods}


def _overlap(a: Sequence[Segment], b: Sequence[Segment]) -> bool:
    """Whether one canonical path could match both patterns."""
    for left, right in zip(a, b, strict=False):
        if SegmentSort.REST in (left.sort, right.sort):
            return True
        if left.sort is right.sort is SegmentSort.LITERAL and left.text != right.text:
            return False
    return len(a) == len(b)
