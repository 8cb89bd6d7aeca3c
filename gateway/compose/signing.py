"""The file of the signing keys: made once, followed while serving, changed by commands.

Laws
    * A ring is taken over whole. A file that cannot be read or used leaves the last good ring,
      one line of the log at level ERROR, and is looked at again when it changes.
    * Nothing here signs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from gateway.authn.key_ring import (
    KEYS_MAX,
    PUBLISHED_S,
    BadKeyFile,
    RingKey,
    read_ring,
    signer,
    write_ring,
)
from gateway.authn.own_keys import OwnKeys
from gateway.compose.failure import CannotStart, first_line
from gateway.compose.state import KEY_FILE, state_folder, write_private
from gateway.settings import Settings

LOOK_S: Final = 1.0
SIGNED_S: Final = 60.0
"""How long what a key has signed may be under way: the longest life of an assertion."""
_LOG: Final = logging.getLogger(__name__)

_Mark = tuple[int, int, int]


class KeyRefused(CannotStart):
    """A change of the ring would cut off what is under way, or cannot be made."""


def key_file(settings: Settings) -> Path:
    """Where the ring is: the configured file, else one in the state folder."""
    return settings.keys.assertion_file or state_folder(settings) / KEY_FILE


def ring_of(settings: Settings) -> tuple[RingKey, ...]:
    """The ring of this installation. Raises: CannotStart."""
    path = key_file(settings)
    try:
        return read_ring(path.read_bytes())
    except (OSError, BadKeyFile) as error:
        raise _unusable(path, error) from error


class KeyFile:
    """Keeps a ring in step with its file. ``look`` costs one ``stat`` when nothing changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark = _mark(path)
        try:
            self.keys = OwnKeys(read_ring(path.read_bytes()))
        except (OSError, BadKeyFile) as error:
            raise _unusable(path, error) from error

    def look(self) -> None:
        """Take the file over if it has changed."""
        mark = _mark(self.path)
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self.keys.replace(read_ring(self.path.read_bytes()))
        except (OSError, BadKeyFile) as error:
            _LOG.error("signing keys: `%s` is not taken over: %s", self.path, first_line(error))
            return
        kids = " ".join(one.kid for one in self.keys.keys)
        _LOG.info("signing keys: %s", kids)

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()


async def opened_keys(stack: AsyncExitStack, settings: Settings) -> OwnKeys:
    """The signing keys, followed until ``stack`` ends; made when there are none in the state
    folder. Raises: CannotStart."""
    await asyncio.to_thread(prepare_keys, settings)
    file = KeyFile(key_file(settings))
    following = asyncio.create_task(file.follow(), name="signing keys")

    async def ended() -> None:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    stack.push_async_callback(ended)
    return file.keys


def rotate(settings: Settings, *, at_once: bool = False, now: float | None = None) -> RingKey:
    """Put a new key in front of the ring; it signs when it has been published for long enough.

    ``at_once``: it signs now, because the others are not to be trusted any more; who verifies
    with a kept key set looks again. Raises: CannotStart, KeyRefused.
    """
    ring = ring_of(settings)
    if len(ring) >= KEYS_MAX:
        raise KeyRefused("too_many_keys", f"the ring has {len(ring)} keys", "retire old ones")
    moment = time.time() if now is None else now
    fresh = RingKey.fresh(int(moment) if at_once else int(moment + PUBLISHED_S))
    _write(key_file(settings), (fresh, *ring))
    return fresh


def retire(settings: Settings, kid: str, *, force: bool = False, now: float | None = None) -> None:
    """Take a key out of the ring: what it signed counts for nothing from now on.

    Without ``force`` a key stays that signs, or whose signatures may still be under way.
    Raises: CannotStart, KeyRefused.
    """
    ring, moment = ring_of(settings), time.time() if now is None else now
    places = [place for place, one in enumerate(ring) if one.kid == kid]
    if not places:
        raise KeyRefused("unknown_key", f"no key `{kid}`", "see `gateway keys list`")
    if len(ring) == 1:
        raise KeyRefused("last_key", "nothing would sign", "run `gateway keys rotate` first")
    followed = moment - SIGNED_S  # what signed then may still be under way
    if not force and kid in {signer(ring, moment).kid, signer(ring, followed).kid}:
        remedy = "wait until a newer key has signed for a minute, or say --force"
        raise KeyRefused("key_in_use", "it signs, or did a minute ago", remedy)
    _write(key_file(settings), [one for one in ring if one.kid != kid])


def prepare_keys(settings: Settings) -> None:
    """Make a first key where none was configured and there is none. Raises: CannotStart."""
    path = key_file(settings)
    try:
        if settings.keys.assertion_file is None and not path.exists():
            write_private(path, write_ring([RingKey.fresh()]))
    except OSError as error:
        raise _unusable(path, error) from error


def _write(path: Path, ring: Sequence[RingKey]) -> None:
    target = path.resolve()  # a link stays a link
    try:
        write_private(target, write_ring(ring))
    except OSError as error:
        reason = f"`{path}` cannot be written ({error.strerror})"
        raise KeyRefused("key_unwritable", reason, "run it as the file's owner") from error


def _mark(path: Path) -> _Mark | None:
    """What changes when a file is replaced or rewritten; None while there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _unusable(path: Path, error: Exception) -> CannotStart:
    reason = f"the signing key `{path}` cannot be used ({first_line(error)})"
    return CannotStart("key_unusable", reason, "mend GATEWAY_ASSERTION_KEY_FILE")
