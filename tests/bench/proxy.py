"""Our data plane beside other proxies: processor time per request, as a ratio to each.

Every proxy has one core for itself, load and upstream share the other; rounds alternate, so
that what else the machine does meets all of them. The figure is the time of all processes of a
proxy, which hardly moves with the load of the machine, not requests per second, which do.

The gateway is `gateway serve` with its shipped settings: policy, verified tokens, a span of every
20th request, counters, one line per request. It runs twice: as shipped, when GETs of one caller
for one target share a signed assertion for seconds, and with an upstream that asks for a signature
with each request, which no peer makes.
``BENCH_PYTHON`` names another interpreter of the same version for it: one that was built without
profile-guided optimisation takes a sixth more, and calls of functions twice as long.
``BENCH_SECONDS`` is the length of one round.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.proxy_load import PROXY_CORE, Cost, Load, measured, pinned, settled
from tests.bench.proxy_peers import ROOT, Peer, peers, upstream
from tests.bench.proxy_plot import drawn
from tests.gateway.cli.made import clean
from tests.gateway.tokens import Issuers
from tests.services import cluster_of, embedded_pair, fresh_database

OURS: Final = "gateway"
EACH: Final = "gateway, each signed"
SIGNED: Final = 'assertion = "each"'
GUARDED: Final = "Envoy jwt+RBAC"
SMALL: Final = "/portal/employee/small"
LARGE: Final = "/portal/employee/large"
TOKENS: Final = 2_000
PYTHON: Final = os.environ.get("BENCH_PYTHON", sys.executable)
SECONDS: Final = int(os.environ.get("BENCH_SECONDS", "3"))
CASES: Final = {
    "1 KiB": "1 KiB GET, one RS256 token",
    "ES256": "1 KiB GET, 2,000 ES256 tokens in turn, seen before",
    "new": "1 KiB GET, ES256 tokens never seen before",
    "64 KiB": "64 KiB GET, one RS256 token",
    "alone": "1 KiB GET, one connection: median ms less the upstream's own",
}
UNITS: Final = {case: "added ms" if case == "alone" else "us CPU a request" for case in CASES}
_WARM_S: Final = 3
BARS: Final = {
    ("1 KiB", GUARDED): 0.85,
    ("1 KiB", "nginx"): 7.0,
    ("ES256", GUARDED): 0.8,
    ("64 KiB", GUARDED): 1.1,
    ("alone", GUARDED): 1.0,
}
"""Issue 4, "Must hold": at most so many times the peer."""


def run(out: Console, rounds: int) -> dict[str, Any]:
    if missing := [one for one in ("wrk", "nginx") if shutil.which(one) is None]:
        out.print(f"left out: {' and '.join(missing)} not installed (Debian has both)")
        return {"left_out": missing}
    issuers = Issuers()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        files = {SMALL: b"x" * 1024, LARGE: b"x" * 65_536}
        behind = stack.enter_context(upstream(folder, files))
        all_of = stack.enter_context(peers(folder, behind, issuers))
        all_of += [
            stack.enter_context(gateway(folder, behind, issuers)),
            stack.enter_context(
                gateway(folder / "each", behind, issuers, upstream=SIGNED, name=EACH)
            ),
        ]
        asked = loads(folder, issuers)
        fresh = [rotation(folder, issuers, f"fresh-{number}") for number in range(rounds)]
        found = _rounds(out, all_of, behind, asked, fresh)
    medians = _medians(found)
    out.print(f"gateway: {(built := interpreter())}")
    _print(out, medians, found)
    svg = ROOT / "build" / "bench-proxy.svg"
    svg.parent.mkdir(exist_ok=True)
    svg.write_text(drawn(CASES, medians, UNITS), "utf-8")
    out.print(f"plot: build/{svg.name}")
    return {
        "seconds": SECONDS,
        "interpreter": built,
        "cases": CASES,
        "rounds": found,
        "medians": medians,
        "bars": [
            {
                "case": case,
                "peer": peer,
                "at_most": bar,
                "ratio": _ratio(medians, case, OURS, peer),
                "ratio_each_signed": _ratio(medians, case, EACH, peer),
            }
            for (case, peer), bar in BARS.items()
            if peer in medians[case]
        ],
    }


def interpreter() -> str:
    """What runs the gateway, and how fast: builds of one version differ by a factor of two."""
    ask = (
        "import platform, timeit; took = min(timeit.repeat('for n in range(1000): f(n)',"
        " 'def f(n): return (n, str(n), {1: n})', number=100, repeat=20)) * 10; print("
        "f'Python {platform.python_version()}, {took:.2f} us a call of a small function')"
    )
    done = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _packages() -> dict[str, str]:
    """Where another interpreter finds the packages of this one."""
    return {"PYTHONPATH": os.pathsep.join((os.fspath(ROOT), sysconfig.get_paths()["purelib"]))}


def loads(folder: Path, issuers: Issuers) -> dict[str, Load]:
    """What is asked in each case."""
    rs256 = staff_token(issuers, "u-1", rsa=True)
    return {
        "1 KiB": Load(connections=32, seconds=SECONDS, path=SMALL, token=rs256),
        "ES256": rotation(folder, issuers, "u"),
        "64 KiB": Load(connections=32, seconds=SECONDS, path=LARGE, token=rs256),
        "alone": Load(connections=1, seconds=max(1, SECONDS // 2), path=SMALL, token=rs256),
    }


def rotation(folder: Path, issuers: Issuers, whose: str) -> Load:
    """``TOKENS`` ES256 tokens, each of somebody else, one after the other."""
    texts = [staff_token(issuers, f"{whose}-{number}") for number in range(TOKENS)]
    script = folder / f"{whose}.lua"
    script.write_text(
        "local t = {" + ",".join(f'"{text}"' for text in texts) + "}\n"
        "local made, i = {}, 0\n"
        "init = function()\n"
        "  for n, one in ipairs(t) do\n"
        '    made[n] = wrk.format("GET", nil, {["Authorization"] = "Bearer " .. one})\n'
        "  end\nend\n"
        "request = function() i = i % #made + 1; return made[i] end\n"
    )
    return Load(connections=32, seconds=SECONDS, path=SMALL, script=script)


def staff_token(issuers: Issuers, sub: str, *, rsa: bool = False) -> str:
    """A token of an employee that outlives the run."""
    claims = issuers.claims(
        "idp:staff",
        sub=sub,
        exp=int(time.time()) + 3_500,
        groups=["staff-all"],
        tenants=["acme"],
    )
    return issuers.sign("idp:staff", claims, key=issuers.rsa if rsa else None)


@contextlib.contextmanager
def gateway(
    folder: Path,
    behind: int,
    issuers: Issuers,
    *,
    trusted: str = "",
    routes: str = "",
    upstream: str = "",
    name: str = OURS,
) -> Iterator[Peer]:
    """`gateway serve` on the proxy's core; its stores run beside it and do nothing.

    ``trusted`` is the text of ``trusted_peers.yaml``, if proxies ask it; ``routes`` that of
    ``routes.yaml``, if it is not the shipped one; ``upstream`` a line more for its settings.
    """
    folder.mkdir(exist_ok=True)
    overlay = folder / "overlay"
    issuers.write(overlay)
    policy = folder / "policy"
    ours = ROOT / "policies"
    shutil.copytree(ours, policy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copytree(overlay, policy, dirs_exist_ok=True)
    if trusted:
        (policy / "rules" / "trusted_peers.yaml").write_text(trusted)
    if routes:
        (policy / "rules" / "routes.yaml").write_text(routes)
    config = folder / "gateway.toml"
    config.write_text(
        f'[upstreams.employee-portal]\naddress = "http://127.0.0.1:{behind}"\n{upstream}\n'
        f'[telemetry]\ntrace_file = "{folder}/spans.jsonl"\n'
    )
    with embedded_pair() as pair, fresh_database(cluster_of(pair)) as database:
        settings = {
            "GATEWAY_CONFIG": os.fspath(config),
            "GATEWAY_POLICY": os.fspath(policy),
            "GATEWAY_DATABASE_URL": database.url,
            "GATEWAY_DATABASE_SECRET": database.secret,
            "GATEWAY_QDRANT_URL": pair.qdrant_url,
            "GATEWAY_QDRANT_API_KEY": pair.qdrant_api_key,
            "GATEWAY_EMBEDDER": "hashing-64",
            "GATEWAY_LISTEN": "127.0.0.1:0",
            "GATEWAY_ADMIN_LISTEN": "127.0.0.1:0",
            "GATEWAY_STATE": os.fspath(folder / "state"),
        }
        with (
            (folder / "access.log").open("wb") as log,
            subprocess.Popen(
                pinned(PROXY_CORE, PYTHON, "-m", "gateway", "serve"),
                env=clean() | settings | _packages(),
                stdout=log,
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
        ):
            try:
                assert process.stderr is not None
                told = process.stderr.readline()
                while "listening on" not in told:
                    assert told, "the gateway did not start"
                    told = process.stderr.readline()
                url = told.split("listening on ")[1].split()[0]
                settled(process.pid)
                yield Peer(name, process.pid, int(url.rpartition(":")[2]))
            finally:
                process.terminate()
                process.communicate(timeout=60)


Found = dict[str, dict[str, list[float]]]


def _rounds(
    out: Console, all_of: list[Peer], behind: int, asked: dict[str, Load], fresh: list[Load]
) -> Found:
    """Case -> proxy -> one figure for each of ``fresh``: us of processor time, for *alone* added
    ms."""
    found: Found = {case: {peer.name: [] for peer in all_of} for case in CASES}
    for peer in all_of:  # connections, token cache, code
        measured(peer.pid, peer.port, replace(asked["1 KiB"], seconds=1))
    for number, unseen in enumerate(fresh):
        # so short that no token comes twice
        for case, load in {**asked, "new": replace(unseen, seconds=1)}.items():
            direct = measured(0, behind, load).p50_ms if case == "alone" else 0.0
            for peer in all_of:
                if case == "ES256":  # a token is believed for a minute, a round takes longer
                    measured(peer.pid, peer.port, replace(load, seconds=_WARM_S))
                cost = measured(peer.pid, peer.port, load)
                found[case][peer.name].append(_figure(case, cost, direct))
        load_now = f"load {os.getloadavg()[0]:.1f}"
        out.print(f"round {number + 1} of {len(fresh)}, {load_now}", style="dim")
    return found


def _figure(case: str, cost: Cost, direct_ms: float) -> float:
    return round(cost.p50_ms - direct_ms, 4) if case == "alone" else round(cost.cpu_us, 2)


def _medians(found: Found) -> dict[str, dict[str, float]]:
    return {
        case: {name: round(statistics.median(values), 3) for name, values in of.items()}
        for case, of in found.items()
    }


def _ratio(medians: dict[str, dict[str, float]], case: str, ours: str, peer: str) -> float:
    return round(medians[case][ours] / medians[case][peer], 3)


def _print(out: Console, medians: dict[str, dict[str, float]], found: Found) -> None:
    for case, title in CASES.items():
        heads = ("proxy", UNITS[case], "rounds", "ours / theirs", "each signed / theirs", "bar")
        table = Table(*heads, title=title)
        for name, median in sorted(medians[case].items(), key=lambda one: one[1]):
            ratios = [_ratio(medians, case, ours, name) for ours in (OURS, EACH)]
            bar = BARS.get((case, name))
            words = ["holds" if bar is not None and one <= bar else "SHORT" for one in ratios]
            met = "" if bar is None else f"at most {bar}: {words[0]}, each signed {words[1]}"
            each = " ".join(f"{value:.3g}" for value in found[case][name])
            told = [f"{one:.2f}" for one in ratios]
            table.add_row(name, f"{median:.3g}", each, *told, met)
        out.print(table)
