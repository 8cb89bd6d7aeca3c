"""The retrieval house as an ASGI application: two routes, one caller (the gateway).

Laws
    * ``POST /ask`` takes an ``Ask`` and gives an ``Answer``, both JSON. The HTTP status is 200
      whenever an ``Answer`` could be made, refusals included: what the caller gets is the
      gateway's to decide, from ``Answer.status``.
    * When retrieval is a process of its own, each request must carry the shared key; without
      it the answer is an empty 401, whatever was asked.
    * ``GET /health`` tells operators which store answers. It never holds content.

``open_retrieval`` is the life of the house: stores opened, outbox worker running, model warm.

Raw ASGI on purpose: in-process the gateway calls it directly, once per request.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from pydantic import ValidationError

from policies.snapshot import Snapshot
from retrieval.contract import Answer, Ask
from retrieval.embed.ports import Embedder
from retrieval.errors import IndexUnavailable, MalformedAsk
from retrieval.service import Retrieval
from retrieval.settings import ServiceSettings, StoreSettings
from retrieval.signals.ledger import Ledger
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.postgres import PostgresTruth
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.roles import INDEX, dsn_for
from retrieval.vectors import VectorSide

log = logging.getLogger(__name__)

ASGIScope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KEY_HEADER: Final = b"x-retrieval-key"


@asynccontextmanager
async def open_retrieval(
    stores: StoreSettings,
    snapshot: Callable[[], Snapshot],
    embedder: Embedder,
    *,
    settings: ServiceSettings | None = None,
) -> AsyncIterator[Retrieval]:
    """A running retrieval service; everything is stopped when the block is left.

    ``snapshot`` gives the revision in force in this process; it is asked once per request.
    Raises StoreUnavailable when the record of truth does not answer. A vector index that does
    not answer yet is no reason not to start: what needs it is refused until it does.
    Cost: up to a second, nearly all of it the model.
    """
    secret = stores.database_secret.get_secret_value()
    truth = PostgresTruth(
        stores.database_url,
        secret,
        snapshot().vocabulary.audiences,
        connections_max=stores.connections_max,
        wait_s=stores.connection_wait_s,
        lag_objective_s=stores.lag_objective_s,
    )
    ledger = Ledger(
        stores.database_url,
        secret,
        connections_max=stores.connections_max,
        wait_s=stores.connection_wait_s,
    )
    index = QdrantIndex(
        stores.qdrant_url,
        stores.qdrant_api_key.get_secret_value(),
        stores.collection,
        embedder.dims,
    )
    worker = OutboxWorker(dsn_for(INDEX, stores.database_url, secret), index, embedder)
    vectors = VectorSide(index, embedder, worker)
    try:
        await truth.open()
        await ledger.open()
        try:
            await asyncio.to_thread(_warm, embedder)
            await index.ensure()
        except IndexUnavailable as fault:
            log.warning("starting without the vector index, will retry: %s", fault)
        carrying = asyncio.create_task(worker.run(), name="outbox")
        carrying.add_done_callback(_note_end)
        try:
            yield Retrieval(
                settings=settings or ServiceSettings(),
                snapshot=snapshot,
                truth=truth,
                vectors=vectors,
                ledger=ledger,
            )
        finally:
            carrying.cancel()
            with suppress(asyncio.CancelledError):
                await carrying
    finally:
        await vectors.close()
        await ledger.close()
        await truth.close()


def _warm(embedder: Embedder) -> None:
    """Loads what the first question would else wait for."""
    embedder.embed(["warm"])
    embedder.reads("warm")


def _note_end(worker: asyncio.Task[None]) -> None:
    """The worker ends by cancellation only; anything else leaves an index that falls behind."""
    if not worker.cancelled() and worker.exception() is not None:
        log.critical("the outbox worker died: %s", type(worker.exception()).__name__)


class RetrievalApp:
    """``Retrieval`` behind ASGI. Cost over a direct call: one JSON round trip, well below 1 ms."""

    def __init__(self, retrieval: Retrieval) -> None:
        self._retrieval: Final = retrieval
        key = retrieval.settings.shared_key
        self._key: Final = key.get_secret_value().encode() if key is not None else None
        self._bytes_max: Final = retrieval.settings.ask_bytes_max

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"retrieval serves http only, not `{scope['type']}`")
        if not self._admitted(scope["headers"]):
            await _reply(send, 401, b"")
            return
        match scope["method"], scope["path"]:
            case "POST", "/ask":
                await self._ask(receive, send)
            case "GET", "/health":
                report = await self._retrieval.health()
                await _reply(send, 200 if report["ready"] else 503, json.dumps(report).encode())
            case _:
                await _reply(send, 404, b"")

    async def _ask(self, receive: Receive, send: Send) -> None:
        body = await self._body(receive)
        if body is None:
            await _reply(send, 413, b"")
            return
        try:
            ask = Ask.model_validate_json(body)
        except ValidationError:  # the text of it would repeat the query
            answer = Answer(status=MalformedAsk.status, code=MalformedAsk.code)
        else:
            answer = await self._retrieval.ask(ask)
        await _reply(send, 200, answer.model_dump_json().encode())

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or None when it is larger than allowed or its sender went away."""
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > self._bytes_max:
                return None
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    def _admitted(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """In-process there is no key. Otherwise exactly one key header must hold it."""
        if self._key is None:
            return True
        sent = [value for name, value in headers if name.lower() == KEY_HEADER]
        return len(sent) == 1 and hmac.compare_digest(sent[0], self._key)


async def _reply(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
