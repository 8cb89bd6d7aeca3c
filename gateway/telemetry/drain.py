"""A bounded queue with a thread behind it: the event loop hands over and never waits.

Laws
    * ``put`` takes a microsecond and never blocks or raises, whatever the thread is stuck in.
    * A full queue takes no ordinary item; a weighty one still fits into as much room again,
      so that a flood of ordinary ones cannot crowd it out.
    * What did not fit and what could not be written are counted, apart.
"""

from __future__ import annotations

import collections
import logging
import threading
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

    ``write`` returns how many of the batch it lost; it may block. ``linger_s`` is how long the
    thread lets items gather once it was woken: a wake costs the event loop 10 to 20 us, so none
    should be for a single item. A queue that is half full waits no longer.
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
        self._items: collections.deque[T | _Mark] = collections.deque()
        self._some, self._hurry = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T, *, weighty: bool = False) -> bool:
        """Whether the item was taken. For one thread only, which alone makes the queue grow."""
        queued = len(self._items)
        if queued >= self._items_max * (2 if weighty else 1):
            self.overflowed += 1
            return False
        self._items.append(item)
        if not self._some.is_set():
            self._some.set()
        if queued * 2 >= self._items_max and not self._hurry.is_set():
            self._hurry.set()
        return True

    def flush(self, *, timeout_s: float) -> bool:
        """Whether all that was queued has been written, or lost, within ``timeout_s``."""
        return self._mark(last=False).reached.wait(timeout_s)

    @property
    def ended(self) -> bool:
        """Whether the thread has written its last."""
        return not self._thread.is_alive()

    def close(self, *, timeout_s: float) -> None:
        """Write what is queued, for at most ``timeout_s``; the thread is a daemon."""
        self._mark(last=True)
        self._thread.join(timeout_s)

    def _mark(self, *, last: bool) -> _Mark:
        mark = _Mark(last=last)
        self._items.append(mark)
        self._some.set()
        self._hurry.set()
        return mark

    def _run(self) -> None:
        while True:
            self._some.wait()
            if self._linger_s:
                self._hurry.wait(self._linger_s)
            # both are lowered before the look: what comes later raises them again
            self._some.clear()
            self._hurry.clear()
            while self._items:
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
        """The next items, or those before a mark and the mark."""
        batch: list[T] = []
        while self._items and len(batch) < _BATCH_MAX:
            item = self._items.popleft()
            if isinstance(item, _Mark):
                return batch, item
            batch.append(item)
        return batch, None
