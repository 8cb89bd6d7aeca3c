"""What threads are found by beside their own words: sums of vectors, and postings of labels.

Kept by the index worker, in its transactions, because SQL adds vectors slowly and cannot stem.

Laws
    * A sum is over all units that its partial counts, at their current revisions, or it is not
      there: a partial waits until the last of its units has a vector of the model in force.
    * Whoever changes what a partial counts takes its sum away first (0120), and waits for a
      worker that is just writing one; so no sum outlives what it was made of.
    * A sum's key is a hash of its bytes: whoever keeps sums by key never has a wrong one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import AsyncConnection

from retrieval.embed.quantise import integers
from retrieval.threads.keyword import question_words

_BATCH: Final = 64
_WORDS_MAX: Final = 16
_OF_PARTIAL: Final = """
    from brain.thread_membership m
    join brain.unit u on u.id = m.unit_id
    left join brain.embedding e
      on e.unit_id = u.id and e.revision = u.current_revision and e.model = %(model)s
    where m.thread_id = p.thread_id and m.status <> 'wrong_link' and u.deleted_at is null
      and u.class_id = p.class_id and u.tenant = p.tenant and u.jurisdiction = p.jurisdiction"""
# `offset 0`: looked at partial by partial, and not joined with every link there is
_READY: Final = f"""
    from brain.thread_partial p
    where p.vector_sum is null
      and not exists (select {_OF_PARTIAL} and e.vector is null offset 0)"""
_BARE: Final = f"""
    select p.thread_id, p.class_id, p.tenant, p.jurisdiction {_READY}
    order by p.thread_id limit %(limit)s
    for update of p skip locked"""
_KEYS: Final = """
    unnest(%(threads)s::uuid[], %(classes)s::smallint[], %(tenants)s::text[],
           %(jurisdictions)s::text[]"""
# the rows are ours by now, so what they count cannot change before we are done
_VECTORS: Final = f"""
    select p.place, e.vector
    from {_KEYS}) with ordinality p (thread_id, class_id, tenant, jurisdiction, place)
    cross join lateral (select e.vector {_OF_PARTIAL}) e"""
_SUMMED: Final = f"""
    update brain.thread_partial p
    set vector_model = %(model)s, vector_sum = s.sum, vector_key = s.key
    from {_KEYS}, %(sums)s::bytea[], %(keys)s::uuid[])
        s (thread_id, class_id, tenant, jurisdiction, sum, key)
    where (p.thread_id, p.class_id, p.tenant, p.jurisdiction)
        = (s.thread_id, s.class_id, s.tenant, s.jurisdiction)"""
_DISTRUST: Final = """
    update brain.thread_partial set vector_sum = null, vector_key = null
    where vector_sum is not null and vector_model <> %(model)s"""
_UNPOSTED: Final = """
    select l.id, l.term, l.aliases from brain.label_term w join brain.label l on l.id = w.label_id
    where w.term = -1 order by l.id limit %(limit)s for update of w skip locked"""
_POST: Final = """
    insert into brain.label_term (term, label_id, phrase, position, words)
    select * from unnest(%(terms)s::integer[], %(labels)s::uuid[], %(phrases)s::smallint[],
                         %(positions)s::smallint[], %(words)s::smallint[])"""
_WAITING: Final = f"""
    select exists (select {_READY}) or exists (select from brain.label_term where term = -1)"""
_POSTED: Final = "delete from brain.label_term where term = -1 and label_id = any (%(labels)s)"


def sum_key(packed: bytes) -> UUID:
    """The name of a sum's bytes."""
    return UUID(bytes=sha256(packed).digest()[:16])


def phrase_words(phrase: str) -> list[list[int]]:
    """The words that a question must have to name this phrase, each as the terms that it may
    stand under. Empty when no word of it can be evidence: then nothing names it."""
    return [sorted(set(word)) for word in question_words(phrase, words_max=_WORDS_MAX)]


async def refresh(connection: AsyncConnection[Any], model: str) -> int:
    """Makes a batch of missing sums and postings; returns how many, 0 when none is left.

    ``connection`` logs in as gw_index and is not in autocommit; the caller commits.
    Cost: under 1 ms a partial, however many others there are.
    """
    cursor = await connection.execute(_BARE, {"model": model, "limit": _BATCH})
    bare = await cursor.fetchall()
    if bare:
        columns = (list(column) for column in zip(*bare, strict=True))
        names = ("threads", "classes", "tenants", "jurisdictions")
        keys = {"model": model, **dict(zip(names, columns, strict=True))}
        cursor = await connection.execute(_VECTORS, keys, binary=True)
        totals: dict[int, NDArray[np.int64]] = {}
        for place, vector in await cursor.fetchall():
            totals[place] = totals.get(place, 0) + integers(vector)
        sums = [totals[place].astype("<i8").tobytes() for place in range(1, len(bare) + 1)]
        values = {**keys, "sums": sums, "keys": [sum_key(one) for one in sums]}
        await connection.execute(_SUMMED, values)
    return len(bare) + await _post(connection)


async def waiting(connection: AsyncConnection[Any], model: str) -> bool:
    """Whether a sum or posting is still to be made, or is being made by another worker."""
    cursor = await connection.execute(_WAITING, {"model": model})
    row = await cursor.fetchone()
    return row is not None and row[0] is True


async def distrust(connection: AsyncConnection[Any], model: str) -> None:
    """Takes the sums of another embedder away; ``refresh`` makes them anew."""
    await connection.execute(_DISTRUST, {"model": model})


async def _post(connection: AsyncConnection[Any]) -> int:
    cursor = await connection.execute(_UNPOSTED, {"limit": _BATCH})
    labels = await cursor.fetchall()
    if not labels:
        return 0
    rows = [
        (term, label_id, phrase, position, len(found))
        for label_id, word, aliases in labels
        for phrase, text in enumerate((word, *aliases))
        for found in [phrase_words(text)]
        for position, terms in enumerate(found)
        for term in terms
    ]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
    names = ("terms", "labels", "phrases", "positions", "words")
    await connection.execute(_POST, dict(zip(names, columns, strict=True)))
    await connection.execute(_POSTED, {"labels": [row[0] for row in labels]})
    return len(labels)
