"""What the database holds of releases and of those who serve them. Reads only.

Nothing here is believed: ``policies.release.accept`` is what believes. Runs as ``gw_policy`` or
``gw_watch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from policies.decision import PolicyDigest
from policies.errors import ReleaseRefused
from policies.release import Artefact

ALIVE: Final = "15 seconds"
"""A replica that was not seen for longer is gone (an interval of SQL)."""

_FIELDS: Final = (
    "generation, environment, digest, base_generation, base_digest, change, jws, state,"
    " staged_at, activated_at, activated_by, reason"
)
_ARTEFACT: Final = """
select generation, digest, jws, files, coalesce(to_jsonb(r) -> 'overlaid', '[]')
from gate.policy_release r where generation = %s
"""
"""A database of before 0090 is read, too: it is migrated only once its release is believed."""

_REPLICAS: Final = f"""
select host, started_at, seen_at, digest, generation, staged_generation, staged_state,
       staged_code
from gate.replica where seen_at > now() - interval '{ALIVE}' order by host, id
"""


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """One release as it is stored, without its files. ``jws`` is None for an unsigned one.

    ``state`` is ``staged``, ``active``, ``past`` or ``abandoned``; ``change`` is what was claimed.
    """

    generation: int
    environment: str
    digest: PolicyDigest
    base_generation: int | None
    base_digest: PolicyDigest | None
    change: str
    jws: dict[str, Any] | None
    state: str
    staged_at: datetime
    activated_at: datetime | None
    activated_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Replica:
    """A living gateway's own word about itself. ``staged_*`` is how it stands to a staged one."""

    host: str
    started_at: datetime
    seen_at: datetime
    digest: PolicyDigest
    generation: int
    staged_generation: int | None
    staged_state: str | None
    staged_code: str | None


def releases(connection: psycopg.Connection[Any]) -> tuple[StoredRelease, ...]:
    """All of them, the newest first."""
    return tuple(
        StoredRelease(*row)
        for row in connection.execute(
            f"select {_FIELDS} from gate.policy_release order by generation desc".encode()
        )
    )


def release_in(connection: psycopg.Connection[Any], state: str) -> StoredRelease | None:
    """The one that is ``active`` or ``staged``; there is never more than one."""
    row = connection.execute(
        f"select {_FIELDS} from gate.policy_release where state = %s".encode(), [state]
    ).fetchone()
    return None if row is None else StoredRelease(*row)


def artefact(connection: psycopg.Connection[Any], generation: int) -> Artefact | None:
    """The release of a generation with its files, to be accepted or refused.

    Raises ReleaseRefused (``unreadable``) for files that are not texts.
    """
    row = connection.execute(_ARTEFACT, [generation]).fetchone()
    if row is None:
        return None
    number, digest, jws, files, overlaid = row
    if not all(isinstance(text, str) for text in files.values()):
        reason = f"generation {number} is not stored as a release is"
        raise ReleaseRefused("unreadable", reason, "release the folder anew")
    contents = {path: text.encode() for path, text in files.items()}
    return Artefact(number, digest, jws, contents, frozenset(overlaid))


def replicas(connection: psycopg.Connection[Any]) -> tuple[Replica, ...]:
    """The gateways that live, by host."""
    return tuple(Replica(*row) for row in connection.execute(_REPLICAS.encode()))


@dataclass(frozen=True, slots=True)
class Answers:
    """How the living replicas stand to one staged generation. ``refused`` holds their codes."""

    prepared: int
    pending: int
    refused: tuple[str, ...]


def answers(living: Sequence[Replica], generation: int) -> Answers:
    """Counted from what :func:`replicas` gave; one that says nothing yet is pending."""
    told = [
        (one.staged_state, one.staged_code) if one.staged_generation == generation else (None, None)
        for one in living
    ]
    refused = tuple(sorted(code or "refused" for state, code in told if state == "refused"))
    prepared = sum(state == "prepared" for state, _ in told)
    return Answers(prepared, len(told) - prepared - len(refused), refused)
