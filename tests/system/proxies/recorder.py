"""The upstream behind a proxy: it records what arrives, answers 200, and echoes WebSockets."""

from __future__ import annotations

import base64
import hashlib
import json
import socketserver
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass(frozen=True)
class Arrived:
    """One request as it reached the upstream, names folded to lower case."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.headers if one == name]

    def one(self, name: str) -> str:
        """The only value under a name, or nothing."""
        found = self.all(name)
        assert len(found) <= 1, (name, found)
        return found[0] if found else ""


def one_reading(got: Arrived) -> str:
    """The path of a request, which has one reading and is the one that was decided."""
    path = got.target.partition("?")[0]
    assert unquote(path) == path
    assert not {"", ".", ".."} & set(path.removesuffix("/").split("/")[1:])
    assert not [mark for mark in path if mark in ";\\#" or not 0x21 <= ord(mark) <= 0x7E]
    payload = got.one("x-gateway-assertion").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(payload + "=="))["htu"] == path
    return path


@dataclass
class Recorder:
    """A server of its own threads. ``arrived`` is what nobody may have been denied."""

    arrived: list[Arrived] = field(default_factory=list)
    echoed: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        recorder = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while recorder.serve(self.rfile, self.wfile):
                    pass

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self) -> None:
        self.arrived.clear()
        self.echoed.clear()

    def serve(self, source: Any, sink: Any) -> bool:
        """One request; whether the connection goes on."""
        try:
            line = source.readline()
            if not line:
                return False
            method, target, _ = line.decode("latin-1").split(" ", 2)
            headers: list[tuple[str, str]] = []
            while (text := source.readline().decode("latin-1").rstrip("\r\n")) != "":
                name, _, value = text.partition(":")
                headers.append((name.lower(), value.strip()))
            named = dict(headers)
            body = self._body(source, named)
            self.arrived.append(Arrived(method, target, headers, body))
            if named.get("upgrade", "").lower() == "websocket":
                self._socket(source, sink, named)
                return False
            sink.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: public\r\n\r\n")
            sink.write(b"" if method == "HEAD" else b"ok")
            sink.flush()
        except ConnectionError:
            return False
        return True

    def _body(self, source: Any, named: dict[str, str]) -> bytes:
        if "chunked" not in named.get("transfer-encoding", ""):
            return bytes(source.read(int(named.get("content-length", "0"))))
        body = b""
        while size := int(source.readline().split(b";")[0], 16):
            body += source.read(size)
            source.readline()
        source.readline()
        return body

    def _socket(self, source: Any, sink: Any, named: dict[str, str]) -> None:
        """Accept, then send one text message of up to 125 bytes back."""
        key = named["sec-websocket-key"].encode()
        proof = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324 - RFC 6455
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        sink.write(head + b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n")
        sink.flush()
        first = source.read(2)
        if len(first) < 2:
            return
        length = first[1] & 0x7F
        mask, masked = source.read(4), source.read(length)
        text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked))
        self.echoed.append(text)
        sink.write(bytes([0x81, length]) + text)
        sink.flush()
