"""The application's end of the embedded services: start both, hold the pipe, hear of deaths.

``start`` runs ``python -m retrieval.embedded`` (``watch``) with a pipe. The services live as
long as this process holds that pipe open: an ordinary end, an exception and SIGKILL all
close it. Under a second on a warm machine, about two on the first start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from retrieval.embedded.errors import EmbeddedError
from retrieval.embedded.postgres import HOST, SUPERUSER
from retrieval.embedded.processes import stop_process
from retrieval.embedded.state import Kept
from retrieval.embedded.watch import DATABASE

STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Death:
    """A service (``postgres``, ``qdrant`` or ``supervisor``) that ended by itself.

    ``status`` is its exit code, or minus the signal that ended it.
    """

    service: str
    status: int


class Embedded:
    """The running pair. A context manager; ``stop`` may be called more than once."""

    database_url: str
    """Connection string of the superuser, to the product's own database: for the migrator."""
    database_secret: str
    """From which the passwords of the station roles are derived. Hex, kept between runs."""
    qdrant_url: str
    qdrant_api_key: str
    pids: dict[str, int]

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        kept: Kept,
        pids: dict[str, int],
        on_death: Callable[[Death], None] | None,
    ) -> None:
        self._process = process
        self._on_death = on_death
        self._stopping = False
        self._deaths: list[Death] = []
        self.database_url = (
            f"postgresql://{SUPERUSER}:{kept.postgres_password}"
            f"@{HOST}:{kept.postgres_port}/{DATABASE}"
        )
        self.database_secret = kept.database_secret
        self.qdrant_url = f"http://{HOST}:{kept.qdrant_port}"
        self.qdrant_api_key = kept.qdrant_api_key
        self.pids = {"supervisor": process.pid, **pids}
        self._listener = threading.Thread(target=self._listen, name="embedded", daemon=True)
        self._listener.start()

    @property
    def deaths(self) -> tuple[Death, ...]:
        """Which services have ended by themselves so far, in that order."""
        return tuple(self._deaths)

    def stop(self) -> None:
        """Close the pipe and wait until both services have ended cleanly."""
        self._stopping = True
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        stop_process(
            self._process, first=signal.SIGTERM, then=signal.SIGTERM, patience_s=STOP_SECONDS
        )
        self._listener.join(STOP_SECONDS)

    def _listen(self) -> None:
        """Hear the supervisor out; its own end, unasked, is a death too."""
        stream = self._process.stdout
        if stream is None:
            return
        with stream:
            for line in stream:
                message = json.loads(line)
                if message.get("event") == "died":
                    self._note(Death(message["service"], message["status"]))
        if not self._stopping:
            self._note(Death("supervisor", self._process.wait()))

    def _note(self, death: Death) -> None:
        self._deaths.append(death)
        if self._on_death is not None:
            self._on_death(death)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


def start(
    state: Path | None = None,
    *,
    on_death: Callable[[Death], None] | None = None,
    durable: bool = True,
) -> Embedded:
    """Both services, up and reachable, with everything that is needed to connect.

    ``state`` is the folder of their data and secrets (None = this clone's own, see
    ``places``). ``on_death`` is called from a thread of its own. ``durable=False`` trades
    Postgres's crash safety for speed (tests only).
    Raises ``EmbeddedError`` with code, reason and remedy.
    """
    arguments = ["--parent", str(os.getpid())]
    if state is not None:
        arguments += ["--state", str(state.absolute())]
    if not durable:
        arguments.append("--not-durable")
    process = subprocess.Popen(
        [sys.executable, "-m", "retrieval.embedded", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is for the application: it stops us in its own order
    )
    assert process.stdout is not None  # noqa: S101 - PIPE was asked for
    told = json.loads(process.stdout.readline() or b"{}")
    if told.get("event") != "ready":
        _abandon(process)
        raise EmbeddedError(
            told.get("code", "supervisor_failed"),
            told.get("reason", "the supervisor of the embedded services ended at once"),
            told.get("remedy", "see what it wrote to standard error"),
        )
    kept = Kept(**json.loads(Path(told["services_file"]).read_bytes()))
    return Embedded(process, kept, told["pids"], on_death)


def _abandon(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()
    stop_process(process, first=signal.SIGTERM, then=signal.SIGTERM, patience_s=STOP_SECONDS)


def _environment() -> dict[str, str]:
    """Our environment, with this clone first on the path: two clones may share one Python."""
    clone = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{clone}{os.pathsep}{path}" if path else clone}
