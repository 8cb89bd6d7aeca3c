"""The state folder: where it is, what a running gateway tells there, files that only we read."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.compose.failure import CannotStart
from gateway.settings import Settings
from retrieval.embedded import places

RUNNING_FILE: Final = "gateway.json"
KEY_FILE: Final = "assertion-key.pem"


def state_folder(settings: Settings) -> Path:
    """Where this installation keeps its state. Makes nothing."""
    return settings.state or places.clone_state(places.postgres_owner())


def running_address(settings: Settings) -> str:
    """The address of the gateway that runs on this state folder, else the configured one."""
    return running_here(settings) or f"http://{settings.listen.public}"


def running_here(settings: Settings) -> str | None:
    """The address of the gateway that runs on this state folder, if one does."""
    told = _told(state_folder(settings) / RUNNING_FILE)
    alive = isinstance(told.get("url"), str) and _alive(told.get("pid"))
    return str(told["url"]) if alive else None


def running_admin(settings: Settings) -> str:
    """The address of the second listener of that gateway, else the configured one."""
    told = _told(state_folder(settings) / RUNNING_FILE)
    if isinstance(told.get("admin_url"), str) and _alive(told.get("pid")):
        return str(told["admin_url"])
    return f"http://{settings.listen.admin}"


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
