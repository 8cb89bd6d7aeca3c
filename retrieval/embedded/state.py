"""What is kept of the embedded services between runs: ports and secrets, and who holds them.

``services.json`` (0600) comes into being before the data that its password opens, and is
replaced whole. The lock is an advisory file lock: the kernel lets go of it when the holder
dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from retrieval.embedded.errors import EmbeddedError, disk_full, state_unwritable
from retrieval.embedded.places import INSTALL, LOCK_FILE, Places
from retrieval.embedded.processes import command_of

HANDOVER_SECONDS: Final = 20.0
"""How long a supervisor may take to stop its services after its own parent died."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of ``services.json``. A port of 0 means: not chosen yet."""

    postgres_password: str
    qdrant_api_key: str
    database_secret: str
    postgres_port: int = 0
    qdrant_port: int = 0


def recall(places: Places) -> Kept:
    """What the last run kept; on the first run, new secrets, already written down."""
    try:
        found = json.loads(places.services_file.read_bytes())
        return Kept(**found)
    except FileNotFoundError as error:
        if (places.postgres / "data").exists():
            raise incomplete(places, "is missing") from error
    except (ValueError, TypeError) as error:
        raise incomplete(places, "is not what was written") from error
    made = Kept(
        postgres_password=secrets.token_hex(24),
        qdrant_api_key=secrets.token_hex(24),
        database_secret=secrets.token_hex(32),
    )
    keep(places, made)
    return made


def keep(places: Places, kept: Kept) -> None:
    """Write ``services.json`` anew, whole or not at all, readable by its owner only."""
    half = places.services_file.with_suffix(".new")
    try:
        half.unlink(missing_ok=True)
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(kept), file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        half.replace(places.services_file)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(places.state, str(error.strerror)) from error
        raise state_unwritable(places.state, error) from error


def with_ports(kept: Kept, *, postgres_port: int, qdrant_port: int) -> Kept:
    return replace(kept, postgres_port=postgres_port, qdrant_port=qdrant_port)


def incomplete(places: Places, what: str) -> EmbeddedError:
    return EmbeddedError(
        "state_incomplete",
        f"`{places.services_file}` {what}, and the password of the data beside it with it",
        f"restore the file, or move `{places.postgres}` and it away to begin anew",
    )


def discard(places: Places) -> None:
    """Remove the data of both services, and the secrets that open it. To be called under a `Hold`.

    Copied programs stay. Raises: EmbeddedError ``state_incomplete`` for data without the secrets
    that we write before it, which may be somebody else's, and ``state_unwritable``.
    """
    try:
        found = [
            one
            for folder in (places.postgres, places.qdrant)
            for one in folder.iterdir()
            if not one.name.startswith(INSTALL)
        ]
        if found and not places.services_file.exists():
            raise incomplete(places, "is missing")
        for one in found:
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one)
            else:
                one.unlink()
        places.services_file.unlink(missing_ok=True)  # last: what it opens must not outlive it
    except OSError as error:
        raise state_unwritable(places.state, error) from error


class Hold:
    """The lock on one state folder, held until ``release`` or the end of the process."""

    def __init__(self, places: Places, *, parent: int) -> None:
        """Take the lock or raise ``EmbeddedError`` ``state_held``, naming the holder.

        A holder whose own parent is gone is about to stop: it is waited for.
        """
        path = places.lock_file
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise state_unwritable(places.state, error) from error
        deadline = time.monotonic() + HANDOVER_SECONDS
        while not self._take():
            holder, held_for = _read(path)
            if command_of(held_for) is not None or time.monotonic() > deadline:
                self.release()
                raise _held(places.state, holder, held_for)
            time.sleep(0.05)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} {parent}\n".encode(), 0)

    def _take(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        os.close(self._descriptor)


def in_use(folder: Path) -> bool:
    """Whether a process holds this state folder now. Nothing is made or kept."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read(path: Path) -> tuple[int, int]:
    """The pids of the holder and of the program it works for; 0 when not written yet."""
    words = path.read_text().split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)


def _held(state: Path, holder: int, held_for: int) -> EmbeddedError:
    command = command_of(held_for) or "unknown"
    return EmbeddedError(
        "state_held",
        f"the state folder `{state}` is in use by process {held_for} (`{command[:120]}`,"
        f" through its supervisor {holder})",
        "stop that program, or set GATEWAY_STATE to another folder",
    )
