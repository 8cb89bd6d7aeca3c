"""The memory of a process that relays: bodies of any size, readers of any speed.

Provenance: issue 4 ("a 10 GB upload and download stay below 100 MB of added memory", "a slow
reader adds at most 16 MB"). Sizes here are hundreds of megabytes: what is not held does not
depend on how much follows.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]

MIB = 1024 * 1024
BODY_BYTES = 400 * MIB
ADDED_MAX = 100 * MIB
READERS = 8
READER_MAX = 16 * MIB
PIECE = b"x" * MIB
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


class Source:
    """An upstream in threads: answers GET with ``BODY_BYTES``, counts the body of a PUT."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.read_bytes = 0
        self.stuck = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(65536)
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if length is not None:
                self._swallow(sock, int(length[1]) - len(head.partition(b"\r\n\r\n")[2]))
                sock.sendall(HEAD % 2 + b"ok")
                return
            sock.sendall(HEAD % BODY_BYTES)
            left = BODY_BYTES
            sock.settimeout(2)
            while left:
                try:
                    left -= sock.send(PIECE[:left])
                except TimeoutError:
                    self.stuck.release()
                    sock.settimeout(None)

    def _swallow(self, sock: socket.socket, left: int) -> None:
        self.read_bytes = 0
        while left:
            piece = sock.recv(MIB)
            left -= len(piece)
            self.read_bytes += len(piece)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def source() -> Iterator[Source]:
    upstream = Source()
    yield upstream
    upstream.close()


@contextlib.contextmanager
def process(source: Source) -> Iterator[tuple[int, Callable[[str], int]]]:
    """The port of a relaying process, and a reading of its memory by the kernel's name."""
    command = [sys.executable, "-m", "tests.gateway.relay.relaying", str(source.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as relaying:
        assert relaying.stdout is not None
        port = int(relaying.stdout.readline())

        def memory(name: str) -> int:
            status = Path(f"/proc/{relaying.pid}/status").read_text()
            found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
            assert found is not None
            return int(found[1]) * 1024

        yield port, memory


def download(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        size = 0
        while piece := sock.recv(MIB):
            size += len(piece)
    return size


def upload(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        head = b"PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        sock.sendall(head % BODY_BYTES)
        for _ in range(BODY_BYTES // MIB):
            sock.sendall(PIECE)
        answer = b""
        while piece := sock.recv(MIB):
            answer += piece
    return answer


def test_bodies_of_any_size_add_little_memory(source: Source) -> None:
    """Peak resident memory before and after: down, and up, and all of it arrived."""
    with process(source) as (port, memory):
        before = memory("VmHWM")
        assert download(port) > BODY_BYTES
        down = memory("VmHWM") - before
        assert upload(port).endswith(b"ok")
        both = memory("VmHWM") - before
    assert source.read_bytes >= BODY_BYTES - 65536
    print(f"added: {down / MIB:.1f} MiB down, {both / MIB:.1f} MiB with up")
    assert both < ADDED_MAX


def test_readers_that_do_not_read_add_little_memory_each(source: Source) -> None:
    """Each is offered hundreds of megabytes and takes none; the upstream waits for all."""
    with process(source) as (port, memory), contextlib.ExitStack() as readers:
        before = memory("VmRSS")
        for _ in range(READERS):
            sock = readers.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        for _ in range(READERS):
            assert source.stuck.acquire(timeout=60)
        added = (memory("VmRSS") - before) / READERS
    print(f"added: {added / MIB:.2f} MiB a reader")
    assert added < READER_MAX
