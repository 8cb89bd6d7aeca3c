"""``gateway policy approve``: a signer states that this folder may be served.

The first signer makes ``release.json``; every further one adds a signature over the very same
bytes, after seeing what the change does by the own tool. Nothing goes live here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure
from gateway.cli.policy_release import (
    RELEASE_FILE,
    KeyOption,
    ReasonOption,
    believed_base,
    direction,
    key_of,
    missing,
    needed,
    reach_of,
    refusing,
    release_of,
    told_change,
    write_release,
)
from gateway.cli.policy_report import Overlay, told
from gateway.settings import Settings
from policies import casework
from policies.decision import PolicyDigest
from policies.errors import InvalidPolicy
from policies.files import digest_of
from policies.loader import Parsed
from policies.release import (
    Manifest,
    ReleaseRefused,
    SigningKey,
    TrustAnchor,
    contents_of,
    cosign,
    manifest_of,
    sign,
    signers_of,
    verified,
)
from policies.release.artefact import files_of, parsed_of
from policies.release.manifest import CHANGES, now
from policies.release.trust import DEVELOPMENT
from policies.review.diff import Reach
from policies.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Against:
    """What the folder is compared with, and the number of a new release."""

    base: tuple[int, PolicyDigest] | None
    parsed: Parsed | None
    generation: int


def approve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The policy folder.")],
    key: KeyOption,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="FOLDER/release.json.")
    ] = None,
    reason: ReasonOption = "",
    environment: Annotated[
        str | None, typer.Option("--environment", metavar="E", help="That of the settings.")
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="DIR", help="The active folder, instead of a database."),
    ] = None,
    generation: Annotated[
        int | None, typer.Option("--generation", min=1, help="Without a database: its number.")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--new", help="Replace a release that was not activated.")
    ] = False,
    overlay: Overlay = None,
    config: ConfigOption = None,
) -> None:
    """Sign a folder as a release, or add a signature to the release beside it."""
    from gateway.compose.release import folder_policy  # late: it loads every house

    settings = settings_of(config)
    path = out or folder / RELEASE_FILE
    with told(folder), refusing():
        anchor = _anchor(settings, environment)
        own = folder_policy(folder, overlay)
        against = _against(settings, anchor, base, generation)
        change = reach_of(against.parsed, own.parsed)
        keys = [key_of(one, anchor) for one in key]
        release = None if anew else _pending(path, anchor, against, own.contents, generation)
        if release is None:
            release = sign(_manifest(anchor, against, own.contents, change, reason), keys)
        else:
            release = _cosigned(release, keys, change)
    write_release(path, release)
    _tell(path, release)
    print("\n".join([*told_change(change), *_told_cases(folder, own.snapshot)]))
    wanted = needed(change, _widening(settings, anchor))
    print(missing(signers_of(release), wanted, anchor))


def _told_cases(folder: Path, snapshot: Snapshot) -> list[str]:
    """What a signer should know before somebody activates it: expectations that do not hold."""
    try:
        failures = casework.run(folder, snapshot).failures
    except InvalidPolicy as error:
        return [f"cases: cannot be read: {error.faults[0]}"]
    return [f"cases: `{one.name}` ({one.place.at}) does not hold" for one in failures]


def _manifest(
    anchor: TrustAnchor,
    against: _Against,
    contents: Mapping[str, bytes],
    change: Reach | None,
    reason: str,
) -> Manifest:
    return Manifest(
        environment=anchor.environment,
        generation=against.generation,
        digest=digest_of(contents),
        files=files_of(contents),
        base_generation=against.base[0] if against.base else None,
        base_digest=against.base[1] if against.base else None,
        change=CHANGES[direction(change)],
        reason=reason,
        made_at=now(),
    )


def _cosigned(
    release: dict[str, Any], keys: list[SigningKey], change: Reach | None
) -> dict[str, Any]:
    """The pending release with these signatures, too. Raises: ReleaseRefused."""
    said = manifest_of(release).change
    if said != CHANGES[direction(change)]:
        reason = f"it says `{said}`, and the change is another"
        raise ReleaseRefused("change_differs", reason, "make another release with --new")
    for one in keys:
        release = cosign(release, one)
    return release


def _anchor(settings: Settings, environment: str | None) -> TrustAnchor:
    """Who may sign for which environment; without a keys file everybody, and not development."""
    from gateway.compose.trust import trust_anchor  # late: it loads cryptography

    anchor = trust_anchor(settings)
    wanted = environment or anchor.environment
    if anchor.signed and wanted != anchor.environment:
        reason = f"the settings are those of `{anchor.environment}`, not of `{wanted}`"
        raise Failure(Exit.USAGE, "other_environment", reason, "give --config of that environment")
    if not anchor.signed and wanted == DEVELOPMENT:
        reason = "development needs no signature, and a release of it would be believed nowhere"
        raise Failure(Exit.USAGE, "usage", reason, "name --environment, or --config with its keys")
    return anchor if anchor.signed else TrustAnchor.unsigned(wanted)


def _widening(settings: Settings, anchor: TrustAnchor) -> int:
    return anchor.widening_signers if anchor.signed else settings.release.widening_signers


def _against(
    settings: Settings, anchor: TrustAnchor, base: Path | None, generation: int | None
) -> _Against:
    if base is not None:
        return _base_folder(anchor, base, generation)
    if generation is not None:
        return _Against(None, None, generation)
    # late: they load every house, a second or two
    from gateway.compose.activating import standing
    from gateway.compose.stores import reachable

    stores = reachable(settings)
    if stores is None:  # to start one would show a signer an empty database as what is active
        reason = "no database is set and no gateway runs here, so what is active is not known"
        remedy = (
            "name its folder by --base, or say --generation for a first release: 1, or the next"
            " after `gateway policy history`"
        )
        raise Failure(Exit.USAGE, "no_base", reason, remedy)
    there = standing(stores, anchor.environment, signed=True)
    if anchor.signed:
        parsed = believed_base(stores, anchor, there.base)
        return _Against(there.base, parsed, there.generation)
    return _Against(there.base, there.parsed, there.generation)


def _base_folder(anchor: TrustAnchor, base: Path, generation: int | None) -> _Against:
    """The folder of a release, with the number of the release that lies in it."""
    contents = contents_of(base).contents
    release = release_of(base / RELEASE_FILE)
    if release is None or dict(manifest_of(release).files) != files_of(contents):
        reason = f"`{base}` has no {RELEASE_FILE} of its files, so its number is not known"
        raise Failure(Exit.USAGE, "no_base", reason, "name the folder of a release")
    if anchor.signed:
        verified(release, anchor)
    manifest = manifest_of(release)
    number = generation or manifest.generation + 1
    return _Against((manifest.generation, manifest.digest), parsed_of(contents), number)


def _pending(
    path: Path,
    anchor: TrustAnchor,
    against: _Against,
    contents: Mapping[str, bytes],
    asked: int | None,
) -> dict[str, Any] | None:
    """The release at ``path`` if it waits for signatures of this very folder; None if it is over.

    Raises: ReleaseRefused when it waits and is about something else, or about another number than
    the one that was ``asked`` for.
    """
    release = release_of(path)
    if release is None:
        return None
    manifest = manifest_of(release)
    if against.base is not None and manifest.generation <= against.base[0]:
        return None
    if asked is not None and manifest.generation != asked:
        reason = f"`{path.name}` is generation {manifest.generation}, and {asked} was asked for"
        remedy = "leave --generation out to add a signature to it, or replace it with --new"
        raise ReleaseRefused("other_generation", reason, remedy)
    remedy = "restore the folder, or make another release with --new"
    if manifest.environment != anchor.environment:
        reason = f"`{path.name}` is a release for `{manifest.environment}`"
        raise ReleaseRefused("other_environment", reason, remedy)
    if dict(manifest.files) != files_of(contents):
        reason = f"the folder is not what the signers of `{path.name}` saw"
        raise ReleaseRefused("folder_differs", reason, remedy)
    if (manifest.base_generation, manifest.base_digest) != (against.base or (None, None)):
        reason = f"`{path.name}` was compared with another base than the active release"
        raise ReleaseRefused("base_moved", reason, "make another release with --new")
    if anchor.signed:
        verified(release, anchor)
    return release


def _tell(path: Path, release: dict[str, Any]) -> None:
    manifest = manifest_of(release)
    base = f"generation {manifest.base_generation}" if manifest.base_generation else "nothing"
    print(f"{path}: generation {manifest.generation} of {manifest.environment}, on {base}")
    print(f"digest: {manifest.digest}")
    print(f"signed by: {', '.join(signers_of(release))}")
