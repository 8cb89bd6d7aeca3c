"""Consents that end while a stream is open, on the real database.

Provenance: architecture G5 ("end of consent ... within 2 s").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.egress.registry import PostgresRegistry, RegistryUnavailable
from gateway.holder import SnapshotHolder
from gateway.ingress.limits import Limits
from gateway.streams.consents import Consents, Live
from gateway.streams.register import End, OpenStream, OpenStreams, Sort
from policies.snapshot import Snapshot
from retrieval.stores.roles import GUARD, dsn_for
from tests.services import Database

UNIT = """
insert into brain.unit (id, canonical_address, title, visibility, readiness, publication_state,
  risk_class, authority, kind, tenant, jurisdiction, current_revision, content_hash)
values (%s, %s, 't', 'public', 'published', 'published', 'high', 'enacted', 'faq',
  '*', '*', 1, 'h')
"""
GRANT = """
insert into gate.consent (subject_id, purpose, unit_id, approver, expires_at)
values (%s, %s, %s, 'a', now() + %s::interval) returning id
"""
REVOKE = "update gate.consent set revoked_at = now() where id = %s"


class Consenting:
    """Consents of the test, as whoever may give and take them."""

    def __init__(self, database: Database) -> None:
        self._connection = psycopg.connect(database.url, autocommit=True)

    def unit(self) -> UUID:
        one = uuid4()
        self._connection.execute(UNIT, (one, f"c#{one}"))
        return one

    def grant(self, subject: str, *, purpose: str = "support", last: str = "1 hour") -> UUID:
        values = (subject, purpose, self.unit(), last)
        row = self._connection.execute(GRANT, values).fetchone()
        assert row is not None
        found: UUID = row[0]
        return found

    def revoke(self, consent: UUID) -> None:
        self._connection.execute(REVOKE, (consent,))

    def close(self) -> None:
        self._connection.close()


Opener = Callable[[str], tuple[OpenStream, asyncio.Future[End]]]
Scene = Callable[[Consenting, Opener, asyncio.Event], Awaitable[None]]


def play(database: Database, snapshot: Snapshot, scene: Scene) -> None:
    """Streams that look after themselves, beside a registry on the database."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        registry = PostgresRegistry(dsn_for(GUARD, database.url, database.secret))
        await registry.open()
        streams = OpenStreams(SnapshotHolder(snapshot), Limits())
        looked = asyncio.Event()

        async def live(subjects: Collection[str]) -> Live:
            found = await registry.consents(subjects)
            looked.set()
            return found

        streams.withdrawals = Consents(live)
        consenting = Consenting(database)

        async def again() -> End | None:
            return None

        def opened(subject: str) -> tuple[OpenStream, asyncio.Future[End]]:
            ended: asyncio.Future[End] = loop.create_future()
            stream = streams.enter(
                Sort.EVENTS, subject=subject, digest=snapshot.digest, expires_at=None,
                again=again, on_end=ended.set_result,
            )  # fmt: skip
            return stream, ended

        try:
            async with asyncio.timeout(20):
                await scene(consenting, opened, looked)
        finally:
            for stream in list(streams._open):
                streams.leave(stream)
            consenting.close()
            await registry.close()

    asyncio.run(main())


@pytest.mark.parametrize("last", ["1 hour", "3 seconds"], ids=["revoked", "expired"])
def test_stream_ends_when_a_consent_of_its_subject_does(
    database: Database, believing: Snapshot, last: str
) -> None:
    """By hand or by the database's clock; another consent of hers does not keep it open."""

    async def scene(consenting: Consenting, opened: Opener, looked: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        first = consenting.grant("s.1", last=last)
        consenting.grant("s.1", purpose="audit")
        _, ended = opened("s.1")
        _, other = opened("s.2")
        if last == "1 hour":
            await looked.wait()
            consenting.revoke(first)
            began = loop.time()
            assert await ended == End.NARROWED
            assert loop.time() - began < 2
        else:
            assert await ended == End.NARROWED
        assert not other.done()

    play(database, believing, scene)


def test_consent_that_is_given_or_stays_ends_nothing(
    database: Database, believing: Snapshot
) -> None:
    """More than before is no reason, and neither is what others lose."""

    async def scene(consenting: Consenting, opened: Opener, looked: asyncio.Event) -> None:
        consenting.grant("s.1")
        others = consenting.grant("s.3")
        hers, ended = opened("s.1")
        _, lost = opened("s.3")
        await looked.wait()
        consenting.grant("s.1")
        consenting.revoke(others)
        assert await lost == End.NARROWED
        assert not ended.done()
        assert hers.ended is None

    play(database, believing, scene)


def test_who_had_a_consent_is_cut_off_when_nobody_can_say_whether_it_lasts() -> None:
    """A database that is away ends nothing of those who had none: portals go on."""
    answers: list[Live | None] = [{"s.1": frozenset({("support", uuid4())})}, None, {}]

    async def live(subjects: Collection[str]) -> Live:
        assert set(subjects) == {"s.1", "s.2"}
        answer = answers.pop(0)
        if answer is None:
            raise RegistryUnavailable("away")
        return answer

    async def scenario() -> None:
        consents = Consents(live)
        assert await consents.ended({"s.1", "s.2"}) == {}
        assert await consents.ended({"s.1", "s.2"}) == {"s.1": End.UNDECIDED}
        assert await consents.ended({"s.1", "s.2"}) == {"s.1": End.NARROWED}

    asyncio.run(scenario())
