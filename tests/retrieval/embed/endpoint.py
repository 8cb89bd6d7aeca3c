"""An embeddings endpoint on loopback: what OpenAI's API answers, from a model without weights,
and every way in which such an endpoint can go wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from retrieval.embed.hashing import HashingEmbedder

DIMS = 32
MODEL = "acme/embed-1"
KEY = "sk-embedder-secret"


@dataclass
class Asked:
    """What reached the endpoint."""

    bodies: list[Any] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


Reply = tuple[int, bytes]
Answer = Callable[[Sequence[str]], Reply]


def well(texts: Sequence[str]) -> Reply:
    """As the API does; in another order than asked, which it may."""
    rows = HashingEmbedder(DIMS).embed([text or "empty" for text in texts])
    data = [
        {"object": "embedding", "index": n, "embedding": [float(x) for x in row]}
        for n, row in enumerate(rows)
    ]
    return 200, json.dumps({"object": "list", "model": MODEL, "data": data[::-1]}).encode()


@contextmanager
def endpoint(answer: Answer = well, *, close: bool = False) -> Iterator[tuple[str, Asked]]:
    """Its address, and what it was asked. ``close``: it ends every connection after one answer,
    without having said so."""
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.bodies.append({"path": self.path, **body})
            asked.keys.append(self.headers["authorization"])
            status, told = answer(body["input"])
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            if 300 <= status < 400:
                self.send_header("location", "/v1/elsewhere")
            self.end_headers()
            self.wfile.write(told)
            self.close_connection = close

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
            """Say nothing: standard error belongs to the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
