"""The serving side of a build: a process that is kept, a job sent, a snapshot received in parts.

Laws
    * Between two parts the event loop works for others; nothing here computes longer than one
      part takes to add (0.3 ms).
    * A build that takes too long is given up, one that crashes is refused; a builder that died is
      started anew for the next job. Each is a `BuildRefused` with a code.

Cost, measured: a process of 300 MB that starts another one stands still for 5 to 20 ms, so the
builder is started before anything is served. See DECISIONS.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from gateway.reload.frames import HEAD_BYTES, Frame, framed, head_of, opened, sealed
from gateway.reload.job import BuildRefused, Built, Job
from policies.portable import Assembly
from policies.snapshot import Snapshot

BUILD_S: Final = 300.0
START_S: Final = 60.0
_FORGE: Final = (sys.executable, "-m", "gateway.reload.forge")
_PIECE_BYTES: Final = 64 * 1024


class Builder:
    """Builds one release at a time; the others wait for their turn."""

    def __init__(self, *, build_s: float = BUILD_S, command: Sequence[str] = _FORGE) -> None:
        """``command`` starts a process that answers as ``gateway.reload.forge`` does."""
        self._build_s = build_s
        self._command = tuple(command)
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.ReadTransport | None = None
        self._ready = False

    @property
    def process(self) -> int | None:
        """The id of the process, while it lives."""
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    async def start(self) -> None:
        """Start the process; it is waited for by the first build only.

        Raises BuildRefused when it cannot be started.
        """
        async with self._turn:
            await self._ensure()

    async def build(self, job: Job) -> tuple[Snapshot, Built]:
        """The proven snapshot of a release. Raises BuildRefused; whatever it is, nothing changed.

        Cancelling it gives the build up.
        """
        async with self._turn:
            reader, writer = await self._ensure()
            try:
                async with asyncio.timeout(self._build_s):
                    if not self._ready:
                        await _frame(reader)  # it says that it is there
                        self._ready = True
                    await _sent(writer, framed(Frame.JOB, sealed(job)))
                    return await self._received(reader)
            except TimeoutError:
                await (self._give_up(reader, writer) if self._ready else self._end())
                raise BuildRefused("build_timed_out", f"over {self._build_s:g} s") from None
            except asyncio.CancelledError:
                if self._ready:  # else nothing was asked, and the next build hears that it is there
                    await self._give_up(reader, writer)
                raise
            except (OSError, EOFError, ValueError) as error:
                await self._end()
                raise BuildRefused("builder_died", type(error).__name__) from error

    async def stop(self) -> None:
        """End the process; a build under way ends with it."""
        await self._end()

    async def _received(self, reader: asyncio.StreamReader) -> tuple[Snapshot, Built]:
        assembly = Assembly()
        while True:
            frame, content = await _frame(reader)
            if frame is Frame.DONE:
                await asyncio.sleep(0)
                return assembly.whole(), opened(content)
            if frame is Frame.REFUSED:
                raise BuildRefused(*opened(content))
            assembly.add(content)
            await asyncio.sleep(0)

    async def _give_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read what is left of a build that nobody waits for; a builder that hangs is ended."""
        writer.write(framed(Frame.GIVE_UP, b""))
        try:
            async with asyncio.timeout(5):
                while (await _frame(reader))[0] is Frame.PART:
                    pass
        except (TimeoutError, OSError, EOFError, ValueError):
            await self._end()
        except asyncio.CancelledError:  # what is left unread would be taken for the next answer
            await self._end()
            raise

    async def _ensure(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.process and self._reader is not None and self._writer is not None:
            return self._reader, self._writer
        await self._end()
        try:
            async with asyncio.timeout(START_S):
                self._process = await asyncio.to_thread(_started, self._command)
                reader, writer = await self._piped(self._process)
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            await self._end()
            raise BuildRefused("builder_unavailable", type(error).__name__) from error
        return reader, writer

    async def _piped(
        self, process: subprocess.Popen[bytes]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIECE_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        self._reading, _ = await loop.connect_read_pipe(lambda: protocol, process.stdout)
        transport, flow = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), process.stdin
        )
        writer = asyncio.StreamWriter(transport, flow, None, loop)
        self._reader, self._writer = reader, writer
        return reader, writer

    async def _end(self) -> None:
        self._ready = False
        process, self._process = self._process, None
        reading, self._reading = self._reading, None
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.close()
        if reading is not None:
            reading.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a build under way, too
            await asyncio.to_thread(process.wait)


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for whoever serves; this one ends with its input
    )


async def _sent(writer: asyncio.StreamWriter, content: bytes) -> None:
    """In pieces: a pipe takes 64 KiB at a time, and what it does not take would be copied."""
    for start in range(0, len(content), _PIECE_BYTES):
        writer.write(content[start : start + _PIECE_BYTES])
        await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> tuple[Frame, bytes]:
    frame, size = head_of(await reader.readexactly(HEAD_BYTES))
    return frame, await reader.readexactly(size)
