"""``gateway serve``: the gateway in the foreground, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
import uvloop

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure, flat, of_policy
from gateway.errors import PartMissing
from gateway.settings import Settings
from gateway.settled import loading, settle
from gateway.telemetry import process_log
from policies.errors import PolicyError
from policies.snapshot import DEFAULT_FOLDER

NoEmbedded = Annotated[
    bool, typer.Option("--no-embedded", help="Refuse to start stores of our own.")
]


Workers = Annotated[
    int, typer.Option("--workers", min=1, max=64, help="Processes that share the address.")
]


def serve(
    config: ConfigOption = None, no_embedded: NoEmbedded = False, workers: Workers = 1
) -> None:
    """Serve until told to stop."""
    try:
        with loading():
            from gateway.server import PortTaken  # late: see ``_serve``
    except PartMissing as error:
        reason, _, remedy = flat(error).partition("; ")
        raise Failure(Exit.UNAVAILABLE, "part_missing", reason, remedy) from error

    settings = settings_of(config)
    process_log.configure()
    try:
        run = _serve if workers == 1 else partial(_supervise, workers=workers)
        uvloop.run(run(settings, partial(settings_of, config), embedded=not no_embedded))
    except PolicyError as error:
        raise of_policy(error, settings.policy or DEFAULT_FOLDER) from error
    except PortTaken as error:
        reason, _, remedy = flat(error).partition("; ")
        raise Failure(Exit.PORT_TAKEN, "port_taken", reason, remedy) from error


async def _serve(settings: Settings, read: Callable[[], Settings], *, embedded: bool) -> None:
    with loading():
        from gateway.compose.live import reread_at_signal
        from gateway.compose.running import running  # late: it loads every house, a second or two
        from gateway.compose.signalling import signalling

    async with running(settings, embedded=embedded) as gateway:
        settle()
        reread_at_signal(read, gateway.live.apply)
        _tell(gateway.url, gateway.admin_url)
        async with signalling(settings, gateway.stores):
            await gateway.wait()


async def _supervise(
    settings: Settings, read: Callable[[], Settings], *, embedded: bool, workers: int
) -> None:
    with loading():
        from gateway.compose.live import reread_at_signal
        from gateway.compose.signalling import signalling
        from gateway.compose.working import working  # late: as above

    async with working(settings, workers=workers, embedded=embedded) as gateway:
        reread_at_signal(read, gateway.apply)
        _tell(gateway.url, gateway.admin_url)
        async with signalling(settings, gateway.stores):
            await gateway.wait()


def _tell(url: str, admin_url: str) -> None:
    text = f"gateway: listening on {url} (second listener {admin_url})"
    print(text, file=sys.stderr, flush=True)
