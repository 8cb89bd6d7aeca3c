"""``gateway selftest``: does the proxy in front really ask, and obey?

Run it against the proxy's own address, with the policy that the gateway serves. It sends
requests that must be refused and, where one is open, a control that must pass. It changes
nothing; with ``--as-upstream`` it stands in for the upstream and sees what arrives.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.cli.check import ConfigOption, OverlayOption, policy_of, settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.terminal import line
from gateway.cli.web import secure
from gateway.compose.state import running_here
from gateway.errors import Code, Refusal
from gateway.ingress.normalise import segments_of
from gateway.placement import ANONYMOUS
from gateway.settings import Settings
from gateway.surfaces.forward_auth.probing import Through, Upstream, standing_in
from gateway.surfaces.forward_auth.proving import Finding, Outcome, Subject, findings
from policies.bindings import Route, RouteMode, SegmentSort
from policies.snapshot import Snapshot

PART: Final = "selftest"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

ThroughOption = Annotated[
    str, typer.Option("--through", metavar="URL", help="The proxy, as callers reach it.")
]
PathOption = Annotated[
    str,
    typer.Option("--path", metavar="PATH", help="One no visitor may have. Default: by the policy."),
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A token of a caller who may have PATH."),
]
HostOption = Annotated[
    str, typer.Option("--host", metavar="NAME", help="The Host to send. Default: of the URL.")
]
UpstreamOption = Annotated[
    str,
    typer.Option(
        "--as-upstream",
        metavar="HOST:PORT",
        help="Listen where the proxy sends, instead of the portal, and look at what arrives.",
    ),
]


def selftest(
    through: ThroughOption,
    path: PathOption = "",
    token_file: TokenOption = None,
    as_upstream: UpstreamOption = "",
    host: HostOption = "",
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Prove that a proxy which asks for decisions refuses what it must."""
    settings = settings_of(config)
    _no_gateway(settings, _proxy(through), through)
    snapshot = policy_of(settings, overlay)
    closed = _canonical(path) if path else _closed(snapshot)
    opened = _visited(snapshot)
    lines: tuple[str, ...] = ()
    if token_file is not None:
        secure(through, "proxy")
        opened, lines = closed, (f"Authorization: Bearer {_token(token_file)}",)
    with contextlib.ExitStack() as stack:
        subject = Subject(
            through=_proxy(through),
            closed=closed,
            index=_index(snapshot, closed),
            open=opened,
            lines=lines,
            host=host,
            upstream=stack.enter_context(_standing_in(as_upstream)) if as_upstream else None,
        )
        _tell(_found(subject, through), through)


def _found(subject: Subject, through: str) -> list[Finding]:
    """Every finding, printed as it comes."""
    found: list[Finding] = []
    try:
        for finding in findings(subject):
            found.append(finding)
            print(f"{finding.outcome:<9}  {line(finding.claim)}: {line(finding.seen)}")
    except OSError as error:
        reason = f"`{through}` does not answer ({flat(error) or type(error).__name__})"
        raise Failure(Exit.UNAVAILABLE, "proxy_unreachable", reason, "is it started?") from error
    return found


def _tell(found: list[Finding], through: str) -> None:
    """How it came out. Raises: Failure unless every claim that was tried is shown."""
    counts = Counter(finding.outcome for finding in found)
    broken, undecided = counts[Outcome.BROKEN], counts[Outcome.UNDECIDED]
    if broken:
        reason = f"{broken} of {len(found)} claims do not hold through {line(through)}"
        remedy = "take it out of service, compare its file with the one in deploy/"
        raise Failure(Exit.REFUSED, "proxy_unsafe", reason, remedy)
    if undecided:
        reason = f"{undecided} of {len(found)} claims could not be decided through {line(through)}"
        remedy = (
            "does it reach gateway and portal, does rules/trusted_peers.yaml believe it, and is the"
            " control a page that exists? else name one by --path, with --token-file"
        )
        raise Failure(Exit.UNAVAILABLE, "undecided", reason, remedy)
    print(f"{counts[Outcome.SHOWN]} shown, {counts[Outcome.NOT_TRIED]} not tried")


def _proxy(through: str) -> Through:
    try:
        return Through.of(through)
    except ValueError as error:
        raise Failure(Exit.USAGE, "bad_address", flat(error), "name the proxy alone") from error


def _no_gateway(settings: Settings, proxy: Through, through: str) -> None:
    """Return unless that is the gateway itself, which has no proxy before it to be shown.

    Raises: Failure.
    """
    own = running_here(settings)
    if own is not None and _place(proxy) == _place(Through.of(own)):
        reason = f"`{line(through)}` is the gateway itself: nothing would be shown of a proxy"
        remedy = "name the address of the proxy that asks it for decisions"
        raise Failure(Exit.USAGE, "not_a_proxy", reason, remedy)


def _place(one: Through) -> tuple[str, int]:
    """Host and port; all names of this machine's loopback are one."""
    return "localhost" if one.host in _LOOPBACK else one.host, one.port


@contextlib.contextmanager
def _standing_in(address: str) -> Iterator[Upstream]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise Failure(Exit.USAGE, "bad_address", f"`{address}` is not HOST:PORT", "write it so")
    try:
        upstream = standing_in(host.strip("[]"), int(port))
    except OSError as error:
        reason = f"cannot listen on `{address}` ({flat(error.strerror)})"
        remedy = "stop the portal for the test, or point a test copy of the proxy here"
        raise Failure(Exit.PORT_TAKEN, "port_taken", reason, remedy) from error
    with upstream as arrived:
        yield arrived


def _token(path: Path) -> str:
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"the token file `{path}` cannot be read ({type(error).__name__})"
        raise Failure(Exit.USAGE, "token_unreadable", reason, "one token, one line") from error
    if not token or len(token.split()) != 1:
        reason = f"the token file `{path}` does not hold one token"
        raise Failure(Exit.USAGE, "token_unreadable", reason, "one token, one line")
    return token


def _canonical(path: str) -> str:
    try:
        if not segments_of(path.encode("utf-8")):
            raise Refusal(Code.BAD_PATH, "the root alone")
    except Refusal as refusal:
        reason = f"`{line(path)}` is no path with one reading ({refusal.reason})"
        raise Failure(Exit.USAGE, "bad_path", reason, "name one like /portal/x") from refusal
    return path


def _closed(snapshot: Snapshot) -> str:
    """A path of the first route that a proxy may ask about and no visitor may use."""
    for route in snapshot.routes:
        if _askable(route) and not _visitable(snapshot, route):
            return _path(route)
    reason = "the policy has no opaque route that is closed to visitors"
    raise Failure(Exit.USAGE, "no_path", reason, "name a path with --path")


def _index(snapshot: Snapshot, closed: str) -> str:
    """The directory of a path, a place of its own to many proxies; empty where it is no route's,
    which a proxy may give to whom it likes, or visitors may have it."""
    index = closed[: closed.rindex("/", 0, -1) + 1]
    parts = segments_of(index.encode("utf-8")) or ("",)
    taken = [route for route in snapshot.routes if route.names_of(parts) is not None]
    return index if taken and not any(_visitable(snapshot, route) for route in taken) else ""


def _visited(snapshot: Snapshot) -> str:
    """A path that visitors may have; empty: the policy opens none."""
    found = (route for route in snapshot.routes if _askable(route))
    return next((_path(route) for route in found if _visitable(snapshot, route)), "")


def _askable(route: Route) -> bool:
    return route.mode is RouteMode.OPAQUE and "GET" in route.methods


def _visitable(snapshot: Snapshot, route: Route) -> bool:
    return bool(route.anonymous) and snapshot.decide_route(ANONYMOUS, route.id, "GET").allowed


def _path(route: Route) -> str:
    words = [s.text if s.sort is SegmentSort.LITERAL else PART for s in route.segments]
    return "/" + "/".join(words)
