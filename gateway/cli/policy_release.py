"""What the release commands share: the file beside a folder, keys, and what a change does."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.terminal import line
from policies.decision import PolicyDigest
from policies.loader import Parsed
from policies.release import Artefact, ReleaseRefused, SigningKey, TrustAnchor, accept
from policies.review.change import Direction
from policies.review.diff import Reach, reach
from policies.review.reading import of_parsed

if TYPE_CHECKING:
    from gateway.compose.stores import Stores

RELEASE_FILE: Final = "release.json"
WAIT_S: Final = 120.0
"""How long replicas may prepare a release: twice what ten thousand rules take one."""

_LINES_MAX: Final = 20
_WORDS: Final = {
    Direction.WIDENING: "WIDENING",
    Direction.NARROWING: "narrowing",
    Direction.NEUTRAL: "changes no reach",
}

KeyOption = Annotated[
    list[Path], typer.Option("--key", metavar="FILE", help="A signer's private key (PEM).")
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for history.")]
WaitOption = Annotated[
    float,
    typer.Option("--wait", metavar="S", min=0, max=600, help="How long replicas may prepare it."),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Flip although a replica refuses or does not answer.")
]


@contextmanager
def refusing() -> Iterator[None]:
    """End with code 3 and the release's own words when it is refused meanwhile."""
    try:
        yield
    except ReleaseRefused as error:
        raise Failure(Exit.POLICY, error.code, flat(error.reason), error.remedy) from error


def believed(stores: Stores, anchor: TrustAnchor, stored: Artefact) -> Parsed:
    """The policy of a stored release, accepted as a gateway would: before it is signed anew, or
    a signer is told what another policy opens beside it. Raises: CannotStart; ReleaseRefused.
    """
    from gateway.compose.activating import stored_release  # late: it loads every house

    return accept(stored, anchor, newer_than=0, fetch=lambda number: stored_release(stores, number))


def believed_base(
    stores: Stores, anchor: TrustAnchor, base: tuple[int, PolicyDigest] | None
) -> Parsed | None:
    """Likewise the release that a new one is compared with, if there is one."""
    from gateway.compose.activating import stored_release  # late: it loads every house

    if base is None:
        return None
    stored = stored_release(stores, base[0])
    if stored is None or stored.digest != base[1]:
        reason = f"generation {base[0]}, which is active, is not here"
        raise ReleaseRefused("base_missing", reason, "see `gateway policy history`")
    return believed(stores, anchor, stored)


def key_of(path: Path, anchor: TrustAnchor) -> SigningKey:
    """A signer's key. Raises: Failure; ReleaseRefused."""
    try:
        with path.open("rb") as file:
            open_to_others = os.fstat(file.fileno()).st_mode & 0o077
            text = file.read()
    except OSError as error:
        reason = f"`{path}` cannot be read ({error.strerror})"
        raise Failure(Exit.USAGE, "key_unusable", reason, "name another file") from error
    if open_to_others:  # whoever could read it could have signed as well
        reason = f"`{path}` may be read by others than its owner"
        raise Failure(Exit.USAGE, "key_unusable", reason, "chmod 600, or make a new key")
    return SigningKey.from_pem(text, anchor)


def release_of(path: Path) -> dict[str, Any] | None:
    """What stands in a release file, not believed; None when there is none. Raises: Failure."""
    try:
        told = json.loads(path.read_bytes(), object_pairs_hook=_once)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = f"`{path}` is not a release ({flat(error)})"
        raise Failure(
            Exit.POLICY, "malformed_release", reason, "approve the folder anew"
        ) from error
    if not isinstance(told, dict):
        reason = f"`{path}` is not a release"
        raise Failure(Exit.POLICY, "malformed_release", reason, "approve the folder anew")
    return told


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without a member that is there twice, so that it has one reading."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a member is there twice")
    return made


def write_release(path: Path, release: Mapping[str, Any]) -> None:
    """Raises: Failure."""
    try:
        path.write_text(json.dumps(release, indent=1) + "\n", encoding="ascii")
    except OSError as error:
        reason = f"`{path}` cannot be written ({error.strerror})"
        raise Failure(Exit.USAGE, "unwritable", reason, "name another by --out") from error


def reach_of(base: Parsed | None, own: Parsed) -> Reach | None:
    """What the change opens and closes; None for a first release, which opens everything."""
    return None if base is None else reach(of_parsed(base), of_parsed(own))


def direction(found: Reach | None) -> Direction:
    """Which way a change goes; without a base (None) everything is opened."""
    return Direction.WIDENING if found is None else found.direction


def told_change(found: Reach | None) -> list[str]:
    """The change in a few lines, what widens first."""
    if found is None:
        return ["change: first release, everything in it is new"]
    lines = [f"change: {_WORDS[found.direction]}"]
    lines += [f"  {one.profile}: +{one.gained} -{one.lost} states" for one in found.profiles]
    for way in (Direction.WIDENING, Direction.NARROWING):
        lines += [
            f"  {one.area} {one.name}: {_WORDS[way]}: {one.what}"
            for one in found.changes
            if one.direction is way
        ]
    if len(lines) > _LINES_MAX:
        more = len(lines) - _LINES_MAX
        lines = [*lines[:_LINES_MAX], f"  and {more} more; see `gateway policy diff`"]
    return [line(text) for text in lines]


def needed(found: Reach | None, widening_signers: int) -> int:
    """How many distinct signers the change takes."""
    return widening_signers if direction(found) is Direction.WIDENING else 1


def missing(signers: Sequence[str], wanted: int, anchor: TrustAnchor) -> str:
    """What is still to be done, in words: ``nobody``, or how many of whom."""
    if len(signers) >= wanted:
        return "no more signer is needed"
    others = sorted(set(anchor.keys) - set(signers))
    whom = f" of {', '.join(others)}" if others else ""
    return f"needs {wanted - len(signers)} more signer{'s'[: wanted - len(signers) - 1]}{whom}"


def operator() -> str:
    """Who runs this command, for the history."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return "unknown"
