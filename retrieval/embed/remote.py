"""An embedder behind an endpoint that speaks OpenAI's embeddings API, wherever that runs.

``POST {url}/embeddings`` with ``{"model", "input": [texts], "encoding_format": "float"}``; the
answer's ``data`` holds ``{"index", "embedding"}`` in any order. Source: OpenAI API reference,
Embeddings; vLLM, Ollama, llama.cpp, TEI and LiteLLM answer the same.

Laws
    * What it is sent is the text of every unit and every question: the operator names it.
    * Anything but a whole and well-formed answer in time is ``IndexUnavailable``. No vector is
      ever guessed, and no shorter list returned.
    * The key is in one header, in no message and no log. No redirect is followed: it would
      carry texts and key to an address that nobody named.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import numpy as np

from retrieval.embed.language import UNKNOWN, language
from retrieval.embed.ports import Vector, unit_length
from retrieval.errors import IndexUnavailable, Store

_BATCH: Final = 64
_CHARACTERS_MAX: Final = 8_000
"""Of one text. A longer one would be refused by most models, whose window is 8,192 tokens."""
_CONNECT_S: Final = 5.0
_BYTES_PER_NUMBER: Final = 32
_BYTES_SPARE: Final = 65_536


class RemoteEmbedder:
    """Made once per process; connections are kept, and it may be used from several threads.

    ``name`` is stored beside the vectors, ``model`` is what the endpoint knows. ``languages``
    are what the model reads (ISO 639-1); empty means all. Cost: one round trip for 64 texts.
    """

    def __init__(
        self,
        *,
        name: str,
        url: str,
        model: str,
        dims: int,
        key: str = "",
        timeout_s: float = 10.0,
        languages: Collection[str] = (),
    ) -> None:
        self.name: Final = name
        self.dims: Final = dims
        self._model: Final = model
        self._languages: Final = frozenset(languages)
        self._url: Final = f"{url.rstrip('/')}/embeddings"
        loopback = urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
        self._client: Final = httpx.Client(
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
            follow_redirects=False,
            trust_env=not loopback,
        )

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [
            row
            for start in range(0, len(texts), _BATCH)
            for row in self._rows(texts[start : start + _BATCH])
        ]

    def reads(self, text: str) -> bool:
        return not self._languages or language(text) in (UNKNOWN, *self._languages)

    def close(self) -> None:
        """Lets go of the connections, which are else kept for the life of the process."""
        self._client.close()

    def _rows(self, texts: Sequence[str]) -> list[Vector]:
        # an endpoint refuses an empty text; it has no direction anyway
        told = [text[:_CHARACTERS_MAX] for text in texts]
        asked = [number for number, text in enumerate(told) if text.strip()]
        rows = [np.zeros(self.dims, dtype=np.float32) for _ in told]
        if asked:
            answer = self._post([told[number] for number in asked])
            for number, row in zip(asked, self._read(answer, len(asked)), strict=True):
                rows[number] = row
        return rows

    def _post(self, texts: Sequence[str]) -> bytes:
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        try:
            try:
                return self._send(body, len(texts))
            except (httpx.RemoteProtocolError, httpx.ReadError):
                # the other side closed a connection that had been idle; asking is idempotent
                return self._send(body, len(texts))
        except httpx.HTTPError as fault:
            raise _unavailable(type(fault).__name__) from fault

    def _send(self, body: dict[str, Any], rows: int) -> bytes:
        most = rows * self.dims * _BYTES_PER_NUMBER + _BYTES_SPARE
        with self._client.stream("POST", self._url, json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                raise _unavailable(f"the endpoint answered {answer.status_code}")
            read = bytearray()
            for part in answer.iter_bytes():
                read += part
                if len(read) > most:
                    raise _unavailable("the endpoint's answer is longer than any vectors are")
            return bytes(read)

    def _read(self, answer: bytes, wanted: int) -> list[Vector]:
        try:
            data = json.loads(answer)["data"]
            rows = {item["index"]: item["embedding"] for item in data}
            if len(data) != wanted or rows.keys() != set(range(wanted)):
                raise ValueError(f"{len(data)} vectors for {wanted} texts")
            return [self._row(rows[number]) for number in range(wanted)]
        except (ValueError, KeyError, TypeError, RecursionError) as fault:
            reason = str(fault) if type(fault) is ValueError else type(fault).__name__
            raise _unavailable(f"the endpoint's answer cannot be read ({reason})") from fault

    def _row(self, numbers: Any) -> Vector:
        row = np.asarray(numbers, dtype=np.float32)
        if row.shape != (self.dims,):
            raise ValueError(f"a vector of shape {row.shape}, expected {self.dims}")
        if not row.any():
            raise ValueError("a vector of zeros")
        return unit_length(row)


def _unavailable(reason: str) -> IndexUnavailable:
    return IndexUnavailable(Store.EMBEDDER, reason)
