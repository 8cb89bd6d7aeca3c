"""The process that builds policies: ``python -m gateway.reload.forge``, jobs in, frames out.

It is started once, before anything is served, because starting a process from a large one holds
everybody up. It forks one child per job (it has one thread and nothing open but its pipes), so
that a build that crashes or eats all memory takes nothing with it, and memory is given back.
What a build needs is imported with the first job.

Laws
    * One job at a time. Its frames end with DONE or REFUSED, whatever becomes of the child.
    * Any frame that comes while a job is under way gives that job up.
    * It ends when its input ends: with whoever started it, the child too.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Final, NoReturn

from gateway.reload.frames import Frame, framed, read_frame, sealed

NICENESS: Final = 10
"""Whoever serves goes first."""


def _in_child(answer: Callable[[bytes, BinaryIO], None], content: bytes, writing: int) -> NoReturn:
    """Answer the job and end here: nothing of the parent goes on in this process."""
    status = 1
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as first:
        first.write("1000")  # where memory ends, this ends, and nobody who serves
    try:
        with open(writing, "wb") as out:
            answer(content, out)
        status = 0
    finally:
        os._exit(status)


class Forge:
    """Answers jobs from one pipe on another, one after the other."""

    def __init__(self, source: int, out: int) -> None:
        self._source = source
        self._out = open(out, "wb", closefd=False)  # noqa: SIM115 - for the life of the process

    def run(self) -> None:
        """Answer until the input ends."""
        self._send(Frame.DONE, sealed(None))  # ready
        while (found := read_frame(self._source)) is not None:
            if found[0] is Frame.JOB and not self._one(found[1]):
                return

    def _one(self, content: bytes) -> bool:
        """One job in a child of its own; False when the input ended meanwhile."""
        from gateway.reload.making import answer  # late: half a second of imports

        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            # Held open here, the pipes would hide from whoever serves that the parent died.
            for inherited in (reading, self._source, self._out.fileno()):
                os.close(inherited)
            _in_child(answer, content, writing)
        os.close(writing)
        try:
            return self._forwarded(reading)
        finally:
            os.close(reading)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _forwarded(self, reading: int) -> bool:
        """Whole frames only: what a dying child left half-written is not passed on."""
        while True:
            ready, _, _ = select.select([reading, self._source], [], [])
            if self._source in ready:
                if read_frame(self._source) is None:
                    return False
                self._refuse("build_cancelled", "nobody wants it any more")
                return True
            found = read_frame(reading)
            if found is None:
                self._refuse("build_crashed", "the process that built it ended")
                return True
            self._send(*found)
            if found[0] is not Frame.PART:
                return True

    def _refuse(self, code: str, reason: str) -> None:
        self._send(Frame.REFUSED, sealed((code, reason)))

    def _send(self, frame: Frame, content: bytes) -> None:
        self._out.write(framed(frame, content))
        self._out.flush()


def main() -> None:
    """Answer jobs on standard input and output until the input ends."""
    with suppress(OSError):
        os.nice(NICENESS)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not print into frames
    Forge(0, out).run()


if __name__ == "__main__":
    main()
