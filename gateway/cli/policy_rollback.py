"""``gateway policy rollback``: serve an earlier generation again, as a new one.

Its files come from the database, not from anybody's disk. Going back is a change like any other:
what it opens against the live policy takes as many signers as if it were new.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure
from gateway.cli.policy_activate import switch
from gateway.cli.policy_release import (
    WAIT_S,
    ForceOption,
    WaitOption,
    believed,
    believed_base,
    direction,
    key_of,
    missing,
    needed,
    reach_of,
    refusing,
    told_change,
)
from gateway.settings import Settings
from policies.files import PolicyFiles
from policies.release import Artefact, Manifest, ReleaseRefused, sign
from policies.release.artefact import files_of, parsed_of
from policies.release.manifest import CHANGES, now

if TYPE_CHECKING:  # it loads every house, a second or two
    from gateway.compose.stores import Stores


def rollback(
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for history.")],
    generation: Annotated[
        int | None, typer.Argument(metavar="[GENERATION]", min=1, help="The one before this one.")
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", metavar="FILE", help="A signer's private key; once per signer."),
    ] = None,
    wait: WaitOption = WAIT_S,
    force: ForceOption = False,
    config: ConfigOption = None,
) -> None:
    """Sign the files of an earlier generation as a new one, and activate it."""
    from gateway.compose.activating import stored_release
    from gateway.compose.stores import attached

    settings = settings_of(config)
    with attached(settings) as stores:
        number = generation or _previous(stores)
        stored = stored_release(stores, number)
        if stored is None:
            text = f"there is no generation {number}"
            raise Failure(Exit.USAGE, "unknown_generation", text, "see `gateway policy history`")
        why = f"rollback to generation {number}: {reason}"
        with refusing():
            jws = _signed(settings, stores, stored, key or [], why)
        files = PolicyFiles(stored.contents, stored.digest, stored.overlaid)
        switch(settings, stores, files, jws, reason=why, wait=wait, force=force)


def _previous(stores: Stores) -> int:
    """The generation that was served before the active one. Raises: Failure."""
    from gateway.compose.activating import release_history

    history, _ = release_history(stores)
    active = next((one for one in history if one.state == "active"), None)
    past = [one for one in history if one.state == "past"]
    if active is None or not past:
        reason = "there is no earlier release to go back to"
        raise Failure(Exit.USAGE, "unknown_generation", reason, "see `gateway policy history`")
    if any(one.digest == active.digest for one in past):  # going back twice would go forward
        reason = f"generation {active.generation} is itself an earlier one, served again"
        raise Failure(Exit.USAGE, "usage", reason, "name the generation to go back to")
    return past[0].generation


def _signed(
    settings: Settings, stores: Stores, stored: Artefact, paths: list[Path], why: str
) -> dict[str, Any] | None:
    """The new release over the old files; None in development. Raises: ReleaseRefused."""
    from gateway.compose.activating import standing
    from gateway.compose.trust import trust_anchor

    anchor = trust_anchor(settings)
    there = standing(stores, anchor.environment, signed=anchor.signed)
    if anchor.signed:  # nobody signs what the database alone says that it was
        base, target = believed_base(stores, anchor, there.base), believed(stores, anchor, stored)
    else:
        base, target = there.parsed, parsed_of(stored.contents, stored.overlaid)
    change = reach_of(base, target)
    for text in told_change(change):
        print(text)
    if not anchor.signed:
        return None
    keys = [key_of(path, anchor) for path in paths]
    wanted = needed(change, anchor.widening_signers)
    signers = sorted({key.signer for key in keys})
    if len(signers) < wanted:
        reason = f"going back to generation {stored.generation} {missing(signers, wanted, anchor)}"
        raise ReleaseRefused("too_few_signers", reason, "give --key once per signer")
    manifest = Manifest(
        environment=anchor.environment,
        generation=there.generation,
        digest=stored.digest,
        files=files_of(stored.contents),
        base_generation=there.base[0] if there.base else None,
        base_digest=there.base[1] if there.base else None,
        change=CHANGES[direction(change)],
        reason=why,
        made_at=now(),
    )
    return sign(manifest, keys)
