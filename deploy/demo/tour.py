"""The guided tour: eight steps, each a claim that is put to the running gateway and checked.

What an answer should be is never asked of the gateway: it comes from ``expected`` (the corpus
files and the written rules), from the journal's rows and from the trace file.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import psycopg
from psycopg.rows import TupleRow
from rich.console import Console
from rich.markup import escape

from deploy.demo.expected import Document, documents
from deploy.demo.stage import Stage, index_caught_up
from deploy.demo.voice import Voice

QUESTION: Final = "What happens when a refund webhook fails?"

Database = psycopg.AsyncConnection[TupleRow]


@dataclass(slots=True)
class Tour:
    """What the steps work with, and what they found. ``failed`` names every claim that broke."""

    stage: Stage
    voice: Voice
    database: Database
    corpus: tuple[Document, ...]
    out: Console
    every_unit: bool
    failed: list[str] = field(default_factory=list)
    checked: int = 0

    def check(self, holds: bool, claim: str, found: object = "") -> bool:
        """Print one claim with its mark; ``found`` is shown when it does not hold."""
        self.checked += 1
        if holds:
            self.out.print(f"  [green]✓[/] {escape(claim)}")
        else:
            self.failed.append(claim)
            self.out.print(f"  [bold red]✗ {escape(claim)}[/] {escape(str(found)[:600])}")
        return holds

    def say(self, text: str) -> None:
        self.out.print(f"    [dim]{escape(text)}[/]")

    async def rows(self, query: str, *values: object) -> list[TupleRow]:
        """Rows of the record of truth, read as its owner."""
        return await (await self.database.execute(query.encode(), values)).fetchall()

    async def index_caught_up(self) -> None:
        await index_caught_up(self.stage.gateway)


class GatewayGone(Exception):  # noqa: N818 - reads as what it is
    """Nothing answers any more: the gateway was stopped, or fell over."""


Step = tuple[str, Callable[[Tour], Awaitable[None]]]


async def take(stage: Stage, out: Console, *, every_unit: bool = False) -> list[str]:
    """Walk all steps; the claims that did not hold, in order. Empty means all is right.

    ``every_unit`` asks for each unit of the corpus as each reader, not for one of each label.
    Raises GatewayGone when the gateway is stopped on the way.
    """
    async with (
        httpx.AsyncClient(trust_env=False, timeout=30.0) as http,
        await psycopg.AsyncConnection.connect(
            stage.gateway.stores.database_url, autocommit=True
        ) as database,
    ):
        voice = Voice(http, stage.gateway.url, stage.directory)
        tour = Tour(stage, voice, database, documents(), out, every_unit)
        for number, (title, walk) in enumerate(_steps(), start=1):
            out.print(f"\n[bold]{number}. {escape(title)}[/]")
            began = time.monotonic()
            try:
                await walk(tour)
            except (httpx.TransportError, psycopg.OperationalError) as error:
                raise GatewayGone(f"{type(error).__name__} in step {number}") from error
            except (httpx.HTTPError, psycopg.Error, LookupError, ValueError) as error:
                tour.check(
                    False, f"step {number} came to its end", f"{type(error).__name__}: {error}"
                )
            out.print(f"  [dim]{time.monotonic() - began:.1f} s[/]")
        out.print(f"\n{tour.checked} claims checked, {len(tour.failed)} broken")
        return tour.failed


def _steps() -> tuple[Step, ...]:
    from deploy.demo.steps import (  # late: the steps use the types above
        audiences,
        consent,
        hidden,
        leak,
        narrowing,
        portals,
        withdrawal,
    )

    return (
        ("Four audiences ask the same question", audiences.same_question),
        ("Units asked for by address, whatever their label", audiences.by_address),
        ("Hidden and absent are the same answer", hidden.same_bytes),
        ("A request can narrow and never widen", narrowing.only_narrower),
        ("A portal retrieves for its user, and never as itself", portals.for_the_user),
        ("High risk needs a consent", consent.given_and_taken),
        ("A planted leak is caught, traced and escalated", leak.caught),
        ("A withdrawn unit is gone at once", withdrawal.at_once),
    )


def normalised(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Status, body and headers of an answer without what belongs to one request alone."""
    body = answer.json()
    if isinstance(body, dict):
        body.pop("request_id", None)
    names = ("x-request-id", "date", "content-length")
    headers = {name: value for name, value in answer.headers.items() if name not in names}
    return answer.status_code, body, headers
