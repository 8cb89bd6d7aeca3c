"""``gateway policy activate``: make a release the one that every gateway serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure
from gateway.cli.policy_release import (
    RELEASE_FILE,
    WAIT_S,
    ForceOption,
    ReasonOption,
    WaitOption,
    operator,
    refusing,
    release_of,
)
from gateway.cli.policy_report import Overlay, told
from gateway.settings import Settings
from policies.files import PolicyFiles
from policies.release import contents_of

if TYPE_CHECKING:  # it loads every house, a second or two
    from gateway.compose.stores import Stores


def activate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The policy folder.")],
    release: Annotated[
        Path | None, typer.Option("--release", metavar="FILE", help="FOLDER/release.json.")
    ] = None,
    wait: WaitOption = WAIT_S,
    force: ForceOption = False,
    reason: ReasonOption = "",
    overlay: Overlay = None,
    no_overlay: Annotated[
        bool, typer.Option("--no-overlay", help="Drop what the active policy has from an overlay.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Verify a release, let every gateway prepare it, then switch all of them at once."""
    from gateway.compose.stores import attached

    settings = settings_of(config)
    if overlay is not None and no_overlay:
        reason = "--overlay and --no-overlay exclude each other"
        raise Failure(Exit.USAGE, "usage", reason, "give one of them")
    with told(folder):
        found = contents_of(folder, overlay)
    jws = release_of(release or folder / RELEASE_FILE) if settings.release.signed else None
    with attached(settings) as stores:
        if overlay is None and not no_overlay and not settings.release.signed:
            _keeps_overlay(stores)
        switch(settings, stores, found, jws, reason=reason, wait=wait, force=force)


def _keeps_overlay(stores: Stores) -> None:
    """Refuse to drop files of an overlay (issuers of a demo, most likely) without being told to.

    Raises: Failure.
    """
    from gateway.compose.activating import overlaid_now

    with told(Path()), refusing():
        dropped = sorted(overlaid_now(stores))
    if dropped:
        reason = f"the active policy has {', '.join(dropped)} from an overlay, this one has none"
        remedy = "give its folder by --overlay, or --no-overlay to go without these files"
        raise Failure(Exit.USAGE, "overlay_dropped", reason, remedy)


def switch(
    settings: Settings,
    stores: Stores,
    found: PolicyFiles,
    jws: Mapping[str, Any] | None,
    *,
    reason: str,
    wait: float,
    force: bool,
) -> None:
    """Activate files and say what is served now. Raises: Failure; CannotStart."""
    from gateway.compose.activating import NotPrepared, activated

    with told(Path()), refusing():
        try:
            done = activated(
                settings,
                stores,
                found.contents,
                jws,
                overlaid=found.overlaid,
                reason=reason,
                activated_by=operator(),
                wait_s=wait,
                force=force,
            )
        except NotPrepared as error:
            raise _not_prepared(error.generation, error.told.refused, error.told.pending) from error
    if not settings.release.signed:
        print("unsigned: this is development, nobody's signature was asked for")
    print(f"generation: {done.generation}")
    print(f"digest: {done.digest}")
    print(f"change: {done.change}")
    print(f"replicas: {done.serving} of {done.replicas} serve it")


def _not_prepared(generation: int, refused: tuple[str, ...], pending: int) -> Failure:
    if refused:
        codes = ", ".join(sorted(set(refused)))
        reason = f"{len(refused)} replicas refuse generation {generation} ({codes})"
        remedy = "it was abandoned and nothing changed; read their logs, or give --force"
        return Failure(Exit.POLICY, "replica_refused", reason, remedy)
    reason = f"{pending} replicas did not prepare generation {generation} in time"
    remedy = "it was abandoned and nothing changed; give a longer --wait, or --force"
    return Failure(Exit.UNAVAILABLE, "replicas_unready", reason, remedy)
