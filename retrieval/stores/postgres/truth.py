"""Opens readers: one pool per audience's login, one transaction per reader.

Laws
    * A request is read under the login of its audience and the role of its own profile; further
      profiles only narrow, by the bound predicate.
    * Role and settings are made for one transaction. What the pool hands out next has none of
      them, and row-level security answers nothing then.
    * The revision that the database enforces must be the one that the subject was placed under.
      A missing grant row would silently read as "nothing"; it is a mismatch instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from psycopg import AsyncConnection, IsolationLevel, errors
from psycopg_pool import AsyncConnectionPool

from policies.decision import SHARED, Grant, Scope
from policies.errors import UnknownProfile
from policies.snapshot import Snapshot
from retrieval.contract import SubjectWire
from retrieval.errors import PolicyMismatch
from retrieval.stores.postgres.failures import mapped
from retrieval.stores.postgres.reader import PostgresReader
from retrieval.stores.roles import dsn_for, profile_role, serving_login

_SETTINGS: Final = """
select set_config('role', %(role)s, true),
       set_config('gw.tenants', %(tenants)s::text[]::text, true),
       set_config('gw.jurisdictions', %(jurisdictions)s::text[]::text, true),
       set_config('gw.subject', %(subject)s, true),
       set_config('gw.purpose', %(purpose)s, true)
"""

_STANDING: Final = """
select a.digest,
       exists (select from gate.profile_grant g
               where g.digest = a.digest and g.role = current_user),
       array(select gate.consented_objects())
from gate.active_revision a
"""


# Row-level security makes plans of many parts: planning costs 0.5 to 3 ms, running 0.3. The few
# statements are planned once per connection; their plans do not depend on the values. Such a plan
# takes a list of classes for most of a table, and would walk it; every statement has an index.
_PLANNING: Final = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off"


class PostgresTruth:
    """The record of truth. ``open`` it before use and ``close`` it after.

    ``base_dsn`` names server and database; user and password are derived per audience.
    ``lag_objective_s``: how long an index may lag before a difference is an incident.
    """

    def __init__(
        self,
        base_dsn: str,
        secret: str,
        audiences: Iterable[str],
        *,
        connections_max: int = 8,
        wait_s: float = 3.0,
        statement_ms: int = 5_000,
        lag_objective_s: float = 10.0,
    ) -> None:
        self._lag_objective_s = lag_objective_s
        self._wait_s = wait_s
        self._base_dsn, self._secret = base_dsn, secret
        self._connections_max, self._statement_ms = connections_max, statement_ms
        self._pools = {audience: self._pool(audience) for audience in audiences}

    def _pool(self, audience: str) -> AsyncConnectionPool[AsyncConnection[Any]]:
        """Connections under the login of one audience, not opened yet."""
        return AsyncConnectionPool(
            dsn_for(serving_login(audience), self._base_dsn, self._secret),
            min_size=1,
            max_size=self._connections_max,
            timeout=self._wait_s,
            reconnect_timeout=5,  # then the next request tries: no minutes of backing off
            open=False,
            name=serving_login(audience),
            configure=_configure,
            # a restarted server is noticed here, not by the next request
            check=_check,
            kwargs={
                "options": f"-c statement_timeout={self._statement_ms} {_PLANNING}",
                "prepare_threshold": 0,
            },
        )

    async def open(self) -> None:
        """Connects every pool. Raises StoreUnavailable when one cannot log in in time."""
        with mapped():
            for pool in self._pools.values():
                await pool.open(wait=True, timeout=self._wait_s)

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()

    async def ready(self) -> None:
        """Returns if the server answers on one login. Raises StoreUnavailable."""
        with mapped():
            for pool in self._pools.values():
                async with pool.connection() as connection:
                    await connection.execute("select 1")
                return

    @asynccontextmanager
    async def reading(
        self, subject: SubjectWire, snapshot: Snapshot
    ) -> AsyncIterator[PostgresReader]:
        """A reader for one placed subject: see ``ports.Truth.reading``."""
        grant = self._placed(subject, snapshot)
        pool = await self._connected(snapshot.vocabulary.profiles[grant.profile])
        own = snapshot.grant((grant.profile,))
        with mapped():
            # the first statement begins the transaction, in one round trip with those after it;
            # leaving the block ends it
            async with pool.connection() as connection:
                scope = await _enter(connection, subject, grant)
                yield PostgresReader(
                    connection, scope, own=own, lag_objective_s=self._lag_objective_s
                )

    async def _connected(self, audience: str) -> AsyncConnectionPool[AsyncConnection[Any]]:
        """The pool of an audience. One that came with a later policy is opened by its first
        request."""
        pool = self._pools.get(audience)
        if pool is None:
            pool = self._pools[audience] = self._pool(audience)
            await pool.open(wait=False)
        return pool

    def _placed(self, subject: SubjectWire, snapshot: Snapshot) -> Grant:
        if subject.policy_digest != snapshot.digest:
            raise PolicyMismatch(
                f"the subject was placed under `{subject.policy_digest[:12]}`,"
                f" this process holds `{snapshot.digest[:12]}`"
            )
        try:
            return snapshot.grant(subject.profiles)
        except UnknownProfile as unknown:
            raise PolicyMismatch(str(unknown)) from unknown


async def _configure(connection: AsyncConnection[Any]) -> None:
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)


async def _check(connection: AsyncConnection[Any]) -> None:
    """Raises when the server is gone, in one round trip: prepared on first use like all others,
    the pool's own question would take two each time (an empty statement is never kept)."""
    await connection.set_autocommit(True)
    await connection.execute("", prepare=False)
    await connection.set_autocommit(False)


async def _enter(connection: AsyncConnection[Any], subject: SubjectWire, grant: Grant) -> Scope:
    """Takes the role of the profile and finds what it may read at this moment."""
    tenants, jurisdictions = _own(subject.tenants), _own(subject.jurisdictions)
    settings = {
        "role": profile_role(grant.profile),
        "tenants": list(tenants),
        "jurisdictions": list(jurisdictions),
        "subject": subject.subject_id,
        "purpose": subject.purpose,
    }
    try:
        async with connection.pipeline():
            await connection.execute(_SETTINGS, settings)
            standing = await connection.execute(_STANDING)
        row = await standing.fetchone()
    except (errors.InsufficientPrivilege, errors.InvalidParameterValue) as refused:
        # the role does not exist, or belongs to another audience
        raise PolicyMismatch(f"the database cannot serve profile `{grant.profile}`") from refused
    if row is None:
        raise PolicyMismatch("no policy is active in the database; activate one")
    active, granted, consented = row
    if active != grant.digest:
        raise PolicyMismatch(
            f"the database enforces `{active[:12]}`, the request was placed under"
            f" `{grant.digest[:12]}`"
        )
    if not granted:
        raise PolicyMismatch(f"profile `{grant.profile}` has no grant under `{active[:12]}`")
    return Scope(
        grant=grant,
        tenants=tenants,
        jurisdictions=jurisdictions,
        consented_units=tuple(sorted(consented)),
    )


def _own(compartments: tuple[str, ...]) -> tuple[str, ...]:
    """A caller's own compartments: `*` is what units say, never what a caller has."""
    return tuple(sorted({name for name in compartments if name and name != SHARED}))
