"""Tells one other system of gaps that were routed: signed, bounded, and without callers' data.

Laws
    * A message holds ids, kinds, counts and times. No subject, no question, no text of a unit.
    * It is signed after the Standard Webhooks specification, so that any receiver can check it.
    * It is sent until it is taken (2xx), refused for good (410) or ``ATTEMPTS_MAX`` attempts are
      over; what is given up stays in the table and in the log. The receiver may see one twice:
      the id is the same then.
    * Redirects are not followed and answers are not read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from typing import Any, Final

import httpx
from psycopg import AsyncConnection
from pydantic import SecretStr

ATTEMPTS_MAX: Final = 8
BATCH: Final = 20
_FIRST_PAUSE_S: Final = 30
_PREFIX: Final = "whsec_"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_log = logging.getLogger(__name__)

_DUE: Final = """
select id, body from brain.signal_outbox where state = 'pending' and due_at <= now()
order by due_at, id limit %(limit)s
"""
_TRIED: Final = """
update brain.signal_outbox
set attempts = attempts + 1, last_code = %(code)s,
    state = case when %(taken)s then 'sent'
                 when %(final)s or attempts + 1 >= %(most)s then 'given_up' else 'pending' end,
    due_at = now() + make_interval(secs => %(pause)s * 2 ^ attempts)
where id = %(id)s returning state
"""


class Webhook:
    """Sends what is due. Raises ValueError for an address or a secret that it must not use."""

    def __init__(self, url: str, secret: SecretStr, *, timeout_s: float) -> None:
        self._url: Final = checked_address(url)
        self._key: Final = key_of(secret)
        self._client: Final = httpx.AsyncClient(
            timeout=timeout_s, follow_redirects=False, trust_env=False
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def send_due(self, connection: AsyncConnection[Any]) -> int:
        """Tries what is due, at most ``BATCH``; how many were taken. Raises psycopg.Error."""
        taken = 0
        cursor = await connection.execute(_DUE, {"limit": BATCH})
        for message, body in await cursor.fetchall():
            code = await self._post(str(message), body)
            values = {
                "id": message,
                "code": code,
                "taken": code[0] == "2",
                "final": code == "410",
                "most": ATTEMPTS_MAX,
                "pause": _FIRST_PAUSE_S,
            }
            row = await (await connection.execute(_TRIED, values)).fetchone()
            taken += code[0] == "2"
            if row == ("given_up",):
                _log.error("webhook: message %s was given up: %s", message, code)
        return taken

    async def _post(self, message: str, body: object) -> str:
        """The status of one attempt, or the class of what went wrong."""
        payload = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
        moment = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "webhook-id": message,
            "webhook-timestamp": moment,
            "webhook-signature": signature(self._key, message, moment, payload),
        }
        try:
            async with self._client.stream(
                "POST", self._url, content=payload, headers=headers
            ) as answer:
                return str(answer.status_code)
        except httpx.HTTPError as fault:
            return type(fault).__name__


def signature(key: bytes, message: str, moment: str, payload: bytes) -> str:
    """The value of ``webhook-signature``: ``v1,`` and the HMAC-SHA256 in base64."""
    signed = b".".join((message.encode(), moment.encode(), payload))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def key_of(secret: SecretStr) -> bytes:
    """The key behind ``whsec_`` and base64. Raises ValueError unless it has 24 to 64 bytes."""
    text = secret.get_secret_value()
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or not 24 <= len(key) <= 64:
        raise ValueError("is not `whsec_` and 24 to 64 bytes in base64")
    return key


def checked_address(url: str) -> str:
    """The address, if it is https or on this machine. Raises ValueError."""
    try:
        parts = httpx.URL(url)
        host = parts.host  # decoded, as every request will do
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ValueError("is no https:// address") from error
    if host and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        return url
    raise ValueError("is neither https:// nor on this machine")
