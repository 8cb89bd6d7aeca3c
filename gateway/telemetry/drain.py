"""A bounded queue with a thread behind it: the event loop hands over and never waits.

Laws
    * ``put`` takes a microsecond and never blocks or raises, whatever the thread is stuck in.
    * A full queue takes no ordinary item; a weighty one still fits into as much room again,
      so that a flood of ordinary ones cannot crowd it out.
    * What did not fit and what could not be written are counted, apart.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_BATCH_MAX: Final = 512


class Drain(Generic[T]):
    """Hands batches of items to ``write`` on a thread of its own.

    ``write`` returns how many of the batch it lost; it may block. ``linger_s`` is how long a
    batch waits to grow.
    """

    def __init__(
        self,
        write: Callable[[list[T]], int],
        *,
        name: str,
        items_max: int,
        linger_s: float = 0.0,
    ) -> None:
        self.overflowed = 0
        self.failed = 0
        self._write = write
        self._items_max = items_max
        self._linger_s = linger_s
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T, *, weighty: bool = False) -> bool:
        """Whether the item was taken. For one thread only, which alone makes the queue grow."""
        if self._items.qsize() >= self._items_max * (2 if weighty else 1):
            self.overflowed += 1
            return False
        self._items.put(item)
        return True

    def close(self, *, timeout_s: float) -> None:
        """Write what is queued, for at most ``timeout_s``; the thread is a daemon."""
        self._closing.set()
        self._items.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        going = True
        while going:
            first = self._items.get()
            if first is None:
                return
            batch, going = self._grown([first])
            self.failed += self._write(batch)

    def _grown(self, batch: list[T]) -> tuple[list[T], bool]:
        """The batch with all that is queued behind it, and whether there may be more to come."""
        until = time.monotonic() + self._linger_s
        while len(batch) < _BATCH_MAX:
            left_s = 0.0 if self._closing.is_set() else until - time.monotonic()
            try:
                item = self._items.get(timeout=left_s) if left_s > 0 else self._items.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return batch, False
            batch.append(item)
        return batch, True
