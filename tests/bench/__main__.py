"""``python -m tests.bench [SUITE] [--json FILE] [--rounds N]``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tests.bench import (
    decide,
    decisions,
    forward_auth,
    index,
    live,
    machine,
    proxy,
    relay,
    reload,
    retrieve,
    shadow,
    streams,
)
from tests.bench.scale import suite

SUITES: Final[Mapping[str, Callable[[Console, int], dict[str, Any]]]] = {
    "decide": decide.run,
    "decisions": decisions.run,
    "forward-auth": forward_auth.run,
    "index": index.run,
    "live": live.run,
    "proxy": proxy.run,
    "relay": relay.run,
    "reload": reload.run,
    "retrieval": suite.run,
    "retrieve": retrieve.run,
    "shadow": shadow.run,
    "streams": streams.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=sorted(SUITES), help="all when not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--rounds", type=int, default=3, help="how often all is asked (default 3)")
    given = parser.parse_args()
    out = Console(width=120)
    figures: dict[str, Any] = {}
    for name in [given.suite] if given.suite else sorted(SUITES):
        before = machine.described()
        out.print(f"\n[bold]{name}[/]: {machine.line(before)}")
        figures[name] = {"machine": before, **SUITES[name](out, given.rounds)}
        figures[name]["load_after"] = machine.described()["load_average"]
        out.print(f"load average at the end: {figures[name]['load_after']}")
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
