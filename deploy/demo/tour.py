"""The guided tour: eight steps, each some claims that are put to the running gateway."""

from __future__ import annotations

import time
from typing import Final

import httpx
import psycopg
from rich.console import Console
from rich.markup import escape

from deploy.demo.claims import Tour
from deploy.demo.expected import documents
from deploy.demo.stage import Stage
from deploy.demo.steps import (
    audiences,
    consent,
    hidden,
    leak,
    narrowing,
    portals,
    withdrawal,
)
from deploy.demo.voice import Voice

STEPS: Final = (
    ("Four audiences ask the same question", audiences.same_question),
    ("Units asked for by address, whatever their label", audiences.by_address),
    ("Hidden and absent are the same answer", hidden.same_bytes),
    ("A request can narrow and never widen", narrowing.only_narrower),
    ("A portal retrieves for its user, and never as itself", portals.for_the_user),
    ("High risk needs a consent", consent.given_and_taken),
    ("A planted leak is caught, traced and escalated", leak.caught),
    ("A withdrawn unit is gone at once", withdrawal.at_once),
)


class GatewayGone(Exception):
    """Nothing answers any more: the gateway was stopped, or fell over."""


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
        for number, (title, walk) in enumerate(STEPS, start=1):
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
