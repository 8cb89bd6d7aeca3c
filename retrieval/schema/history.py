"""Numbered SQL files, applied once, in order, and never edited afterwards.

Laws
    * One runner at a time (session advisory lock); each file is one transaction together with
      its row in ``migration.applied``.
    * The SHA-256 of a file is kept: an edited, missing or renumbered one refuses to start.
    * DDL never queues for long in front of the readers: ``lock_timeout`` and another try.

This module knows nothing of policy, roles or what the files contain.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import errors, sql

FOLDER: Final = Path(__file__).parent
_NAME: Final = re.compile(r"(\d{4})_([a-z_]+)\.sql")
_LOCK_KEY: Final = 0x6761_7465
_LOCK_TIMEOUT: Final = "2s"
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.2


class MigrationRefused(Exception):
    """The database cannot be brought to this schema; the text says why and what to do."""


class HistoryDiffers(MigrationRefused):
    """The database was made by files that are not these; so by another version."""


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered file."""

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def steps(folder: Path = FOLDER) -> tuple[Step, ...]:
    """The files of a folder in order (numbers may have gaps).

    Raises MigrationRefused for two files of one number or a name of another shape.
    """
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise MigrationRefused(f"`{path.name}` is not named like 0001_subject.sql; rename it")
        found.append(Step(int(match[1]), path.name, path.read_text(encoding="utf-8")))
    for earlier, later in itertools.pairwise(found):
        if earlier.number == later.number:
            raise MigrationRefused(f"`{earlier.name}` and `{later.name}` share a number; renumber")
    return tuple(found)


@contextmanager
def only_one(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Holds the runner's advisory lock of this database; a second runner waits here."""
    connection.execute("select pg_advisory_lock(%s)", [_LOCK_KEY])
    try:
        yield
    finally:
        connection.execute("select pg_advisory_unlock(%s)", [_LOCK_KEY])


def apply_steps(
    connection: psycopg.Connection[Any], todo: tuple[Step, ...], *, owner: str
) -> tuple[str, ...]:
    """Applies what is missing, as ``owner``; returns the names of the files applied.

    ``connection`` must be in autocommit mode and hold ``only_one``.
    Raises HistoryDiffers when history and files disagree, MigrationRefused when a lock cannot be
    had.
    """
    with connection.transaction():
        connection.execute(sql.SQL("set local role {}").format(sql.Identifier(owner)))
        connection.execute("create schema if not exists migration")
        connection.execute(
            "create table if not exists migration.applied ("
            " number integer primary key, name text not null, sha256 text not null,"
            " applied_at timestamptz not null default now())"
        )
        applied = dict(
            connection.execute("select number, sha256 from migration.applied").fetchall()
        )
    _check_history(applied, todo)
    fresh = [step for step in todo if step.number not in applied]
    for step in fresh:
        if applied and step.number < max(applied):
            raise HistoryDiffers(
                f"`{step.name}` is new but numbered before what is applied; give it a higher number"
            )
    for step in fresh:
        _apply(connection, step, owner)
    return tuple(step.name for step in fresh)


def _check_history(applied: dict[int, str], todo: tuple[Step, ...]) -> None:
    known = {step.number: step for step in todo}
    for number, sha256 in sorted(applied.items()):
        step = known.get(number)
        if step is None:
            raise HistoryDiffers(
                f"the database has migration `{number:04}` that this program does not know;"
                " start the version that made it, or a newer one"
            )
        if step.sha256 != sha256:
            raise HistoryDiffers(
                f"`{step.name}` was edited after it was applied;"
                " restore the file and put the change into a new one"
            )


def _apply(connection: psycopg.Connection[Any], step: Step, owner: str) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with connection.transaction():
                connection.execute(sql.SQL("set local role {}").format(sql.Identifier(owner)))
                connection.execute("select set_config('lock_timeout', %s, true)", [_LOCK_TIMEOUT])
                # no parameters: the simple protocol takes a whole file
                connection.execute(step.text.encode())
                connection.execute(
                    "insert into migration.applied (number, name, sha256) values (%s, %s, %s)",
                    [step.number, step.name, step.sha256],
                )
        except (errors.LockNotAvailable, errors.DeadlockDetected) as refused:
            if attempt == _ATTEMPTS:
                raise MigrationRefused(
                    f"`{step.name}` could not get its locks in {_ATTEMPTS} attempts;"
                    " end long transactions and start again"
                ) from refused
            time.sleep(_PAUSE_S)
        else:
            return
