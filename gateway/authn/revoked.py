"""Tokens that are not believed any more although nothing is wrong with them: a file of lines.

    {"iss": "https://login.example/", "jti": "4f1c2b", "until": "2026-12-01T00:00:00Z"}
    {"iss": "https://login.example/", "sub": "u-17", "until": "2026-12-01T00:00:00Z"}

Laws
    * A line ends one token (``jti``), or all of one caller (``sub``), until its moment: the end of
      the token, or of the caller's last one. It counts for as long after it as a token does
      (``LEEWAY_S``). ``iss`` is the word of the tokens, byte for byte.
    * A line that cannot be read makes the whole file unusable: nobody stays believed because of
      a slip of the pen. Blank lines are none.

Source: RFC 7519 sections 4.1.1, 4.1.2 and 4.1.7.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from gateway.authn.claims import LEEWAY_S, WORD_MAX, subject_id
from gateway.errors import GatewayError
from gateway.ingress.strict_json import Json, NotStrictJson, parse_object

LINES_MAX: Final = 100_000
BYTES_MAX: Final = 32 * 1024 * 1024
LINE_BYTES_MAX: Final = 64 * 1024
"""Over what the longest words take, however they are escaped. A line is read in one go."""
TURN_LINES: Final = 200
"""What is read at once on a loop that has other work: a millisecond."""
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


class BadRevocations(GatewayError):
    """A file of revocations that cannot be read; its text names the line."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Until when (epoch seconds) which tokens, by issuer and ``jti``, and which callers, by
    subject id, are not believed. ``issuers`` are all that are named; ``source`` names the text
    that says so (`name_of`)."""

    tokens: Mapping[tuple[str, str], float] = field(default_factory=dict)
    subjects: Mapping[str, float] = field(default_factory=dict)
    issuers: frozenset[str] = frozenset()
    source: bytes = field(default=b"", compare=False)

    def token(self, claims: Mapping[str, Json], now: float) -> bool:
        """Whether the token with these verified claims is revoked now."""
        iss, jti = claims.get("iss"), claims.get("jti")
        if not isinstance(iss, str) or not isinstance(jti, str):
            return False
        return now < self.tokens.get((iss, jti), 0.0)

    def subject(self, name: str, now: float) -> bool:
        """Whether the caller with this subject id is revoked now."""
        return now < self.subjects.get(name, 0.0)


def name_of(text: bytes) -> bytes:
    """A name that no other text has. Cost: 1 ms a megabyte, without the interpreter's lock."""
    return hashlib.sha256(text).digest()


def read_revoked(text: bytes) -> Revoked:
    """What a file says. Raises: BadRevocations. Cost: 6 us a line."""
    found = _Found()
    for _ in found.turns(text):
        pass
    return found.revoked(name_of(text))


async def read_revoked_in_turns(text: bytes, source: bytes) -> Revoked:
    """As `read_revoked`, of a text with this name, while the loop goes on with its other work.

    On the loop and not in a thread: there the interpreter's lock would keep each callback of the
    loop waiting for longer than a turn takes.
    """
    found = _Found()
    for _ in found.turns(text):
        await asyncio.sleep(0)
    return found.revoked(source)


class _Found:
    """What the lines say that were read so far."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, str], float] = {}
        self._subjects: dict[str, float] = {}
        self._issuers: set[str] = set()

    def revoked(self, source: bytes) -> Revoked:
        return Revoked(self._tokens, self._subjects, frozenset(self._issuers), source)

    def turns(self, text: bytes) -> Iterator[None]:
        """Read the lines, and pause after each few of them. Raises: BadRevocations."""
        if len(text) > BYTES_MAX:
            raise BadRevocations(f"more than {BYTES_MAX} bytes")
        for number, line in enumerate(io.BytesIO(text), 1):
            if number > LINES_MAX:
                raise BadRevocations(f"more than {LINES_MAX} lines")
            if len(line) > LINE_BYTES_MAX:
                raise BadRevocations(f"line {number}: more than {LINE_BYTES_MAX} bytes")
            if line.strip():
                try:
                    self._add(*_line(line))
                except (NotStrictJson, ValueError) as error:
                    raise BadRevocations(f"line {number}: {error}") from None
            if number % TURN_LINES == 0:
                yield

    def _add(self, iss: str, name: str, word: str, until: float) -> None:
        if name == "jti":
            self._tokens[iss, word] = max(until, self._tokens.get((iss, word), 0.0))
        else:
            subject = subject_id(iss, word)
            self._subjects[subject] = max(until, self._subjects.get(subject, 0.0))
        self._issuers.add(iss)


def _line(line: bytes) -> tuple[str, str, str, float]:
    told = parse_object(line)
    names = told.keys() - {"iss", "until"}
    if not {"iss", "until"} <= told.keys() or names not in ({"jti"}, {"sub"}):
        raise ValueError("not exactly `iss`, `until` and one of `jti` and `sub`")
    (name,) = names
    return _word(told, "iss"), name, _word(told, name), _moment(told["until"]) + LEEWAY_S


def _word(told: Mapping[str, Json], name: str) -> str:
    word = told[name]
    if not isinstance(word, str) or not 0 < len(word) <= WORD_MAX:
        raise ValueError(f"`{name}` is not a text of 1 to {WORD_MAX} characters")
    return word


def _moment(until: Json) -> float:
    if not isinstance(until, str) or not _MOMENT.fullmatch(until):
        raise ValueError("`until` is not a moment such as 2026-12-01T00:00:00Z")
    return datetime.fromisoformat(until).timestamp()
