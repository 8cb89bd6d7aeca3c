"""The label registry: what the record of truth says now about ids that want to leave.

It is read with a role of its own that can see labels, addresses and hashes and no title or
body, in one query per look-up, so that labels, contents, consents (by the database's clock) and
the active revision belong to one moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, LiteralString, Protocol
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from gateway.errors import GatewayError

Sort = Literal["unit", "thread", "artifact"]
Key = tuple[Sort, UUID]
_Row = tuple[str, UUID, int, str, str, str, int, str]
_SORTS: Final[Mapping[str, Sort]] = {"unit": "unit", "thread": "thread", "artifact": "artifact"}

_LOOK_UP: Final = """
select 'unit', u.id, u.class_id, u.tenant, u.jurisdiction,
       u.canonical_address, u.current_revision, coalesce(r.body_sha256, '')
  from brain.unit u
  left join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
  where u.id = any(%(unit)s) and u.deleted_at is null
union all
select 'thread', t.id, t.class_id, t.tenant, t.jurisdiction, '', 0, ''
  from brain.thread t where t.id = any(%(thread)s) and t.deleted_at is null
union all
select 'artifact', a.id, a.class_id, a.tenant, a.jurisdiction, '', 0, ''
  from brain.expected_artifact a where a.id = any(%(artifact)s) and a.deleted_at is null
union all
select 'consent', c.unit_id, 0::smallint, '', '', '', 0, ''
  from gate.consented_unit c
  where c.subject_id = %(subject)s and c.purpose = %(purpose)s and c.unit_id = any(%(all)s)
union all
select 'revision', null, 0::smallint, r.digest, '', '', 0, '' from gate.active_revision r
"""

_CONSENTS: Final = """
select subject_id, purpose, unit_id from gate.consented_unit where subject_id = any(%(subjects)s)
"""


class RegistryUnavailable(GatewayError):
    """The labels cannot be read: nothing may leave."""


@dataclass(frozen=True, slots=True)
class Label:
    """What decides about one governed object."""

    class_id: int
    tenant: str
    jurisdiction: str


@dataclass(frozen=True, slots=True)
class Content:
    """What a unit is now: ``body_sha256`` is of its current revision, empty when it has none."""

    address: str
    revision: int
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer of one look-up. An id that is not in ``labels`` does not exist (any more).

    ``contents`` are of the units among ``labels``. ``digest`` is the revision that the database
    enforces, empty when there is none.
    """

    digest: str
    labels: Mapping[Key, Label]
    contents: Mapping[UUID, Content]
    consented: tuple[UUID, ...]


class Registry(Protocol):
    """Where the guard looks labels up."""

    async def look_up(self, keys: Collection[Key], *, subject_id: str, purpose: str) -> Registered:
        """Labels and contents of these ids, the subject's live consents among them, the digest.

        Raises: RegistryUnavailable.
        """
        ...


class PostgresRegistry:
    """The registry over a small pool of the guard's own role."""

    def __init__(self, conninfo: str, *, size: int = 4, wait_s: float = 2.0) -> None:
        self._pool = AsyncConnectionPool(
            conninfo,
            min_size=1,
            max_size=size,
            timeout=wait_s,
            reconnect_timeout=5,  # then the next request tries: no minutes of backing off
            open=False,
            kwargs={"autocommit": True, "options": "-c statement_timeout=5000"},
        )

    async def open(self) -> None:
        """Begin to connect; a database that is down shows at the first look-up."""
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close()

    async def look_up(self, keys: Collection[Key], *, subject_id: str, purpose: str) -> Registered:
        asked = {sort: [i for s, i in keys if s == sort] for sort in ("unit", "thread", "artifact")}
        values: dict[str, object] = {
            **asked,
            "all": [one for _, one in keys],
            "subject": subject_id,
            "purpose": purpose,
        }
        return _registered(await self._rows(_LOOK_UP, values))

    async def consents(
        self, subjects: Collection[str]
    ) -> Mapping[str, frozenset[tuple[str, UUID]]]:
        """Purpose and object of each live consent of these subjects, threads with their units.

        Raises: RegistryUnavailable.
        """
        found: dict[str, set[tuple[str, UUID]]] = {}
        for subject, purpose, one in await self._rows(_CONSENTS, {"subjects": [*subjects]}):
            found.setdefault(subject, set()).add((purpose, one))
        return {subject: frozenset(named) for subject, named in found.items()}

    async def _rows(self, query: LiteralString, values: dict[str, object]) -> list[Any]:
        try:
            try:
                return await self._asked(query, values)
            except PoolTimeout:  # an OperationalError too: nobody answers, a second wait is none
                raise
            except psycopg.OperationalError:
                # A kept connection that a restart of the server cut; a fresh one is the proof.
                await self._pool.check()
                return await self._asked(query, values)
        except (psycopg.Error, PoolTimeout, OSError) as error:
            raise RegistryUnavailable(type(error).__name__) from error

    async def _asked(self, query: LiteralString, values: dict[str, object]) -> list[Any]:
        async with self._pool.connection() as connection:
            return await (await connection.execute(query, values)).fetchall()


def _registered(rows: list[_Row]) -> Registered:
    digest, consented = "", []
    labels: dict[Key, Label] = {}
    contents: dict[UUID, Content] = {}
    for sort, one, class_id, tenant, jurisdiction, address, revision, body_sha256 in rows:
        if sort == "revision":
            digest = tenant
        elif sort == "consent":
            consented.append(one)
        else:
            key: Key = (_SORTS[sort], one)
            labels[key] = Label(class_id, tenant, jurisdiction)
            if sort == "unit":
                contents[one] = Content(address, revision, body_sha256)
    return Registered(digest, labels, contents, tuple(sorted(consented)))
