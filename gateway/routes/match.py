"""Station *match*: which route of the snapshot a canonical path is, if any.

Only the last parameter of a guarded route may hold the escape ``%23``: canonical addresses
contain ``#``, and a raw ``#`` never reaches a server. It is decoded here, once, and nowhere
else; on every other route the escape is refused like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.errors import Code, Refusal
from gateway.ingress.normalise import plain
from policies.bindings import Route, RouteMode, SegmentSort


def find(
    routes: Iterable[Route], segments: tuple[str, ...], method: str
) -> tuple[Route, Mapping[str, str]]:
    """The one route for these segments, and its named parts, decoded.

    Raises: Refusal ``not_found`` (no route or more than one), ``bad_path`` (an escape where
    none may stand), ``method_not_allowed`` with the methods that are.
    """
    parts = segments or ("",)
    found = [(route, names) for route in routes if (names := route.names_of(parts)) is not None]
    if len(found) != 1:
        raise Refusal(Code.NOT_FOUND, "no single route")
    route, names = found[0]
    fixed = segments[: len(route.segments) - 1] if _takes_address(route) else segments
    if not all(map(plain, fixed)):
        raise Refusal(Code.BAD_PATH, "an escape outside an address")
    if method not in route.methods:
        allow = ", ".join(route.methods).encode("ascii")
        raise Refusal(Code.METHOD_NOT_ALLOWED, method, headers=((b"allow", allow),))
    return route, {name: value.replace("%23", "#") for name, value in names.items()}


def _takes_address(route: Route) -> bool:
    return route.mode is RouteMode.GUARD and route.segments[-1].sort is SegmentSort.REST
