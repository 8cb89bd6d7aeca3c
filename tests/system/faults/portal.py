"""An upstream as a process of its own, to be killed in the middle of things.

Run as ``python -m tests.system.faults.portal PORT``; it tells its port on standard output. What
it does stands in the last segment of the path.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

SIZED_BYTES = 1_000_000
HALF = b"x" * 200_000
LATE_S = 4.0
EVENT = b"data: tick\n\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await answer(head.split()[1].rpartition(b"/")[2], head, reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer(
    what: bytes, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    match what:
        case b"sized":  # half of it, then nothing
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % SIZED_BYTES + HALF)
        case b"chunked":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%s\r\n" % (len(HALF), HALF))
        case b"events":
            kind = b"content-type: text/event-stream\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n" + kind + b"transfer-encoding: chunked\r\n\r\n")
            for _ in range(1_000):
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                await writer.drain()
                await asyncio.sleep(0.02)
            writer.write(b"0\r\n\r\n")
        case b"late":
            await asyncio.sleep(LATE_S)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        case b"dying":  # half of it, then the end of the process
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello")
            await writer.drain()
            os.kill(os.getpid(), signal.SIGKILL)
        case b"silent":
            print("asked", flush=True)
            await reader.read()
        case b"sink":  # reads a little of what is sent, then nothing
            await reader.readexactly(100_000)
            print("asked", flush=True)
            await asyncio.sleep(3_600)
        case _:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
    await writer.drain()


async def main(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
