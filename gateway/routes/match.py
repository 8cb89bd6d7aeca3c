"""Station *match*: which route of the snapshot a canonical path is, if any.

A path that ends in a slash is on a relayed route that takes the rest, or refused as a path.
Only the last parameter of a guarded route may hold the escape ``%23``: canonical addresses
contain ``#``, and a raw ``#`` never reaches a server. It is decoded here, once, and nowhere
else; on every other route the escape is refused like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.errors import Code, Refusal
from gateway.ingress.normalise import ends_in_slash, plain
from policies.bindings import Route, RouteMode, SegmentSort


def find(
    routes: Iterable[Route], segments: tuple[str, ...], method: str
) -> tuple[Route, Mapping[str, str]]:
    """The one route for these segments and this method, and its named parts, decoded.

    Raises: Refusal ``not_found`` (no route, or more than one), ``bad_path`` (an escape or a slash
    at the end where none may stand), ``method_not_allowed`` with the methods that are.
    """
    parts = segments or ("",)
    here = [(route, names) for route in routes if (names := route.names_of(parts)) is not None]
    if not here and ends_in_slash(segments):
        raise Refusal(Code.BAD_PATH, "a slash at the end, and no relayed route for it")
    if not here:
        raise Refusal(Code.NOT_FOUND, "no route")
    read = [one for one in here if _has_one_reading(one[0], segments)]
    if not read:
        raise Refusal(Code.BAD_PATH, "an escape outside an address")
    found = [one for one in read if method in one[0].methods]
    if not found:
        methods = dict.fromkeys(name for route, _ in read for name in route.methods)
        allow = ", ".join(methods).encode("ascii")
        raise Refusal(Code.METHOD_NOT_ALLOWED, method, headers=((b"allow", allow),))
    if len(found) > 1:
        raise Refusal(Code.NOT_FOUND, "more than one route")
    route, names = found[0]
    return route, {name: value.replace("%23", "#") for name, value in names.items()}


def _has_one_reading(route: Route, segments: tuple[str, ...]) -> bool:
    """Whether no escape stands outside of an address. An empty segment is a slash at the end."""
    fixed = segments[: len(route.segments) - 1] if _takes_address(route) else segments
    return all(not segment or plain(segment) for segment in fixed)


def _takes_address(route: Route) -> bool:
    return route.mode is RouteMode.GUARD and route.segments[-1].sort is SegmentSort.REST
