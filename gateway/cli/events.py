"""``gateway events``: what the journal holds, and whether anybody has touched it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure, of_database
from gateway.cli.terminal import columns
from gateway.compose.stores import attached
from gateway.journal.chain import EMPTY, Head
from gateway.journal.reading import Verdict, newest, newest_uses
from gateway.journal.reading import verify as verify_chain

_TITLES: Final = ("time", "kind", "audience", "layer", "units", "action", "trace id", "seal")
_USE_TITLES: Final = ("time", "action", "effect", "roles", "subject", "told", "reason")

app: Final = typer.Typer(help="Security events and operators' uses: list them, verify their chain.")


@app.callback(invoke_without_command=True)
def events(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 50,
    config: ConfigOption = None,
) -> None:
    """List the newest security events with their trace ids."""
    if context.invoked_subcommand is not None:
        return
    rows = asyncio.run(_newest(config, limit))
    if as_json:
        for row in rows:
            sys.stdout.write(json.dumps(row, default=_word) + "\n")
        return
    if not rows:
        print("no security events")
        return
    for text in columns([_TITLES, *map(_columns, rows)]):
        print(text)


@app.command("access")
def access(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 50,
    config: ConfigOption = None,
) -> None:
    """List what operators asked of the running gateway, and why; the newest first."""
    rows = asyncio.run(_uses(config, limit))
    if as_json:
        for row in rows:
            sys.stdout.write(json.dumps(row, default=_word) + "\n")
        return
    if not rows:
        print("no operator has asked anything")
        return
    for text in columns([_USE_TITLES, *map(_use, rows)]):
        print(text)


@app.command("verify")
def verify(
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="POSITION:HASH", help="A head that was noted earlier."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Check the chain over all events; exit 1 when anything was changed or is missing."""
    try:
        kept = EMPTY if head is None else Head.parse(head)
    except ValueError as error:
        raise Failure(Exit.USAGE, "usage", str(error), "copy it from an earlier run") from error
    verdict = asyncio.run(_verify(config, kept))
    for finding in verdict.findings:
        print(f"damaged: {finding}")
    print(f"head: {verdict.head}")
    if verdict.unsealed:
        print(f"not sealed yet: {verdict.unsealed}")
    if not verdict.intact:
        reason = f"{len(verdict.findings)} findings in the journal"
        remedy = "keep the database as it is and compare it with a backup"
        raise Failure(Exit.REFUSED, "journal_damaged", reason, remedy)
    print(f"intact: {verdict.head.position} events")


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    when: datetime = row["occurred_at"]
    seal = row["sealed_at_position"]
    return (
        f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        row["kind"],
        row["audience"],
        row["layer"],
        str(row["unit_count"]),
        row["action"],
        row["trace_id"],
        "-" if seal is None else str(seal),
    )


def _use(row: dict[str, Any]) -> tuple[str, ...]:
    when: datetime = row["occurred_at"]
    told = " ".join(f"{name}={value}" for name, value in sorted(row["told"].items()))
    return (
        f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        row["action"],
        row["effect"],
        " ".join(row["roles"]),
        row["subject_hash"][:12],
        told or "-",
        row["reason"],
    )


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"`{type(value).__name__}` has no JSON form")


async def _newest(config: Path | None, limit: int) -> list[dict[str, Any]]:
    async with _journal(config) as connection:
        return await newest(connection, limit=limit)


async def _uses(config: Path | None, limit: int) -> list[dict[str, Any]]:
    async with _journal(config) as connection:
        return await newest_uses(connection, limit=limit)


async def _verify(config: Path | None, kept: Head) -> Verdict:
    async with _journal(config) as connection:
        return await verify_chain(connection, kept=kept)


@asynccontextmanager
async def _journal(
    config: Path | None,
) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
    """A connection that may read the journal, to the running or the configured database."""
    from gateway.compose.database import station_dsn  # late: it loads every house, a second or two

    with attached(settings_of(config)) as stores:
        try:
            connection = await psycopg.AsyncConnection.connect(
                station_dsn(stores, "gw_seal"), autocommit=True, connect_timeout=10
            )
        except psycopg.Error as error:
            raise of_database(error) from error
        async with connection:
            yield connection
