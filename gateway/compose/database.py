"""The database as this version needs it: connection strings, schema, active policy, proof."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from gateway.compose.failure import CannotStart, first_line, no_database
from gateway.compose.stores import Stores
from gateway.settings import Settings
from gateway.surfaces.health import OK
from policies.errors import ReleaseRefused
from policies.snapshot import Snapshot
from retrieval.embed.registry import stored_name
from retrieval.schema.history import HistoryDiffers, MigrationRefused
from retrieval.schema.migrate import migrate
from retrieval.schema.placement import Lack, missing
from retrieval.settings import StoreSettings
from retrieval.signals.worker import state_of_signals
from retrieval.stores.activation import UNFIT, ActivationRefused, Draft, activate
from retrieval.stores.enforcement import NotEnforced, assert_enforced
from retrieval.stores.roles import GUARD, POLICY, dsn_for

SCHEMA_DIFFERS: Final = "schema_differs"
_LOG: Final = logging.getLogger(__name__)


def station_dsn(stores: Stores, role: str) -> str:
    """The connection string of one database role of ours (``gw_seal``)."""
    return dsn_for(role, stores.database_url, stores.database_secret)


def store_settings(settings: Settings, stores: Stores) -> StoreSettings:
    """What retrieval and ingest are told about the stores."""
    vectors = stored_name(settings.embedder.name, settings.embedder.model or "")
    return StoreSettings(
        database_url=stores.database_url,
        database_secret=SecretStr(stores.database_secret),
        qdrant_url=stores.qdrant_url,
        qdrant_api_key=SecretStr(stores.qdrant_api_key),
        collection=settings.qdrant.collection or f"units-{vectors}",
        connections_max=settings.database.pool_max,
        lag_objective_s=settings.limits.index_lag_ms / 1_000,
    )


def lacking(url: str) -> tuple[Lack, ...]:
    """What keeps our schemas from being made in the database at ``url``. Raises: CannotStart."""
    try:
        return missing(url)
    except psycopg.Error as error:
        raise no_database(first_line(error)) from error


def prepare(stores: Stores, snapshot: Snapshot, draft: Draft) -> None:
    """Bring the database to this version and make it enforce ``snapshot``; then prove it.

    ``draft`` is the same policy as an unsigned release. Raises: CannotStart.
    """
    with policy_login(stores, snapshot) as connection:
        activate(connection, snapshot, activated_by="gateway", draft=draft)
        prove(stores, snapshot)


def prepare_if_new(stores: Stores, snapshot: Snapshot, *, signed: bool) -> None:
    """Bring the database to this version, and activate ``snapshot`` if none is active.

    For commands: one that only writes data must not change the policy of a running gateway, nor
    the words that its labels are read by, and none may be the first where releases are
    ``signed``. Where another policy is active, everything stays as its activation left it.
    Raises: CannotStart.
    """
    if _enforced(stores) not in (None, snapshot.digest):
        return
    with policy_login(stores, snapshot) as connection:
        if connection.execute("select 1 from gate.active_revision").fetchone() is not None:
            return
        if signed:
            raise no_release("no policy was ever activated in this database")
        activate(connection, snapshot, activated_by="gateway")


def _enforced(stores: Stores) -> str | None:
    """The digest of the active policy, None in a database that has none yet."""
    try:
        with psycopg.connect(stores.database_url, autocommit=True) as admin:
            there = admin.execute("select to_regclass('gate.active_revision') is not null")
            if there.fetchone() != (True,):
                return None
            row = admin.execute("select digest from gate.active_revision").fetchone()
    except psycopg.Error as error:
        raise no_database(first_line(error)) from error
    return None if row is None else str(row[0])


def no_release(reason: str) -> CannotStart:
    """Nothing that may be served is in the database."""
    remedy = "sign one with `gateway policy approve` and run `gateway policy activate`"
    return CannotStart("no_release", reason, remedy)


def prove(stores: Stores, snapshot: Snapshot) -> None:
    """Return when the database enforces what the migrations made. Raises: CannotStart."""
    try:
        assert_enforced(stores.database_url, snapshot)
    except NotEnforced as error:
        remedy = "restore it from the migrations; nothing is served until then"
        raise CannotStart("not_enforced", "; ".join(error.reasons), remedy) from error


@contextmanager
def policy_login(stores: Stores, snapshot: Snapshot) -> Iterator[psycopg.Connection[Any]]:
    """A session that may activate policies, in a database of this version.

    Raises: CannotStart and ReleaseRefused, also for what the database says inside the block.
    """
    try:
        migrate(stores.database_url, stores.database_secret, snapshot)
        with psycopg.connect(station_dsn(stores, POLICY), autocommit=True) as connection:
            yield connection
    except psycopg.OperationalError as error:
        raise no_database(first_line(error)) from error
    except ActivationRefused as error:
        reason, _, remedy = first_line(error).partition("; ")
        kind = CannotStart if error.code == UNFIT else ReleaseRefused
        raise kind(error.code, reason, remedy) from error
    except HistoryDiffers as error:
        raise _of_another_version(stores, error) from error
    except (MigrationRefused, psycopg.Error) as error:
        remedy = "compare the database with this version's migrations and policy"
        raise CannotStart("database_unfit", first_line(error), remedy) from error


def _of_another_version(stores: Stores, error: HistoryDiffers) -> CannotStart:
    """The database was made by other migrations. What its author may do (``restore the file``)
    is not what helps whoever starts."""
    at = conninfo_to_dict(stores.database_url)
    server = f"{at.get('host') or 'this machine'}:{at.get('port') or 5432}"
    place = f"the database `{at.get('dbname') or ''}` at {server}"
    why = first_line(error).partition("; ")[0]
    remedy = (
        "start the version that made it; embedded stores can be begun anew"
        " (deploy/README.md, Where state lies)"
    )
    reason = f"{place} was made by another version of this program ({why})"
    return CannotStart(SCHEMA_DIFFERS, reason, remedy)


async def enforcement(stores: Stores, snapshot: Snapshot) -> str:
    """Whether the database still enforces what it enforced at start: ``ok`` or a code.

    Cost: some 50 ms on a thread, with a connection of the guard's own.
    """
    try:
        await asyncio.to_thread(assert_enforced, station_dsn(stores, GUARD), snapshot)
    except NotEnforced as error:
        _LOG.error("not enforced: %s", "; ".join(error.reasons))
        return "not_enforced"
    except psycopg.Error:
        return "database_unavailable"
    return OK


async def signals(stores: Stores) -> str:
    """Whether a worker leads and is on time: ``ok`` or a code. Cost: a connection and one row."""
    try:
        return await state_of_signals(stores.database_url, stores.database_secret)
    except psycopg.Error:
        return "database_unavailable"
