"""What was handed out, written down before it leaves: who may cite what, and the metric events.

Laws
    * One statement per answer, under a login that can insert and nothing else. If it fails,
      nothing is handed out: what nobody wrote down, nobody could check a citation against.
    * What is written changes no answer: not this one's bytes, and no later one's.
    * A question is never stored. Its keyed hash tells repetition; its text goes, sealed, to the
      worker that classifies gaps (see ``inquiry``), which forgets it.
    * What the gateway kept back was not handed out: one more row says so, and from then on nobody
      can cite it or speak about it.
    * A row waits for no disk: a crash may lose the deliveries of the last half second, and what
      is lost is answered with ``not_delivered``.

Source: seed sections 4.8 and 4.13.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from retrieval.context_pack import Pack, UnitRef
from retrieval.contract import Ask, FeedbackKind, Response
from retrieval.lexical import words
from retrieval.signals.inquiry import CHANNEL, Inquiry, InquirySeal, wanted
from retrieval.stores.postgres.failures import mapped
from retrieval.stores.roles import LEDGER, derived_key, dsn_for
from retrieval.threads.function_words import FUNCTION_WORDS

ANONYMOUS: Final = "anonymous"
"""The subject of callers without a name; they are many and count as nobody."""
_NOBODY: Final = "0" * 64
_NAMESPACE: Final = UUID("7d0c7a4e-52f0-4b0e-9a4b-3f5b8b0f6a11")

_COMMON: Final = (
    "%(query_id)s, %(request_id)s, %(consumer)s, %(audience)s, %(profile)s, %(policy_digest)s"
)

_DELIVERED: Final = f"""
with delivered as (
    insert into brain.pack_delivery (query_id, request_id, consumer, audience, profile,
        policy_digest, subject_id, mode, fallback_reason, query_hmac, pack_id, thread_id,
        unit_ids, addresses, revisions, suspect_ids, gap_ids)
    select {_COMMON}, %(subject_id)s, %(mode)s, p.fallback_reason, %(query_hmac)s, p.pack_id,
           p.thread_id, p.unit_ids, p.addresses, p.revisions, p.suspect_ids, p.gap_ids
    from jsonb_to_recordset(%(packs)s) as p (pack_id uuid, thread_id uuid, fallback_reason text,
        unit_ids uuid[], addresses text[], revisions integer[], suspect_ids uuid[], gap_ids uuid[])
), counted as (
    insert into brain.retrieval_metric_event (query_id, request_id, consumer, audience, profile,
        policy_digest, at, asked, mode, again, query_hmac, id, kind, pack_id, thread_id, weak_ids)
    select {_COMMON}, now(), %(asked)s, %(mode)s, %(again)s, %(query_hmac)s, e.id, e.kind,
           e.pack_id, e.thread_id, %(weak_ids)s::uuid[]
    from jsonb_to_recordset(%(events)s) as e (id uuid, kind text, pack_id uuid, thread_id uuid)
)
select pg_notify(%(channel)s, %(inquiry)s) where %(inquiry)s::text is not null
"""

_WITHHELD: Final = """
insert into brain.answer_withheld (query_id, subject_id) values (%(query_id)s, %(subject_id)s)
on conflict do nothing
"""

_SAID: Final = """
insert into brain.retrieval_metric_event (id, at, kind, query_id, request_id, consumer, audience,
    profile, policy_digest, asked, mode, query_hmac, pack_id, thread_id, unit_id)
select s.id, %(at)s, %(kind)s, %(query_id)s, %(request_id)s, %(consumer)s, %(audience)s,
       %(profile)s, %(policy_digest)s, %(asked)s, %(mode)s, %(query_hmac)s, %(pack_id)s,
       %(thread_id)s, s.unit_id
from jsonb_to_recordset(%(said)s) as s (id uuid, unit_id uuid)
on conflict do nothing
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of ``brain.pack_delivery`` as far as feedback needs it; the caller's own."""

    pack_id: UUID
    query_id: UUID
    audience: str
    profile: str
    mode: str
    query_hmac: str | None
    thread_id: UUID | None
    delivered_at: datetime


class Ledger:
    """Writes deliveries and what is said about them. ``open`` it before use, ``close`` it after.

    Safe for concurrent requests. Cost: one round trip an answer, no wait for the disk.
    """

    def __init__(
        self, base_dsn: str, secret: str, *, connections_max: int = 8, wait_s: float = 2.0
    ) -> None:
        self._question_key: Final = derived_key("question", secret)
        self._consumer_key: Final = derived_key("consumer", secret)
        self._seal: Final = InquirySeal(secret)
        self._wait_s: Final = wait_s
        self._pool: Final[AsyncConnectionPool[AsyncConnection[Any]]] = AsyncConnectionPool(
            dsn_for(LEDGER, base_dsn, secret),
            min_size=1,
            max_size=connections_max,
            timeout=wait_s,
            reconnect_timeout=5,
            open=False,
            name=LEDGER,
            check=AsyncConnectionPool.check_connection,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 0,
                "options": "-c synchronous_commit=off -c statement_timeout=5000",
            },
        )

    async def open(self) -> None:
        """Connects. Raises StoreUnavailable when it cannot log in in time."""
        with mapped():
            await self._pool.open(wait=True, timeout=self._wait_s)

    async def close(self) -> None:
        await self._pool.close()

    async def delivered(self, ask: Ask, response: Response, *, weak: Sequence[UUID] = ()) -> UUID:
        """Writes down an answer with all of its packs, before it is handed on; under which id.

        ``weak`` are the threads that were found and not answered from. Raises StoreUnavailable.
        """
        query = ask.request.query if ask.request is not None else None
        query_id = uuid4()
        inquiry = None
        if query is not None and _asked(ask) == "auto" and wanted(response):
            inquiry = self._seal.close(Inquiry(query_id, query))
        values = {
            **self._caller(ask),
            "query_id": query_id,
            "mode": response.mode,
            "asked": _asked(ask),
            "again": bool(ask.exclude),
            "query_hmac": None if query is None else self.question(query),
            "packs": Jsonb([_pack(pack) for pack in response.packs]),
            "events": Jsonb(list(_events(query_id if query is not None else None, response))),
            "weak_ids": list(weak),
            "channel": CHANNEL,
            "inquiry": inquiry,
        }
        with mapped():
            async with self._pool.connection() as connection:
                await connection.execute(_DELIVERED, values)
        return query_id

    async def withheld(self, ask: Ask, answer_id: UUID) -> None:
        """Writes down that an answer to this subject never left: none of its packs was delivered.

        Waits for the disk, so that no crash keeps the delivery and loses this. Said twice, it is
        one row. Raises StoreUnavailable.
        """
        values = {"query_id": answer_id, "subject_id": ask.subject.subject_id}
        with mapped():
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute("set local synchronous_commit = on")
                await connection.execute(_WITHHELD, values)

    async def said(
        self, ask: Ask, delivery: Delivery, kind: FeedbackKind, unit_ids: Iterable[UUID] = ()
    ) -> None:
        """Writes down feedback on a pack that was delivered to this subject.

        ``delivery`` must have been read under the caller's own role, and ``unit_ids`` must be
        units of it: nothing here asks again. The same said twice is one row. It counts for the
        audience that the pack was made for, whatever the subject is now. Raises StoreUnavailable.
        """
        about: list[UUID | None] = [*dict.fromkeys(unit_ids)] or [None]
        subject = ask.subject.subject_id
        rows = [
            {
                "id": str(uuid5(_NAMESPACE, f"{delivery.pack_id} {kind} {unit} {subject}")),
                "unit_id": None if unit is None else str(unit),
            }
            for unit in about
        ]
        values = {
            **self._caller(ask),
            "at": delivery.delivered_at,
            "audience": delivery.audience,
            "profile": delivery.profile,
            "kind": kind,
            "query_id": delivery.query_id,
            "asked": "reference" if delivery.query_hmac is None else "auto",
            "mode": delivery.mode,
            "query_hmac": delivery.query_hmac,
            "pack_id": delivery.pack_id,
            "thread_id": delivery.thread_id,
            "said": Jsonb(rows),
        }
        with mapped():
            async with self._pool.connection() as connection:
                await connection.execute(_SAID, values)

    def question(self, query: str) -> str:
        """The keyed hash of a question's words: order, case and function words do not count."""
        telling = sorted(set(words(query)) - FUNCTION_WORDS)
        return _keyed(self._question_key, "\n".join(telling) or query)

    def consumer(self, subject_id: str) -> str:
        """The keyed hash that stands for a subject where only distinctness counts."""
        if subject_id == ANONYMOUS:
            return _NOBODY
        return _keyed(self._consumer_key, subject_id)

    def _caller(self, ask: Ask) -> dict[str, object]:
        subject = ask.subject
        return {
            "request_id": ask.request_id,
            "subject_id": subject.subject_id,
            "consumer": self.consumer(subject.subject_id),
            "audience": subject.audience,
            "profile": subject.profiles[0],
            "policy_digest": subject.policy_digest,
        }


def _keyed(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _asked(ask: Ask) -> str:
    return "reference" if ask.request is None else ask.request.mode


def _events(query_id: UUID | None, response: Response) -> Iterable[dict[str, str | None]]:
    """One for the question, if there was one, and one for each pack."""
    if query_id is not None:
        yield {"id": str(query_id), "kind": "query"}
    for pack in response.packs:
        yield {
            "id": str(uuid4()),
            "kind": "pack",
            "pack_id": str(pack.pack_id),
            "thread_id": _text(pack.thread_id),
        }


def _pack(pack: Pack) -> dict[str, object]:
    units: dict[UUID, UnitRef] = {
        unit.unit_id: unit
        for shown in (pack.canonical_units, pack.supporting_units, pack.latest_reports)
        for unit in shown
    }
    return {
        "pack_id": str(pack.pack_id),
        "thread_id": _text(pack.thread_id),
        "fallback_reason": pack.fallback_signal.reason if pack.fallback_signal else None,
        "unit_ids": [str(unit_id) for unit_id in units],
        "addresses": [unit.canonical_address for unit in units.values()],
        "revisions": [unit.revision for unit in units.values()],
        "suspect_ids": [str(suspect.unit_id) for suspect in pack.suspect_links],
        "gap_ids": [str(gap.artifact_id) for gap in pack.known_gaps],
    }


def _text(one: UUID | None) -> str | None:
    return None if one is None else str(one)
