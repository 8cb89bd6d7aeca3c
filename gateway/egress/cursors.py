"""Cursors of listings: where the next page begins, closed to whoever carries it.

Theory
    A cursor is an address and a hash of what the listing depends on: policy digest, subject,
    scope, filters. It is encrypted and authenticated under a key of the gateway's, so nobody
    makes one, reads one or uses one in another place. One that is ours and of another listing
    is told apart from a forged one: its owner can begin anew.

Source: architecture section 6; retrieval failure 21 (a cursor that outlives its policy).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Final

from cryptography.fernet import Fernet, InvalidToken

from gateway.errors import Code, Refusal
from policies.subject import Subject
from retrieval.contract import UnitsRequest

KEY_BYTES: Final = 32
FORM: Final = re.compile(r"[A-Za-z0-9_-]{1,4096}")


class Cursors:
    """Makes and reads cursors. Gateways that share the key read each other's.

    Cost: some 40 us each.
    """

    def __init__(self, key: bytes) -> None:
        """``key``: 32 secret bytes. Raises: ValueError for another length."""
        self._box: Final = Fernet(base64.urlsafe_b64encode(key))

    @classmethod
    def fresh(cls) -> Cursors:
        """Cursors under a key that only this process has."""
        return cls(base64.urlsafe_b64decode(Fernet.generate_key()))

    def of(self, subject: Subject, filters: UnitsRequest) -> Listing:
        """The cursors of one listing; the size of a page may change within it."""
        bound = [
            *(subject.grant.digest, subject.subject_id, subject.purpose),
            *(subject.grant.profiles, subject.tenants, subject.jurisdictions),
            *(filters.kind, filters.lifecycle_stage, filters.label),
        ]
        return Listing(self._box, hashlib.sha256(json.dumps(bound).encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class Listing:
    """The cursors of one listing."""

    _box: Fernet
    _bound: str

    def close(self, address: str) -> str:
        """The cursor of the page behind this address: URL-safe characters only."""
        text = json.dumps([self._bound, address])
        return self._box.encrypt(text.encode()).decode().rstrip("=")

    def open(self, cursor: str) -> str:
        """The address that a cursor stands for.

        Raises: Refusal ``bad_query`` for what is no cursor of ours, ``cursor_outdated`` for one
        of another listing.
        """
        padded = cursor + "=" * (-len(cursor) % 4)
        try:
            bound, address = json.loads(self._box.decrypt(padded.encode()))
        except (InvalidToken, ValueError) as error:
            raise Refusal(Code.BAD_QUERY, "cursor: not_ours") from error
        if bound != self._bound:
            raise Refusal(Code.CURSOR_OUTDATED, "a cursor of another listing")
        return str(address)
