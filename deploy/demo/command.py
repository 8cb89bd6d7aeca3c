"""``python -m deploy.demo``: the whole thing on this machine, with a guided tour.

python -m deploy.demo           start, take the tour, stay until Ctrl-C
python -m deploy.demo --once    start, take the tour, stop; exit 1 when a claim is broken
python -m deploy.demo --fresh   remove what earlier starts stored, then as above
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console
from rich.markup import escape

from deploy.demo import tour
from deploy.demo.claims import QUESTION
from deploy.demo.people import CLIENTS, Realm
from deploy.demo.portals.app import PORTALS
from deploy.demo.stage import IndexLate, Stage, staged
from gateway.cli.failure import Exit
from gateway.compose.failure import CannotStart
from gateway.compose.signalling import signalling
from gateway.server import PortTaken
from gateway.settings import InvalidSettings
from gateway.settled import settle
from policies.errors import PolicyError
from retrieval.embedded import EmbeddedError

STOPPING_S: Final = 15.0


def main() -> int:
    """The exit code of the demo, once it has ended."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop after the tour")
    parser.add_argument(
        "--every-unit", action="store_true", help="check each unit for each reader (slow)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=os.environ.get("GATEWAY_STATE") or None,
        help="folder of data and secrets (GATEWAY_STATE)",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="begin anew: remove what the embedded stores of the folder hold",
    )
    given = parser.parse_args()
    out = Console(highlight=False, soft_wrap=True)
    try:
        return uvloop.run(
            _run(
                out,
                once=given.once,
                every_unit=given.every_unit,
                state=given.state,
                fresh=given.fresh,
            )
        )
    except PolicyError as error:
        return _fail(error, Exit.POLICY)
    except PortTaken as error:
        return _fail(error, Exit.PORT_TAKEN)
    except (CannotStart, EmbeddedError, IndexLate) as error:
        return _fail(error, Exit.UNAVAILABLE)
    except InvalidSettings as error:
        return _fail(error, Exit.USAGE)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _fail(error: Exception, code: Exit) -> int:
    for line in str(error).splitlines():
        print(f"demo: error: {line}", file=sys.stderr)
    return code


def _note(out: Console, text: str) -> None:
    out.print(f"[yellow]note[/]: {escape(text)}")


async def _run(
    out: Console, *, once: bool, every_unit: bool, state: Path | None, fresh: bool
) -> int:
    began = time.monotonic()
    out.print("[bold]audience-gateway demo[/]: the company Ferrowick, on this machine only")
    async with staged(state, fresh=fresh, tell=partial(_note, out)) as stage:
        settle()
        _started(out, stage)
        ended = asyncio.create_task(stage.gateway.wait())
        try:
            broken = await tour.take(stage, out, every_unit=every_unit)
        except tour.GatewayGone as error:
            await asyncio.wait({ended}, timeout=STOPPING_S)
            if ended.done():
                return Exit.INTERRUPTED
            return _fail(error, Exit.REFUSED)
        out.print(f"set-up and tour together: {time.monotonic() - began:.1f} s (no download)")
        if not once:
            _hints(out, stage)
            async with signalling(stage.settings, stage.gateway.stores):  # as `gateway serve`
                await ended
            out.print("stopped; it keeps its data for the next start")
        ended.cancel()
    if broken:
        out.print(f"[bold red]broken claims: {len(broken)}[/]")
        return Exit.REFUSED
    out.print("[bold green]all is right[/]")
    return 0


def _started(out: Console, stage: Stage) -> None:
    times = ", ".join(f"{name} {value:.1f} s" for name, value in stage.seconds.items())
    report = stage.report
    out.print(f"started: {times}")
    out.print(
        f"corpus: {report.accepted} new, {report.changed} changed, {report.unchanged} unchanged,"
        f" {report.quarantined} in quarantine (documents, threads, labels and links)"
    )
    for reason in report.reasons:
        out.print(f"  [dim]{escape(str(reason))}[/]")
    if report.waiting:  # somebody made a label of the corpus wider: the tour misses it
        out.print(f"{len(report.waiting)} label changes are not in effect: gateway labels pending")
    out.print(f"policy {stage.gateway.snapshot.digest[:12]}, gateway at {stage.gateway.url}")


def _hints(out: Console, stage: Stage) -> None:
    """What to try next; every line can be copied into another terminal."""
    names = ", ".join(one.name for one in CLIENTS if one.realm is not Realm.SERVICES)
    config = f" --config {stage.settings_file}" if stage.settings.state is not None else ""
    command = Path(os.path.relpath(Path(sys.executable).parent / "gateway"))
    lines = [
        *(
            f'{command} query "{QUESTION}" --as {name}{config}'
            for name in ("customer", "partner", "employee", "agent-incident")
        ),
        f"{command} events{config}",
        f"{command} events verify{config}",
    ]
    out.print("\n[bold]It stays up until Ctrl-C.[/] In another terminal:")
    for line in lines:
        out.print(f"  {escape(line)}")
    out.print(f"people: {names}")
    portal = f"{stage.gateway.url}{PORTALS[0].path}"
    out.print(f"a portal, without a credential: {portal}")
    token = f"$({command} token --as customer{config})"
    out.print(
        f"""  with one: curl -H "Authorization: Bearer {token}" '{portal}?q=refund+webhook'"""
    )
    out.print(f"traces, one JSON line per request: {escape(str(stage.trace_file))}")
    out.print("  or set OTEL_EXPORTER_OTLP_ENDPOINT before `make demo` to send them to a collector")
