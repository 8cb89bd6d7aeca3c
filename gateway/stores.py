"""Which stores a process uses: the configured ones, or the embedded pair of this state folder.

This module knows how to find and start stores, not what is in them. It is part of the
composition root: it is imported by it and by commands, never by a station.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway.errors import GatewayError
from gateway.settings import Settings
from retrieval import embedded
from retrieval.embedded import places
from retrieval.embedded.postgres import HOST, SUPERUSER
from retrieval.embedded.state import Kept
from retrieval.embedded.watch import DATABASE

RUNNING_FILE: Final = "gateway.json"
KEY_FILE: Final = "assertion-key.pem"


class CannotStart(GatewayError):  # noqa: N818 - reads as what it is
    """Something that the gateway needs is not there: a code, a reason and a remedy."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")


@dataclass(frozen=True, slots=True)
class Stores:
    """Addresses and secrets of both stores; ``database_url`` is the migrator's."""

    database_url: str = field(repr=False)
    database_secret: str = field(repr=False)
    qdrant_url: str
    qdrant_api_key: str = field(repr=False)
    held: bool = False
    """Whether another process of this machine runs them: a gateway, most likely."""


def state_folder(settings: Settings) -> Path:
    """Where this installation keeps its state. Makes nothing."""
    return settings.state or places.clone_state(places.postgres_owner())


def running_address(settings: Settings) -> str:
    """The address of the gateway that runs on this state folder, else the configured one."""
    told = _told(state_folder(settings) / RUNNING_FILE)
    if isinstance(told.get("url"), str) and _alive(told.get("pid")):
        return str(told["url"])
    return f"http://{settings.listen.public}"


def _told(path: Path) -> dict[str, object]:
    """What a gateway told in that file; empty when there is none or it is not one."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


@contextmanager
def announced(settings: Settings, url: str, admin_url: str) -> Iterator[None]:
    """Tell commands of this state folder where the gateway is, while it is.

    Raises: CannotStart.
    """
    path = state_folder(settings) / RUNNING_FILE
    told = {"url": url, "admin_url": admin_url, "pid": os.getpid()}
    try:
        write_private(path, json.dumps(told) + "\n")
    except OSError as error:
        reason = f"`{path}` cannot be written ({error.strerror})"
        raise CannotStart("state_unwritable", reason, "set GATEWAY_STATE") from error
    try:
        yield
    finally:
        if _told(path) == told:  # another gateway on the same folder may have told since
            path.unlink(missing_ok=True)


def _alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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


def write_private(path: Path, text: str) -> None:
    """Write a file whole and readable by its owner only, or leave what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise
