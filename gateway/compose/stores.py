"""Which stores a process uses: the configured ones, or the embedded pair of this state folder.

This module knows how to find and start stores, not what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from gateway.compose.failure import CannotStart
from gateway.settings import Settings
from retrieval import embedded
from retrieval.embedded import places
from retrieval.embedded.postgres import HOST, SUPERUSER
from retrieval.embedded.state import Kept, in_use
from retrieval.embedded.watch import DATABASE


@dataclass(frozen=True, slots=True)
class Stores:
    """Addresses and secrets of both stores; ``database_url`` is the migrator's."""

    database_url: str = field(repr=False)
    database_secret: str = field(repr=False)
    qdrant_url: str
    qdrant_api_key: str = field(repr=False)
    held: bool = False
    """Whether another process of this machine runs them: a gateway, most likely."""


@contextmanager
def started(settings: Settings, *, embedded_allowed: bool = True) -> Iterator[Stores]:
    """The stores, with embedded ones started for what has no address and stopped afterwards.

    Raises: CannotStart; when another process holds the state folder, code ``state_held``.
    """
    if settings.database.url is not None and settings.qdrant.url is not None:
        yield _configured(settings, None)
        return
    if not embedded_allowed:
        reason = "an address of a store is missing and embedded services are not wanted"
        remedy = "set GATEWAY_DATABASE_URL and GATEWAY_QDRANT_URL"
        raise CannotStart("store_missing", reason, remedy)
    try:
        pair = embedded.start(settings.state)
    except embedded.EmbeddedError as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error
    with pair:
        own = Stores(pair.database_url, pair.database_secret, pair.qdrant_url, pair.qdrant_api_key)
        yield _configured(settings, own)


@contextmanager
def attached(settings: Settings) -> Iterator[Stores]:
    """The stores as ``started``, or those of the process that holds the state folder.

    For commands: with a gateway running they use its embedded services, else their own.
    """
    with ExitStack() as stack:
        try:
            stores = stack.enter_context(started(settings))
        except CannotStart as error:
            if error.code != "state_held":
                raise
            stores = replace(_configured(settings, _of_holder(settings, error)), held=True)
        yield stores


def reachable(settings: Settings) -> Stores | None:
    """The stores as ``attached``, as far as a database is there already: nothing is started.

    None where none is configured and no gateway runs. Raises: CannotStart.
    """
    if settings.database.url is not None:
        return _configured(settings, None)
    try:
        folder = places.state_folder(settings.state, places.postgres_owner())
    except embedded.EmbeddedError as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error
    if not in_use(folder):
        return None
    reason = f"a program that holds the state folder `{folder}` has no database yet"
    held = CannotStart("state_held", reason, "try again when it listens")
    return replace(_configured(settings, _of_holder(settings, held)), held=True)


def _of_holder(settings: Settings, held: CannotStart) -> Stores:
    """The embedded pair of the process that holds the state folder.

    Raises: ``held`` when that process has not got as far as to have one.
    """
    try:
        kept = Kept(**json.loads(places.arrange(settings.state).services_file.read_bytes()))
    except (OSError, ValueError, TypeError):
        raise held from None
    if not kept.postgres_port or not kept.qdrant_port:
        raise held
    return Stores(
        f"postgresql://{SUPERUSER}:{kept.postgres_password}@{HOST}:{kept.postgres_port}/{DATABASE}",
        kept.database_secret,
        f"http://{HOST}:{kept.qdrant_port}",
        kept.qdrant_api_key,
    )


def _configured(settings: Settings, own: Stores | None) -> Stores:
    """The configured stores; what is not configured is ``own``."""
    database, qdrant = settings.database, settings.qdrant
    secret = database.secret.get_secret_value() if database.secret is not None else ""
    key = qdrant.api_key.get_secret_value() if qdrant.api_key is not None else ""
    return Stores(
        database_url=database.url or (own.database_url if own else ""),
        database_secret=secret if database.url else (own.database_secret if own else ""),
        qdrant_url=qdrant.url or (own.qdrant_url if own else ""),
        qdrant_api_key=key if qdrant.url else (own.qdrant_api_key if own else ""),
    )
