"""A small HTTP client for commands: JSON in and out, bounded, never following a redirect.

A redirect would carry the caller's token to an address that nobody named.
"""

from __future__ import annotations

import ipaddress
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.cli.failure import Exit, Failure, flat

TIMEOUT_S: Final = 60.0
BODY_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: the status, and the body as JSON (None when it is not)."""

    status: int
    json: Any


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def is_loopback(url: str) -> bool:
    """Whether the address is one that never leaves this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secure(url: str, what: str) -> str:
    """The address itself. Raises: Failure unless it is https, or http on loopback."""
    scheme = urlsplit(url).scheme
    if scheme == "https" or (scheme == "http" and is_loopback(url)):
        return url
    reason = f"the {what} `{url}` is neither https nor on loopback"
    raise Failure(Exit.USAGE, "insecure_address", reason, "use https: a secret would be readable")


def send(url: str, body: bytes, headers: dict[str, str]) -> Reply:
    """Send one POST. Raises: OSError (or a subclass) when there is no HTTP answer."""
    request = urllib.request.Request(  # noqa: S310 - ``secure`` lets only http(s) get here
        url, data=body, headers=headers, method="POST"
    )
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return Reply(answer.status, _json(answer.read(BODY_MAX)))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, _json(error.read(BODY_MAX)))
    except HTTPException as error:
        raise ConnectionError(flat(error) or type(error).__name__) from error


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
