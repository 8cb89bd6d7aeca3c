"""Masking and dropping: which values of a record its readers shall not get.

Laws
    * A dropped field is absent, a masked one is ``***`` or, with a key, a keyed hash: equal
      values have equal hashes under one key, whichever field they stand in, so that records
      can still be counted and joined. Dropping wins over masking.
    * What is masked or dropped is said in the record; nothing else of it changes.
    * Redaction comes after the decision and reads no request: it cannot change an answer.

Source: policy traps, row 13 (a mask that altered the decision's input).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from gateway.decisions.fields import CONTAINERS, STARS, leaves
from gateway.decisions.writing import Values

_HEX: Final = 24
_REMEMBERED: Final = 4_096


class Redaction:
    """Masks and drops fields by their paths. ``key``: any text; empty: masks are ``***``.

    ``mask`` and ``drop`` hold known paths (`fields.leaves`); a container stands for its leaves.
    """

    def __init__(
        self, *, mask: Iterable[str] = (), drop: Iterable[str] = (), key: str = ""
    ) -> None:
        dropped = set(drop)
        gone = {leaf for path in dropped for leaf in leaves(path)}
        masked = {leaf for path in mask for leaf in leaves(path)} - gone
        self.erased: Final = sorted(dropped)
        self.masked: Final = sorted(masked)
        self._drop = _split(gone)
        self._whole = [one for one in CONTAINERS if one in dropped]
        self._mask = _split(masked)
        self._hash = lru_cache(_REMEMBERED)(_hash_under(key)) if key else None

    def applied(self, values: Values) -> Values:
        """The same record, redacted in place. Cost: nothing without lists."""
        if not self.erased and not self.masked:
            return values
        for whole in self._whole:
            values.pop(whole, None)
        for holder, names in self._drop:
            for one in _holders(values, holder):
                for name in names:
                    one.pop(name, None)
        for holder, names in self._mask:
            for one in _holders(values, holder):
                for name in names:
                    if name in one:
                        one[name] = self._masked(one[name])
        values["masked"], values["erased"] = list(self.masked), list(self.erased)
        return values

    def _masked(self, value: object) -> object:
        if isinstance(value, list):
            if self._hash is None:
                return [STARS]  # not even how many there are
            return sorted(self._hash(str(one)) for one in value)  # their order would tell
        return STARS if self._hash is None else self._hash(str(value))


def _hash_under(key: str) -> Callable[[str], str]:
    secret = hashlib.blake2b(key.encode(), digest_size=64).digest()

    def hashed(text: str) -> str:
        return "~" + hashlib.blake2b(text.encode(), key=secret, digest_size=_HEX // 2).hexdigest()

    return hashed


def _split(paths: set[str]) -> list[tuple[str, list[str]]]:
    """Paths by their container, which is empty for those of the record itself."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        holder, _, name = path.rpartition(".")
        found.setdefault(holder, []).append(name)
    return list(found.items())


def _holders(values: Values, holder: str) -> list[Values]:
    if not holder:
        return [values]
    inside = values.get(holder)
    if isinstance(inside, dict):
        return [inside]
    return [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else []
