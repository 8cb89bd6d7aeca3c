"""The signing keys of a gateway as one PEM file, the newest first, each with its first moment.

    signs-from: 2026-11-30T06:00:00Z
    -----BEGIN PRIVATE KEY-----
    ...

Theory
    Whoever verifies keeps the published keys for a while, and replicas read the file each in
    their own second. So a new key is published first and signs later. Text before a block of
    PEM means nothing to other readers, hence the moment can stand there, and one file, swapped
    whole, is the whole ring. A key without that line may sign at any time.

This module knows neither paths nor clocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey

from gateway.errors import GatewayError

KEYS_MAX: Final = 16
PUBLISHED_S: Final = 120.0
"""How long a new key is only published: twice what ``Cache-Control`` lets others keep the set."""

_BLOCK: Final = re.compile(
    rb"(?:^signs-from:[ \t]*(?P<moment>[^\r\n]*)\r?\n)?"
    rb"(?P<pem>-----BEGIN (?:EC )?PRIVATE KEY-----.+?-----END (?:EC )?PRIVATE KEY-----)",
    re.DOTALL | re.MULTILINE,
)
_BEGIN: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"


class BadKeyFile(GatewayError):
    """The key file holds no P-256 private key, or something that is not one."""


@dataclass(frozen=True, slots=True)
class RingKey:
    """A P-256 private key. ``kid``: RFC 7638 thumbprint. ``signs_from``: seconds since 1970."""

    key: ECKey
    kid: str
    signs_from: float = 0.0

    @classmethod
    def of(cls, key: ECKey, signs_from: float = 0.0) -> RingKey:
        """Raises: BadKeyFile for a key that ES256 cannot sign with."""
        if not key.is_private or key.as_dict(private=False).get("crv") != "P-256":
            raise BadKeyFile("a key is not a P-256 private key; ES256 needs one")
        return cls(key, key.thumbprint(), signs_from)

    @classmethod
    def fresh(cls, signs_from: float = 0.0) -> RingKey:
        """A key that nobody has seen."""
        return cls.of(ECKey.generate_key("P-256", auto_kid=False), signs_from)


def read_ring(text: bytes) -> tuple[RingKey, ...]:
    """The keys of a file in its order, which is newest first. Raises: BadKeyFile."""
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != len(_BEGIN.findall(text)):
        raise BadKeyFile("the file holds something that is not a private key")
    if not 0 < len(blocks) <= KEYS_MAX:
        reason = "no key; generate one, or name another file"
        raise BadKeyFile(f"more than {KEYS_MAX} keys" if blocks else reason)
    try:
        keys = [
            RingKey.of(ECKey.import_key(block["pem"]), _moment(block["moment"])) for block in blocks
        ]
    except (JoseError, ValueError, TypeError) as error:
        raise BadKeyFile("the file holds something that is not a private key") from error
    if len({one.kid for one in keys}) != len(keys):
        raise BadKeyFile("a key stands there twice")
    return tuple(keys)


def write_ring(keys: Sequence[RingKey]) -> str:
    """The file of a ring; `read_ring` reads the same ring from it."""
    return "".join(
        (f"signs-from: {shown(one.signs_from)}\n" if one.signs_from else "")
        + one.key.as_pem(private=True).decode("ascii")
        for one in keys
    )


def signer(keys: Sequence[RingKey], now: float) -> RingKey:
    """The key that signs: the newest one whose time has come, else the oldest."""
    for one in keys:
        if one.signs_from <= now:
            return one
    return keys[-1]


def shown(moment: float) -> str:
    """A moment as the file writes it, in whole seconds of UTC."""
    return datetime.fromtimestamp(int(moment), UTC).strftime(_FORM)


def _moment(text: bytes | None) -> float:
    if text is None:
        return 0.0
    try:
        found = datetime.strptime(f"{text.decode('ascii').strip()}+0000", "%Y-%m-%dT%H:%M:%SZ%z")
    except ValueError as error:
        raise BadKeyFile("`signs-from` is not a moment such as 2026-11-30T06:00:00Z") from error
    return found.timestamp()
