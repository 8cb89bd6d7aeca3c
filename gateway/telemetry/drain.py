"""A bounded queue with a thread behind it: the event loop hands over and never waits.

Laws
    * ``put`` takes a microsecond and never blocks or raises, whatever the thread is stuck in.
    * A full queue takes no ordinary item; a weighty one still fits into as much room again,
      so that a flood of ordinary ones cannot crowd it out.
    * What did not fit and what could not be written are counted, apart.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_BATCH_MAX: Final = 128
"""A thread that writes more at once keeps the interpreter from the event loop for milliseconds."""
_LOG: Final = logging.getLogger("gateway.telemetry")


class _Mark:
    """A place in the queue that somebody waits for; after the ``last`` one the thread ends."""

    def __init__(self, *, last: bool) -> None:
        self.last = last
        self.reached = threading.Event()


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
        self._items: queue.SimpleQueue[T | _Mark] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T, *, weighty: bool = False) -> bool:
        """Whether the item was taken. For one thread only, which alone makes the queue grow."""
        if self._items.qsize() >= self._items_max * (2 if weighty else 1):
            self.overflowed += 1
            return False
        self._items.put(item)
        return True

    def flush(self, *, timeout_s: float) -> bool:
        """Whether all that was queued has been written, or lost, within ``timeout_s``."""
        mark = _Mark(last=False)
        self._items.put(mark)
        return mark.reached.wait(timeout_s)

    @property
    def ended(self) -> bool:
        """Whether the thread has written its last."""
        return not self._thread.is_alive()

    def close(self, *, timeout_s: float) -> None:
        """Write what is queued, for at most ``timeout_s``; the thread is a daemon."""
        self._items.put(_Mark(last=True))
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            batch, mark = self._batch()
            if batch:
                self.failed += self._written(batch)
            if mark is not None:
                mark.reached.set()
                if mark.last:
                    return

    def _written(self, batch: list[T]) -> int:
        try:
            return self._write(batch)
        except Exception as error:  # noqa: BLE001 - counted as lost; the thread must go on
            _LOG.error("%s lost a batch: %s", self._thread.name, type(error).__name__)
            return len(batch)

    def _batch(self) -> tuple[list[T], _Mark | None]:
        """Some items, as they come within the linger, or those before a mark and the mark."""
        batch: list[T] = []
        until = math.inf
        while len(batch) < _BATCH_MAX:
            try:
                left_s = until - time.monotonic()
                item = self._items.get(left_s > 0, min(left_s, threading.TIMEOUT_MAX))
            except queue.Empty:
                break
            if isinstance(item, _Mark):
                return batch, item
            if not batch:
                until = time.monotonic() + self._linger_s
            batch.append(item)
        return batch, None
