"""One set of laws for every implementation of the guard's two doors to the database.

The registry and the journal that other tests keep in memory are only worth what they share with
the real ones: each law below runs over both.

Provenance: `gateway.egress.registry.Registry` and `gateway.journal.event.Journal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.egress.registry import (
    Content,
    Key,
    Label,
    PostgresRegistry,
    Registered,
    Registry,
    RegistryUnavailable,
)
from gateway.journal.event import EventKind, Journal, JournalUnavailable, SecurityEvent
from gateway.journal.postgres import PostgresJournal
from policies.snapshot import Snapshot
from retrieval.stores.roles import GUARD, JOURNAL, dsn_for
from tests.gateway.answers import FACETS
from tests.gateway.journal.made import event
from tests.gateway.stage import BreakableJournal, MemoryRegistry
from tests.services import Database

UNLABELLED = {**FACETS, "visibility": "Public"}
DIGEST = "d" * 64


# --- the registry -----------------------------------------------------------------------------


class RegistryWorld(Protocol):
    """A registry and hands on what it reads. Ids are given by the world."""

    def unit(self, facets: dict[str, str], tenant: str, content: Content) -> Key: ...

    def thread(self, facets: dict[str, str], tenant: str) -> Key: ...

    def delete(self, unit: Key) -> None: ...

    def consent(self, subject: str, purpose: str, unit: Key) -> None: ...

    def revoke(self, subject: str, purpose: str, unit: Key) -> None: ...

    def activate(self, digest: str) -> None: ...

    def opened(self) -> AbstractAsyncContextManager[Registry]: ...

    def unreachable(self) -> AbstractAsyncContextManager[Registry]: ...


@dataclass
class InMemory:
    snapshot: Snapshot
    registry: MemoryRegistry = field(default_factory=lambda: MemoryRegistry(digests=[""]))

    def unit(self, facets: dict[str, str], tenant: str, content: Content) -> Key:
        key: Key = ("unit", uuid4())
        self.registry.labels[key] = Label(self.snapshot.vocabulary.class_id(facets), tenant, "*")
        self.registry.contents[key[1]] = content
        return key

    def thread(self, facets: dict[str, str], tenant: str) -> Key:
        key: Key = ("thread", uuid4())
        self.registry.labels[key] = Label(self.snapshot.vocabulary.class_id(facets), tenant, "*")
        return key

    def delete(self, unit: Key) -> None:
        del self.registry.labels[unit]

    def consent(self, subject: str, purpose: str, unit: Key) -> None:
        self.registry.consents.add((subject, purpose, unit[1]))

    def revoke(self, subject: str, purpose: str, unit: Key) -> None:
        self.registry.consents.discard((subject, purpose, unit[1]))

    def activate(self, digest: str) -> None:
        self.registry.digests = [digest]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Registry]:
        yield self.registry

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[Registry]:
        yield MemoryRegistry(down=True)


_FACET_COLUMNS = ", ".join(FACETS)
_FACET_VALUES = ", ".join(f"%({facet})s" for facet in FACETS)


@dataclass
class InPostgres:
    database: Database

    def _do(self, statement: str, values: dict[str, object]) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as admin:
            admin.execute(statement, values)

    def unit(self, facets: dict[str, str], tenant: str, content: Content) -> Key:
        one = uuid4()
        values = {"id": one, "tenant": tenant, **facets}
        values |= {"address": content.address, "revision": content.revision}
        self._do(
            f"insert into brain.unit (id, canonical_address, title, {_FACET_COLUMNS}, tenant,"
            " jurisdiction, current_revision, content_hash) values (%(id)s, %(address)s, 't',"
            f" {_FACET_VALUES}, %(tenant)s, '*', %(revision)s, 'h')",
            values,
        )
        for revision in range(1, content.revision + 1 if content.body_sha256 else 1):
            said = content.body_sha256 if revision == content.revision else "of an older text"
            self._do(
                "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256)"
                " values (%(id)s, %(revision)s, 't', 'b', %(said)s)",
                {"id": one, "revision": revision, "said": said},
            )
        return ("unit", one)

    def thread(self, facets: dict[str, str], tenant: str) -> Key:
        one = uuid4()
        self._do(
            f"insert into brain.thread (id, canonical_address, title, {_FACET_COLUMNS}, tenant,"
            f" jurisdiction) values (%(id)s, %(address)s, 't', {_FACET_VALUES}, %(tenant)s, '*')",
            {"id": one, "address": f"thread/{one}", "tenant": tenant, **facets},
        )
        return ("thread", one)

    def delete(self, unit: Key) -> None:
        self._do("update brain.unit set deleted_at = now() where id = %(id)s", {"id": unit[1]})

    def consent(self, subject: str, purpose: str, unit: Key) -> None:
        self._do(
            "insert into gate.consent (subject_id, purpose, unit_id, approver, granted_at,"
            " expires_at) values (%(subject)s, %(purpose)s, %(unit)s, 'a', now(),"
            " now() + interval '1 hour')",
            {"subject": subject, "purpose": purpose, "unit": unit[1]},
        )

    def revoke(self, subject: str, purpose: str, unit: Key) -> None:
        self._do(
            "update gate.consent set revoked_at = now() where subject_id = %(subject)s"
            " and purpose = %(purpose)s and unit_id = %(unit)s",
            {"subject": subject, "purpose": purpose, "unit": unit[1]},
        )

    def activate(self, digest: str) -> None:
        self._do(
            "insert into gate.active_revision (digest, generation) values (%(digest)s, 1)"
            " on conflict (one) do update set digest = excluded.digest",
            {"digest": digest},
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Registry]:
        registry = PostgresRegistry(dsn_for(GUARD, self.database.url, self.database.secret))
        await registry.open()
        try:
            yield registry
        finally:
            await registry.close()

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[Registry]:
        registry = PostgresRegistry("host=127.0.0.1 port=1 dbname=x connect_timeout=1", wait_s=0.5)
        await registry.open()
        try:
            yield registry
        finally:
            await registry.close()


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> RegistryWorld:
    """Each law runs over both registries."""
    if request.param == "memory":
        found: RegistryWorld = InMemory(request.getfixturevalue("snapshot"))
    else:
        found = InPostgres(request.getfixturevalue("database"))
    return found


def look_up(
    world: RegistryWorld, *keys: Key, subject: str = "s.1", purpose: str = "audit"
) -> Registered:
    async def main() -> Registered:
        async with world.opened() as registry:
            return await registry.look_up(keys, subject_id=subject, purpose=purpose)

    return asyncio.run(main())


def content(name: str, revision: int = 1) -> Content:
    return Content(f"law/{name}#1", revision, name[0] * 64)


def test_labels_and_contents_are_of_the_asked_and_live_only(
    world: RegistryWorld, snapshot: Snapshot
) -> None:
    """What was not asked for, was deleted or never was, is not there: no label, no content."""
    asked = world.unit(FACETS, "acme", content("asked", 3))
    other = world.unit(FACETS, "*", content("other"))
    gone = world.unit(FACETS, "*", content("gone"))
    world.delete(gone)
    class_id = snapshot.vocabulary.class_id(FACETS)
    found = look_up(world, asked, gone, ("unit", uuid4()))
    assert found.labels == {asked: Label(class_id, "acme", "*")}
    assert found.contents == {asked[1]: content("asked", 3)}
    assert other[1] not in found.contents


def test_a_label_that_is_none_is_the_class_of_nobody(world: RegistryWorld) -> None:
    """A misspelt facet: it exists, and is in no list."""
    unit = world.unit(UNLABELLED, "*", content("odd"))
    assert look_up(world, unit).labels[unit].class_id == -1


def test_a_unit_without_a_current_text_says_so(world: RegistryWorld) -> None:
    """No hash is an empty one, which no text has."""
    unit = world.unit(FACETS, "*", Content("law/bare#1", 1, ""))
    assert look_up(world, unit).contents == {unit[1]: Content("law/bare#1", 1, "")}


def test_an_id_is_known_as_its_own_sort_only(world: RegistryWorld) -> None:
    """A thread's id that is passed off as a unit's has no label, and a thread no content."""
    thread, unit = world.thread(FACETS, "*"), world.unit(FACETS, "*", content("unit"))
    found = look_up(world, thread, unit, ("unit", thread[1]), ("thread", unit[1]))
    assert set(found.labels) == {thread, unit}
    assert set(found.contents) == {unit[1]}


def test_consents_are_the_subjects_own_for_this_purpose_and_these_ids(
    world: RegistryWorld,
) -> None:
    """Another subject, another purpose, another unit, a revoked one: none of them counts."""
    units = [world.unit(FACETS, "*", content(name)) for name in ("first", "second", "third")]
    for unit in units:
        world.consent("s.1", "audit", unit)
    world.revoke("s.1", "audit", units[1])
    found = look_up(world, *units)
    assert found.consented == tuple(sorted((units[0][1], units[2][1])))
    assert look_up(world, units[0]).consented == (units[0][1],)
    assert look_up(world, *units, subject="s.2").consented == ()
    assert look_up(world, *units, purpose="support").consented == ()
    assert look_up(world, *units, subject="", purpose="").consented == ()


def test_the_digest_is_told_also_when_nothing_is_asked(world: RegistryWorld) -> None:
    """Empty while no revision is active; then the one in force, whatever the keys."""
    assert look_up(world) == Registered("", {}, {}, ())
    world.activate(DIGEST)
    assert look_up(world) == Registered(DIGEST, {}, {}, ())
    world.activate("e" * 64)
    assert look_up(world, ("artifact", uuid4())).digest == "e" * 64


def test_an_unreachable_registry_never_looks_empty(world: RegistryWorld) -> None:
    """An error of its own: nothing may leave."""

    async def main() -> None:
        async with world.unreachable() as registry:
            with pytest.raises(RegistryUnavailable):
                await registry.look_up([("unit", uuid4())], subject_id="s", purpose="")

    asyncio.run(main())


def test_answers_of_many_at_once_do_not_mix(world: RegistryWorld) -> None:
    """Forty questions over one registry: each gets its own unit and its own consents."""
    units = [world.unit(FACETS, "*", content(f"{number}")) for number in range(4)]
    for number, unit in enumerate(units):
        world.consent(f"s.{number}", "audit", unit)

    async def main() -> None:
        async with world.opened() as registry:

            async def ask(number: int) -> None:
                unit = units[number % 4]
                found = await registry.look_up(
                    [unit], subject_id=f"s.{number % 4}", purpose="audit"
                )
                assert (set(found.labels), found.consented) == ({unit}, (unit[1],))

            await asyncio.gather(*(ask(number) for number in range(40)))

    asyncio.run(main())


# --- the journal ------------------------------------------------------------------------------


class JournalWorld(Protocol):
    """A journal that can be made to fail, and what it keeps."""

    def opened(self) -> AbstractAsyncContextManager[Journal]: ...

    def fail(self) -> None: ...

    def mend(self) -> None: ...

    def kept(self) -> dict[UUID, SecurityEvent]: ...


@dataclass
class KeptInMemory:
    journal: BreakableJournal = field(default_factory=BreakableJournal)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Journal]:
        yield self.journal

    def fail(self) -> None:
        self.journal.full = True

    def mend(self) -> None:
        self.journal.full = False

    def kept(self) -> dict[UUID, SecurityEvent]:
        kept = {one.event_id: one for one in self.journal.events}
        assert len(kept) == len(self.journal.events)
        return kept


_COLUMNS = (
    *("kind", "action", "request_id", "trace_id", "audience", "profile", "subject_hash", "route"),
    *("unit_ids", "unit_count", "class_ids", "layer", "policy_digest"),
)


@dataclass
class KeptInPostgres:
    database: Database

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Journal]:
        dsn = dsn_for(JOURNAL, self.database.url, self.database.secret)
        journal = PostgresJournal(dsn, deadline_ms=20_000, pool_max=2)
        await journal.open()
        try:
            yield journal
        finally:
            await journal.close()

    def _do(self, statement: str) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as admin:
            admin.execute(statement)

    def fail(self) -> None:
        self._do("revoke insert on gate.security_event from gw_journal")

    def mend(self) -> None:
        self._do("grant insert on gate.security_event to gw_journal")

    def kept(self) -> dict[UUID, SecurityEvent]:
        statement = f"select id, {', '.join(_COLUMNS)} from gate.security_event"
        found = {}
        with psycopg.connect(self.database.url) as admin:
            for one, *values in admin.execute(statement).fetchall():
                fields = dict(zip(_COLUMNS, values, strict=True))
                for name in ("unit_ids", "class_ids"):
                    fields[name] = tuple(fields[name])
                found[one] = SecurityEvent(event_id=one, **fields)
        return found


@pytest.fixture(params=["memory", "postgres"])
def keeping(request: pytest.FixtureRequest) -> JournalWorld:
    """Each law runs over both journals."""
    if request.param == "memory":
        found: JournalWorld = KeptInMemory()
    else:
        found = KeptInPostgres(request.getfixturevalue("database"))
    return found


def record(keeping: JournalWorld, *events: SecurityEvent) -> None:
    async def main() -> None:
        async with keeping.opened() as journal:
            await asyncio.gather(*(journal.record(one) for one in events))

    asyncio.run(main())


def test_an_event_is_kept_as_it_was_made(keeping: JournalWorld) -> None:
    """Every field of it, for both kinds and for as many units as one names."""
    many = [(uuid4(), number % 3) for number in range(120)]
    made = [
        event(),
        event(kind=EventKind.STALE_INDEX),
        event(units=many, layers=("response", "upstream:portal")),
    ]
    record(keeping, *made)
    assert keeping.kept() == {one.event_id: one for one in made}


def test_an_event_recorded_again_is_kept_once(keeping: JournalWorld) -> None:
    """One after the other, and at the same time: the answer to a commit can be lost."""
    made = event()
    record(keeping, made)
    record(keeping, made, made, made)
    assert keeping.kept() == {made.event_id: made}


def test_events_of_many_requests_at_once_are_all_kept(keeping: JournalWorld) -> None:
    """More than there are connections; none is lost behind another."""
    made = [event(request_id=f"req-{number}") for number in range(40)]
    record(keeping, *made)
    assert set(keeping.kept()) == {one.event_id for one in made}


def test_a_journal_that_fails_says_so_keeps_nothing_and_recovers(keeping: JournalWorld) -> None:
    """Then nothing of the response may leave; the same event can be recorded afterwards."""
    made = event()
    keeping.fail()
    with pytest.raises(JournalUnavailable):
        record(keeping, made)
    assert keeping.kept() == {}
    keeping.mend()
    record(keeping, made)
    assert keeping.kept() == {made.event_id: made}
