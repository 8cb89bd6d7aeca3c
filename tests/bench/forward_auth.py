"""A proxy that relays and asks the gateway: processor time of both, beside Envoy's own checks.

Each proxy runs with the file that ships for it. Proxy and gateway share one core, load and
upstream the other; the gateway's part is the decision, which is also what a proxy waits for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench import proxy
from tests.bench.proxy_load import PROXY_CORE, Load, cpu_seconds, measured, pinned
from tests.bench.proxy_peers import Peer, peers, started, upstream
from tests.gateway.tokens import Issuers
from tests.ports import free_port
from tests.system.proxies.conftest import PEERS
from tests.system.proxies.kinds import KINDS, Kind, Ports

DECISION_MAX_US: Final = 60.0
NGINX_MAX: Final = 0.95
"""Issue 4: the decision alone, and nginx with our decision to Envoy with its own checks."""


def run(out: Console, rounds: int) -> dict[str, Any]:
    if missing := [one for one in ("wrk", "nginx") if shutil.which(one) is None]:
        out.print(f"left out: {' and '.join(missing)} not installed (Debian has both)")
        return {"left_out": missing}
    issuers = Issuers()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        behind = stack.enter_context(upstream(folder, {proxy.SMALL: b"x" * 1024}))
        sharing = stack.enter_context(proxy.gateway(folder, behind, issuers, trusted=PEERS))
        signing = stack.enter_context(
            proxy.gateway(
                folder / "each",
                behind,
                issuers,
                trusted=PEERS,
                upstream=proxy.SIGNED,
                name=proxy.EACH,
            )
        )
        fronts = [
            (stack.enter_context(_front(kind, folder / kind.name, sharing, behind)), sharing)
            for kind in KINDS.values()
            if kind.program() is not None
        ]
        each = stack.enter_context(_front(KINDS["nginx"], folder / "nginx-each", signing, behind))
        itself = stack.enter_context(peers(folder, behind, issuers, only=proxy.GUARDED))
        asked = [*fronts, (each, signing), *((one, sharing) for one in itself)]
        found = _rounds(asked, proxy.loads(folder, issuers)["1 KiB"], rounds)
    _print(out, found)
    return {
        "seconds": proxy.SECONDS,
        "rounds": found,
        "medians": {name: _medians(parts) for name, parts in found.items()},
        "bars": {"decision_us": DECISION_MAX_US, "nginx_to_envoy": NGINX_MAX},
    }


@contextlib.contextmanager
def _front(kind: Kind, folder: Path, gateway: Peer, behind: int) -> Iterator[Peer]:
    folder.mkdir()
    port = free_port()
    kind.write(folder, Ports(gateway.port, behind, port))
    home = {"XDG_DATA_HOME": os.fspath(folder), "XDG_CONFIG_HOME": os.fspath(folder)}
    line = pinned(PROXY_CORE, *kind.line(kind.start, folder))
    with started(line, port, folder, GOMAXPROCS="1", **home) as pid:
        signed = ", each signed" if gateway.name == proxy.EACH else ""
        yield Peer(f"{kind.name} + decision{signed}", pid, port)


Found = dict[str, dict[str, list[float]]]


def _rounds(fronts: list[tuple[Peer, Peer]], load: Load, rounds: int) -> Found:
    """Proxy -> part -> one figure a round: us of processor time of proxy and decision.

    ``fronts`` are proxies, each with the gateway that it asks.
    """
    found: Found = {front.name: {"proxy": [], "decision": []} for front, _ in fronts}
    for number in range(rounds + 1):
        for front, gateway in fronts:
            before = cpu_seconds(gateway.pid)
            cost = measured(front.pid, front.port, load)
            spent = cpu_seconds(gateway.pid) - before
            if number:  # the first one warms
                found[front.name]["proxy"].append(round(cost.cpu_us, 2))
                found[front.name]["decision"].append(round(spent / cost.requests * 1e6, 2))
    return found


def _medians(parts: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(values), 2) for name, values in parts.items()}


def _print(out: Console, found: Found) -> None:
    table = Table("who checks", "proxy us", "decision us", "both", "to Envoy's own", "bar")
    # of the gateway's part nothing is Envoy's: it was asked nothing meanwhile
    envoy = _medians(found[proxy.GUARDED])["proxy"] if proxy.GUARDED in found else None
    for name, parts in found.items():
        medians = _medians(parts)
        both = medians["proxy"] if name == proxy.GUARDED else sum(medians.values())
        ratio = f"{both / envoy:.2f}" if envoy else ""
        bar = ""
        if name.startswith("nginx"):
            holds = medians["decision"] <= DECISION_MAX_US
            bar = f"decision {'holds' if holds else 'SHORT'}: at most {DECISION_MAX_US:.0f} us"
            if envoy:
                word = "holds" if both / envoy <= NGINX_MAX else "SHORT"
                bar += f"; both {word}: at most {NGINX_MAX} of Envoy"
        decision = "" if name == proxy.GUARDED else f"{medians['decision']:.1f}"
        table.add_row(name, f"{medians['proxy']:.1f}", decision, f"{both:.1f}", ratio, bar)
    out.print(table)
