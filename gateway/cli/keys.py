"""``gateway keys``: the keys that sign what upstreams get, changed while the gateway serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure
from gateway.cli.terminal import columns

_TITLES: Final = ("key", "does", "signs from")

app: Final = typer.Typer(
    name="keys",
    help="Keys that sign assertions and delegations.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("list")
def list_keys(config: ConfigOption = None) -> None:
    """List the published keys, the newest first: id, what it does, since when it may sign."""
    from gateway.authn.key_ring import shown, signer
    from gateway.compose.signing import ring_of

    ring, now = ring_of(settings_of(config)), time.time()
    signing = signer(ring, now)
    rows: list[tuple[str, ...]] = [
        (
            one.kid,
            "signs" if one is signing else "waits" if one.signs_from > now else "published",
            shown(one.signs_from) if one.signs_from else "-",
        )
        for one in ring
    ]
    print("\n".join(columns([_TITLES, *rows])))


@app.command("rotate")
def rotate(
    config: ConfigOption = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Sign with it now; else in two minutes.")
    ] = False,
) -> None:
    """Add a new key. It is published now and signs when everybody can know it."""
    from gateway.authn.key_ring import shown
    from gateway.compose import signing

    with _refusing():
        fresh = signing.rotate(settings_of(config), at_once=at_once)
    print(f"{fresh.kid}  signs from {shown(fresh.signs_from)}")


@app.command("retire", context_settings={"ignore_unknown_options": True})
def retire(
    kid: Annotated[str, typer.Argument(metavar="KID", help="As `gateway keys list` shows it.")],
    config: ConfigOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also a key that signs or did a minute ago.")
    ] = False,
) -> None:
    """Take a key away: what it signed is not believed any more."""
    # One id in 64 begins with a hyphen, as an option does: unknown ones are ids.
    from gateway.compose import signing

    with _refusing():
        signing.retire(settings_of(config), kid, force=force)
    print(f"{kid}  retired")


@contextmanager
def _refusing() -> Iterator[None]:
    """A change that is refused ends as a refusal, a ring that is unusable as it always does."""
    from gateway.compose.signing import KeyRefused

    try:
        yield
    except KeyRefused as error:
        raise Failure(Exit.REFUSED, error.code, error.reason, error.remedy) from error
