"""``gateway signals``: gaps that callers met, what owners do about them, and what came of it.

They are read with an operator's login of the database. No question, no subject and no text of a
unit is in them; a word of questions is, once enough different subjects have used it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

import typer
import uvloop

from gateway.cli import signal_reading as reading
from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure
from gateway.cli.labels import Format, FormatOption
from gateway.cli.signal_page import (
    ITEM_TITLES,
    LOOP_TITLES,
    SIGNAL_TITLES,
    Row,
    as_json,
    item_columns,
    loop_columns,
    page,
    signal_columns,
)
from gateway.cli.signal_reading import ROLE
from gateway.cli.station import station
from gateway.cli.terminal import columns, line
from gateway.telemetry import process_log

app: Final = typer.Typer(
    help="Gaps that callers met: list them, close them, see what helped.", no_args_is_help=True
)


class Where(StrEnum):
    """The tables that gaps are routed to, and the signals behind them."""

    BACKLOG = "backlog"
    HEALTH = "health"
    GOVERNANCE = "governance"
    PROPOSALS = "proposals"
    CAPABILITY = "capability"
    SIGNALS = "signals"


class Outcome(StrEnum):
    """How an item ends: something was done about it, or nothing will be."""

    DONE = "done"
    REJECTED = "rejected"


IdArgument = Annotated[str, typer.Argument(metavar="ID", help="What `list` shows.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")]


@app.command("list")
def list_items(
    where: Annotated[Where, typer.Argument(help="Which table.")] = Where.BACKLOG,
    everything: Annotated[bool, typer.Option("--all", help="Closed ones, too.")] = False,
    limit: LimitOption = 50,
    output: FormatOption = Format.TEXT,
    config: ConfigOption = None,
) -> None:
    """List open items of one table; `signals` lists what was not routed, too."""
    state = None if everything else "open"
    with station(settings_of(config), ROLE) as connection:
        if where is Where.SIGNALS:
            found = reading.signals(connection, state=state, limit=limit)
            rows = [SIGNAL_TITLES, *map(signal_columns, found)]
        else:
            found = reading.items(connection, where.value, state=state, limit=limit)
            rows = [ITEM_TITLES, *map(item_columns, found)]
    _print(found, rows, output, nothing="no gaps")


@app.command("show")
def show(item: IdArgument, output: FormatOption = Format.TEXT, config: ConfigOption = None) -> None:
    """Show one item with its evidence, day by day."""
    with station(settings_of(config), ROLE) as connection:
        found = reading.item(connection, _id(item))
    if found is None:
        raise Failure(Exit.REFUSED, "not_found", f"no item `{item}`", "look with `signals list`")
    if output is Format.JSON:
        print(as_json(found))
        return
    for text in page(found):
        print(line(text))


@app.command("close")
def close(
    item: IdArgument,
    by: Annotated[str, typer.Option("--as", metavar="NAME", help="Who closes it.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept.")],
    outcome: Annotated[Outcome, typer.Option("--outcome", help="How it ended.")] = Outcome.DONE,
    config: ConfigOption = None,
) -> None:
    """Close one item. A gap that was `done` and is met again opens anew; a `rejected` one not.

    Each table is somebody else's work: items of the same gap in others stay open, and are named.
    """
    if not by.strip() or not reason.strip():
        raise Failure(Exit.USAGE, "usage", "a name or a reason is empty", "say who and why")
    with station(settings_of(config), ROLE) as connection:
        closed = reading.close(
            connection, _id(item), outcome=outcome.value, by=by.strip(), reason=reason.strip()
        )
        twins = reading.twins(connection, _id(item)) if closed else []
    if not closed:
        raise Failure(
            Exit.REFUSED, "not_open", f"no open item `{item}`", "look with `signals list --all`"
        )
    print(f"closed {item}: {outcome.value}")
    for where, twin in twins:
        print(f"the same gap is open in {where}: {twin}")


@app.command("report")
def report(
    limit: LimitOption = 50, output: FormatOption = Format.TEXT, config: ConfigOption = None
) -> None:
    """Show each gap from its first use to what came after it was closed."""
    with station(settings_of(config), ROLE) as connection:
        found = reading.loops(connection, limit=limit)
    _print(found, [LOOP_TITLES, *map(loop_columns, found)], output, nothing="no gap was routed")


@app.command("work")
def work(config: ConfigOption = None) -> None:
    """Be the worker behind signals, until SIGTERM or Ctrl-C; for gateways that start none."""
    from gateway.compose.signalling import signal_worker, until_signal
    from gateway.compose.stores import attached

    settings = settings_of(config)
    process_log.configure()
    with attached(settings) as stores:
        uvloop.run(until_signal(signal_worker(settings, stores)))


def _print(found: list[Row], rows: list[tuple[str, ...]], output: Format, *, nothing: str) -> None:
    if output is Format.JSON:
        for row in found:
            print(as_json(row))
    elif not found:
        print(nothing)
    else:
        for text in columns(rows):
            print(text)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise Failure(Exit.USAGE, "usage", f"`{text}` is no id", "copy it from a list") from error
