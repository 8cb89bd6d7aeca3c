"""What is missing among signals because there was no room for it, as numbers for operators.

Laws
    * Numbers, audiences and words of ours: no question, no subject, no gap by its name.
    * What is counted is left out of signals only. No answer depends on it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import psycopg

from retrieval.stores.roles import WATCH, dsn_for

Reason = Literal["subject", "turn"]
"""Why nobody looked at a question: its subject had had its turn, or the turn was full."""
_CONNECT_S: Final = 5

_PASSED_OVER: Final = """
update brain.signal_worker
set past_subject = past_subject + %(subject)s, past_turn = past_turn + %(turn)s
"""
_LEFT_OUT: Final = "select what, whose, number from gate.signals_left_out()"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``gaps``: audience -> repeated gaps without room today, at most at one time of the day.
    ``questions``: reason -> questions that nobody looked at, since the database was made."""

    gaps: dict[str, int] = field(default_factory=dict)
    questions: dict[str, int] = field(default_factory=dict)


async def left_out(base_dsn: str, secret: str) -> LeftOut:
    """The numbers of all workers that ever led. Raises psycopg.Error.

    Cost: a connection and a row for each audience that has any.
    """
    async with await psycopg.AsyncConnection[tuple[Any, ...]].connect(
        dsn_for(WATCH, base_dsn, secret),
        autocommit=True,
        connect_timeout=_CONNECT_S,
        options=f"-c statement_timeout={_CONNECT_S * 1_000}",
    ) as watching:
        rows = await (await watching.execute(_LEFT_OUT)).fetchall()
    return LeftOut(
        {whose: number for what, whose, number in rows if what == "gap"},
        {whose: number for what, whose, number in rows if what == "question"},
    )


async def add_passed_over(
    own: psycopg.AsyncConnection[tuple[Any, ...]], passed_over: Counter[Reason]
) -> None:
    """Adds to what is written of the questions that nobody looked at, and begins to count anew.

    ``own`` is a session of ``gw_signal``. Raises psycopg.Error; then they are counted on.
    """
    subject, turn = passed_over["subject"], passed_over["turn"]
    if not subject and not turn:
        return
    await own.execute(_PASSED_OVER, {"subject": subject, "turn": turn})
    passed_over["subject"] -= subject
    passed_over["turn"] -= turn
