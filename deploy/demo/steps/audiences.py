"""One question, four right answers; and the whole corpus, unit by unit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import combinations
from typing import Final

from rich.table import Table

from deploy.demo.claims import QUESTION, Tour
from deploy.demo.expected import READERS, Document, allowed, titles
from deploy.demo.voice import addresses, gap_titles, thread_titles

THREAD: Final = "Refund webhooks"
ANSWERS: Final[Mapping[str, frozenset[str]]] = {
    "customer": frozenset({"refund-webhooks.faq", "refund-webhooks.refund-promise"}),
    "partner": frozenset({"refund-webhooks.retry-guide", "refund-webhooks.event-reference"}),
    "employee": frozenset({"refund-webhooks.replay-sop", "refund-webhooks.beacon-runbook"}),
    "agent-incident": frozenset({"refund-webhooks.incident-2031", "refund-webhooks.beacon-code"}),
}
"""What makes each audience's answer the right one: the units that it was written for."""

AT_ONCE: Final = 8
TASK: Final[Mapping[str, Mapping[str, str]]] = {"agent-assistant": {"task_scope": "answer"}}
"""Whose token carries several tasks must say which one it is at."""


async def same_question(tour: Tour) -> None:
    """The same words from four callers: each gets its own units and nobody else's."""
    tour.say(f"“{QUESTION}”")
    shown: dict[str, frozenset[str]] = {}
    for name, wanted in ANSWERS.items():
        answer = await tour.voice.ask(name, QUESTION)
        if not tour.check(answer.status_code == 200, f"{name}: answered", answer.text):
            continue
        shown[name] = addresses(answer)
        may_read = allowed(name, tour.corpus)
        tour.check(
            wanted <= shown[name],
            f"{name}: the units written for this audience are there",
            sorted(wanted - shown[name]),
        )
        tour.check(
            shown[name] <= may_read,
            f"{name}: all {len(shown[name])} units are among the {len(may_read)} that it may read",
            sorted(shown[name] - may_read),
        )
        tour.check(
            gap_titles(answer) <= titles(name, tour.corpus, sort="artifact")
            and thread_titles(answer) <= titles(name, tour.corpus, sort="thread"),
            f"{name}: thread and gaps are permitted, too",
            gap_titles(answer) | thread_titles(answer),
        )
        tour.check(thread_titles(answer) == {THREAD}, f"{name}: found by thread, not by search")
    tour.check(
        len(shown) == len(ANSWERS) and all(a != b for a, b in combinations(shown.values(), 2)),
        "four different answers",
    )
    tour.out.print(_table(shown))


def _table(shown: Mapping[str, frozenset[str]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("caller")
    table.add_column("units", justify="right")
    table.add_column("not in the answer above it", overflow="fold")
    before: frozenset[str] = frozenset()
    for name, found in shown.items():
        table.add_row(name, str(len(found)), ", ".join(sorted(found - before)) or "-")
        before = found
    return table


async def by_address(tour: Tour) -> None:
    """Readable exactly where the rules say so: one unit of each label, as each audience.

    What may be read depends on a unit's label and nothing else, so one of each will do; with
    ``every_unit`` all of them are asked for, by three more readers, too.
    """
    units = tuple(one for one in tour.corpus if one.sort == "unit")
    asked = units if tour.every_unit else _one_of_each_label(units)
    turn = asyncio.Semaphore(AT_ONCE)

    async def readable(name: str, address: str) -> str | None:
        async with turn:
            answer = await tour.voice.get(name, f"/v1/units/{address}", **TASK.get(name, {}))
        if answer.status_code not in {200, 404}:
            raise ValueError(f"{name} got {answer.status_code} for a unit: {answer.text[:200]}")
        return address if answer.status_code == 200 else None

    for name in READERS if tour.every_unit else ANSWERS:
        found = await asyncio.gather(*(readable(name, one.address) for one in asked))
        seen = frozenset(one for one in found if one is not None)
        right = allowed(name, asked)
        tour.check(
            seen == right,
            f"{name}: reads {len(right)} of {len(asked)} units, exactly those that the rules name",
            f"too many: {sorted(seen - right)}, too few: {sorted(right - seen)}",
        )


def _one_of_each_label(units: tuple[Document, ...]) -> tuple[Document, ...]:
    labels = {
        (*sorted(one.words.items()), one.tenant, one.jurisdiction): one for one in reversed(units)
    }
    return tuple(sorted(labels.values(), key=lambda one: one.address))
