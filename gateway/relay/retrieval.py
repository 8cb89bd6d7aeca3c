"""Retrieval as an upstream: the gateway asks it over a wire, also inside one process.

So the guard inspects what really crossed the door, as bytes that were read by the contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

from pydantic import ValidationError

from gateway.errors import GatewayError
from retrieval.contract import Answer, Ask

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]],
    Awaitable[None],
]


class RetrievalFault(GatewayError):
    """Retrieval gave no answer, or something that is not one. Nothing of it may be used."""


class RetrievalPort(Protocol):
    """Where the gateway asks."""

    async def ask(self, ask: Ask) -> Answer:
        """The answer, valid by the contract and not believed yet.

        Raises: RetrievalFault.
        """
        ...


class InProcessRetrieval:
    """Retrieval as an ASGI application in this process."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def ask(self, ask: Ask) -> Answer:
        body = ask.model_dump_json().encode()
        pieces = bytearray()
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                pieces.extend(message.get("body", b""))
                if len(pieces) > ANSWER_BYTES_MAX:
                    raise RetrievalFault("the answer is too large")

        try:
            await self._app(_scope(len(body)), receive, send)
        except RetrievalFault:
            raise
        except Exception as error:
            raise RetrievalFault(f"retrieval raised {type(error).__name__}") from error
        return _answer(bytes(pieces))


def _scope(length: int) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/ask",
        "raw_path": b"/ask",
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", b"retrieval"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % length),
        ],
        "client": None,
        "server": None,
        "state": {},
    }


def _answer(body: bytes) -> Answer:
    try:
        return Answer.model_validate_json(body)
    except ValidationError as error:
        raise RetrievalFault("the answer is not one by the contract") from error
