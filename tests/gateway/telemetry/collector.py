"""A collector of the tests: a real HTTP server that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def collector(port: int = 0) -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """An OTLP/HTTP receiver that keeps the bodies by path; port 0: a free one."""
    bodies: dict[str, list[bytes]] = {}

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            bodies.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", port), Receive) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", bodies
        finally:
            server.shutdown()
            thread.join()
