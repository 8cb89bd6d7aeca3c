"""``gateway metrics``: the eight rates of retrieval, by day and audience, and gaps without room."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.labels import Format, FormatOption
from gateway.cli.signal_page import as_json
from gateway.cli.signal_reading import ROLE, overflow, rates
from gateway.cli.station import station
from gateway.cli.terminal import columns

_KEEPER: Final = "gw_metric"
_TITLES: Final = ("day", "audience", "metric", "rate", "counted", "of")


def metrics(
    days: Annotated[int, typer.Option("--days", min=1, max=3_660, help="How many days.")] = 7,
    audience: Annotated[
        str | None, typer.Option("--audience", metavar="NAME", help="This audience only.")
    ] = None,
    output: FormatOption = Format.TEXT,
    config: ConfigOption = None,
) -> None:
    """Show how retrieval does: hits, fallbacks, gaps and what readers said of packs."""
    settings = settings_of(config)
    with station(settings, _KEEPER) as keeper:
        keeper.execute("select brain.refresh_metrics()")
    with station(settings, ROLE) as connection:
        found = rates(connection, days=days, audience=audience)
        held = overflow(connection, days=days, audience=audience)
    if output is Format.JSON:
        for row in found:
            print(as_json(row))
        for row in held:
            print(as_json({**row, "metric": "gaps_without_room"}))
        return
    if not found:
        print("nothing was asked")
    else:
        for text in columns([_TITLES, *map(_columns, found)]):
            print(text)
    for row in held:
        print(f"{row['day']:%Y-%m-%d}: no room for {row['gaps']} gaps of {row['audience']}")


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['day']:%Y-%m-%d}",
        row["audience"],
        row["metric"],
        f"{row['rate']:.1%}",
        str(row["numerator"]),
        str(row["denominator"]),
    )
