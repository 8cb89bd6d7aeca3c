"""What a step of the tour works with: it puts claims to the running gateway and marks each.

What an answer should be is never asked of the gateway: it comes from ``expected`` (the corpus
files and the written rules), from the journal's rows and from the trace file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import psycopg
from psycopg.rows import TupleRow
from rich.console import Console
from rich.markup import escape

from deploy.demo.expected import Document
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


def normalised(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Status, body and headers of an answer without what belongs to one request alone.

    A pack's id is drawn anew for each delivery: it says nothing of what the pack holds.
    """
    body = answer.json()
    if isinstance(body, dict):
        body.pop("request_id", None)
        for pack in body.get("packs", ()):
            pack.pop("pack_id")
    names = ("x-request-id", "date", "content-length")
    headers = {name: value for name, value in answer.headers.items() if name not in names}
    return answer.status_code, body, headers
