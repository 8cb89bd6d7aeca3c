"""Whom this installation believes, whom no more, and the newest release that it has believed."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.authn.revoked import (
    BYTES_MAX,
    BadRevocations,
    Revoked,
    name_of,
    read_revoked,
    read_revoked_in_turns,
)
from gateway.compose.failure import CannotStart, first_line
from gateway.compose.state import state_folder, write_private
from gateway.settings import Settings
from policies.bindings import IssuerBinding
from policies.decision import PolicyDigest
from policies.release import ReleaseRefused, TrustAnchor

MEMORY_FILE: Final = "release.json"


def trust_anchor(settings: Settings) -> TrustAnchor:
    """The keys of the settings; without a keys file nothing needs to be signed.

    Raises: CannotStart.
    """
    release = settings.release
    if release.keys_file is None:
        return TrustAnchor.unsigned(release.environment)
    try:
        return TrustAnchor.from_jwks(
            release.keys_file.read_bytes(),
            environment=release.environment,
            widening_signers=release.widening_signers,
        )
    except OSError as error:
        reason = f"`{release.keys_file}` cannot be read ({error.strerror or first_line(error)})"
        remedy = "name a JWK set as `release.keys_file`"
        raise CannotStart("keys_unusable", reason, remedy) from error
    except ReleaseRefused as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error


def revoked_of(settings: Settings) -> Revoked:
    """The tokens and callers that are revoked; none without a file. Raises: CannotStart."""
    file = settings.tokens.revoked_file
    if file is None:
        return Revoked()
    with _naming(file):
        return read_revoked(_text_of(file))


async def revoked_anew(settings: Settings, known: Revoked) -> Revoked:
    """As `revoked_of`, while the loop goes on with its other work; ``known`` itself where the
    file says what it said. Cost: 6 us a line of the loop's time, in turns of a millisecond.

    Raises: CannotStart.
    """
    file = settings.tokens.revoked_file
    if file is None:
        return known if known == Revoked() else Revoked()
    with _naming(file):
        text, source = await asyncio.to_thread(_named_text_of, file)
        if source == known.source:
            return known
        return await read_revoked_in_turns(text, source)


def _named_text_of(file: Path) -> tuple[bytes, bytes]:
    text = _text_of(file)
    return text, name_of(text)


def _text_of(file: Path) -> bytes:
    """What stands in a file, one byte more than a list may have at most. Never of a pipe or a
    device: nothing is read again, and no process ends, while one is waited for."""
    with open(file, "rb", opener=_at_once) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise BadRevocations("it is not a regular file")
        return opened.read(BYTES_MAX + 1)


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for who would write into a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Tell what is wrong with a list as what it is to whoever starts or reads it."""
    try:
        yield
    except (OSError, ValueError, BadRevocations) as error:  # ValueError: no path at all
        why = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
        reason = f"`{file}` cannot be read ({why})"
        remedy = "mend it, or name another file as `tokens.revoked_file`"
        raise CannotStart("revocations_unusable", reason, remedy) from error


def strangers(revoked: Revoked, issuers: Collection[IssuerBinding]) -> list[str]:
    """Issuers that are named with a revocation and that no policy in force believes: typing
    errors, or left over."""
    return sorted(revoked.issuers - {one.url for one in issuers})


@dataclass(frozen=True, slots=True)
class Remembered:
    """The newest release that was accepted here."""

    generation: int
    digest: PolicyDigest


class ReleaseMemory:
    """What the state folder keeps, so that a restart cannot be made to go back.

    Whoever can write the database can offer an older release, whose signatures are as good as
    on its first day.
    """

    def __init__(self, settings: Settings) -> None:
        self._path: Path = state_folder(settings) / MEMORY_FILE
        self._environment = settings.release.environment

    def read(self) -> Remembered | None:
        """What was remembered for this environment. Raises: CannotStart when it is unreadable."""
        try:
            told = json.loads(self._path.read_bytes())
            if told["environment"] != self._environment:
                return None
            generation, digest = int(told["generation"]), str(told["digest"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            reason = f"`{self._path}` cannot be read, so an older release could not be told"
            remedy = "restore it, or remove it if the database is beyond doubt"
            raise CannotStart("memory_unusable", reason, remedy) from error
        return Remembered(generation, PolicyDigest(digest))

    def write(self, generation: int, digest: PolicyDigest) -> None:
        """Remember a release that was accepted; an older one than before changes nothing.

        Raises: CannotStart.
        """
        before = self.read()
        if before is not None and before.generation >= generation:
            return
        told = {"environment": self._environment, "generation": generation, "digest": digest}
        try:
            write_private(self._path, json.dumps(told) + "\n")
        except OSError as error:
            reason = f"`{self._path}` cannot be written ({error.strerror})"
            raise CannotStart("state_unwritable", reason, "set GATEWAY_STATE") from error
