"""How near a question is to what a thread holds, in this caller's eyes.

Laws
    * A thread's centroid is the sum of the vectors of its units that this caller may read, and of
      no other: partial sums of permitted keys, plus units that a consent alone opens, less units
      that the guard refused. Sums of integers, so their order cannot matter.
    * A thread of which a sum is being made anew has no centroid for the moment: it is found by its
      words, labels and anchors meanwhile.
    * What is kept from one request to the next is kept by content: a sum under the hash of its
      bytes, a matrix under a hash of the threads and sums that it was made of. Which those are is
      asked every time, of what this caller may see.

Source: seed section 4.2, gap 6.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval.embed.quantise import integers
from retrieval.stores.ports import TruthReader
from retrieval.stores.rows import CentroidPart, MemberVector
from retrieval.threads.keyword import DIGITS

_SUMS_MAX: Final = 8_192
_MATRICES_MAX: Final = 8

Rows = NDArray[np.float32]
Sum = NDArray[np.int64]
Matrix = tuple[tuple[UUID, ...], Rows]


@dataclass(frozen=True, slots=True)
class Near:
    """Threads by id, and the cosine of each with the question, in [-1, 1], rounded."""

    thread_ids: tuple[UUID, ...]
    cosines: NDArray[np.float64]


class Centroids:
    """Centroids as requests ask for them; one per process and event loop.

    Keeps at most 8,192 sums (4 KB each at 512 dimensions) and the matrices of eight audiences.
    """

    def __init__(self) -> None:
        self._sums: OrderedDict[UUID, Sum] = OrderedDict()
        self._matrices: OrderedDict[bytes, Matrix] = OrderedDict()

    async def near(
        self,
        reader: TruthReader,
        vector: bytes,
        *,
        model: str,
        thread_ids: Collection[UUID] | None,
        exclude: frozenset[UUID],
    ) -> Near:
        """The cosines of a question's stored vector with the centroids of these threads (``None``:
        of all that the caller may see).

        Cost: one query; 0.2 ms of arithmetic for 700 threads. Sums that are new here, consented
        and excluded units take another query.
        """
        single = {*reader.scope.consented_units, *exclude}
        units = [
            one
            for one in await reader.member_vectors(single, model)
            if one.counted == (one.unit_id in exclude)
        ]
        if units or thread_ids is not None:  # somebody's own: not kept
            parts = await reader.centroid_parts(model, thread_ids)
            found, rows = _matrix(await self._known(reader, parts), units, exclude)
        else:
            found, rows = await self._of_all(reader, model)
        asked = integers(vector).astype(np.float32)
        length = float(np.linalg.norm(asked))
        if not found or length == 0:
            return Near(found, np.zeros(len(found)))
        cosines: NDArray[np.float64] = (rows @ (asked / length)).astype(np.float64)
        return Near(found, cosines.round(DIGITS))

    async def _of_all(self, reader: TruthReader, model: str) -> Matrix:
        """The centroids of all threads that the caller may see, kept by what they are made of."""
        state = await reader.centroid_state(model)
        kept = self._matrices.get(state)
        if kept is None:
            parts = await reader.centroid_parts(model, None)
            kept = _matrix(await self._known(reader, parts), (), frozenset())
            self._matrices[state] = kept
            if len(self._matrices) > _MATRICES_MAX:
                self._matrices.popitem(last=False)
        self._matrices.move_to_end(state)
        return kept

    async def _known(
        self, reader: TruthReader, parts: Sequence[CentroidPart]
    ) -> dict[UUID, list[Sum] | None]:
        """The sums of each thread; ``None`` for one of which a part is being made anew."""
        missing = [part for part in parts if part.key is not None and part.key not in self._sums]
        fresh = {
            key: np.frombuffer(packed, dtype="<i8")
            for key, packed in (await reader.vector_sums(missing) if missing else {}).items()
        }
        by_thread: dict[UUID, list[Sum] | None] = {}
        for part in parts:
            known = by_thread.setdefault(part.thread_id, [])
            total = None if part.key is None else fresh.get(part.key, self._sums.get(part.key))
            if total is None:
                by_thread[part.thread_id] = None
            elif known is not None:
                known.append(total)
        self._keep(fresh)
        return by_thread

    def _keep(self, fresh: Mapping[UUID, Sum]) -> None:
        self._sums.update(fresh)
        while len(self._sums) > _SUMS_MAX:
            self._sums.popitem(last=False)


def _matrix(
    sums: Mapping[UUID, list[Sum] | None],
    units: Sequence[MemberVector],
    exclude: frozenset[UUID],
) -> Matrix:
    """Centroids at unit length, one row a thread, by thread id. A zero sum is no centroid."""
    totals = {thread: sum(known) for thread, known in sums.items() if known}
    for one in units:
        if sums.get(one.thread_id, []) is None:
            continue
        sign = -1 if one.unit_id in exclude else 1
        totals[one.thread_id] = totals.get(one.thread_id, 0) + sign * integers(one.vector)
    found = sorted((thread for thread, total in totals.items() if np.any(total)), key=_by_number)
    if not found:
        return (), np.zeros((0, 0), dtype=np.float32)
    rows = np.stack([totals[thread] for thread in found]).astype(np.float64)
    return tuple(found), (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def _by_number(thread: UUID) -> int:
    return thread.int
