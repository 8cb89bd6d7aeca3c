"""Which units an operator is told of, against the definition of what it may read.

Provenance: issue 3, point 3: counts and ids come under the reviewer's own subject, ids only of
units that it may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.registry import PostgresRegistry
from gateway.journal.postgres import PostgresJournal
from gateway.surfaces.admin.asked import Answered, Asked
from gateway.surfaces.admin.live import IDS_MAX, LiveNumbers, bucket
from gateway.surfaces.admin.stores import LiveCounts
from gateway.surfaces.admin.wire import LiveReply, LiveRequest
from policies.decision import Scope
from policies.snapshot import Snapshot
from policies.subject import Principal
from retrieval.contract import SubjectWire
from retrieval.stores.roles import GUARD, JOURNAL, LIVE
from tests.gateway.admin.asking import Operators, live, operator
from tests.gateway.admin.test_operators import ISSUERS
from tests.retrieval.database.world import OPEN, SECRET, world_in
from tests.services import Database

PLACES = ("*", "acme", "globex", "stranger")
EVERY = 23
"""One class in so many: a few hundred classes in every pair of compartments."""
PER_STATE = 3


class Corpus:
    """Units without words: what counts is class and compartments. Made in one statement."""

    def __init__(self, operators: Operators) -> None:
        count = operators.world.gateway.snapshot.vocabulary.class_count
        self.classes = (-1, *range(0, count, EVERY))
        keys = [(c, t, j) for c in self.classes for t in PLACES for j in PLACES]
        self.units = {
            UUID(int=(number * 7919 + 1) % 10_000_019): key
            for number, key in enumerate(keys * PER_STATE)
        }

    def write(self, url: str) -> None:
        """Triggers are off: unlabelled units must be there too."""
        with psycopg.connect(url) as admin:
            admin.execute("set session_replication_role = replica")
            admin.execute(
                "insert into brain.unit (id, canonical_address, title, class_id, tenant,"
                " jurisdiction, current_revision, content_hash)"
                " select x.id, x.id::text, 't', x.class_id, x.tenant, x.jurisdiction, 1, 'h'"
                " from unnest(%s::uuid[], %s::smallint[], %s::text[], %s::text[])"
                " x (id, class_id, tenant, jurisdiction) on conflict do nothing",
                [list(self.units), *map(list, zip(*self.units.values(), strict=True))],
            )


@pytest.fixture(scope="session")
def corpus(shared: Operators) -> Corpus:
    made = Corpus(shared)
    made.write(shared.world.gateway.stores.database_url)
    return made


own = st.lists(st.sampled_from(["acme", "globex", "nowhere"]), unique=True, max_size=2)


@given(data=st.data(), tenants=own, jurisdictions=own)
def test_no_unit_outside_the_operators_own_scope_is_named(
    data: st.DataObject,
    tenants: list[str],
    jurisdictions: list[str],
    shared: Operators,
    corpus: Corpus,
    asking: Callable[..., Any],
) -> None:
    """Every id is one that `Scope.permits`, and none of those is missing below the bound;
    numbers count what the operator cannot see as well."""
    some = st.lists(st.sampled_from(corpus.classes[1:]), max_size=30, unique=True)
    gained, lost = data.draw(some), data.draw(some)
    token = operator(ISSUERS, "policy-reviewer", tenants=tenants, jurisdictions=jurisdictions)
    body = live("ids", {"profile": "customer", "gained": gained, "lost": lost})
    reply = asking(shared.live, token, body)
    assert reply.status_code == 200, reply.text
    (profile,) = reply.json()["profiles"]
    grant = shared.world.gateway.snapshot.grant(["employee"])
    scope = Scope(grant, tuple(tenants), tuple(jurisdictions), ())
    for side, classes in (("gained", gained), ("lost", lost)):
        touched = [one for one, key in corpus.units.items() if key[0] in classes]
        seen = sorted(
            str(one)
            for one in touched
            if scope.permits(unit_id=one, **dict(zip(("class_id", "tenant", "jurisdiction"),
                                                     corpus.units[one], strict=True)))
        )  # fmt: skip
        assert profile[side]["units"] == len(touched)
        assert profile[side]["ids"] == seen[:IDS_MAX]
        assert profile[side]["more"] is (len(seen) > IDS_MAX)


@pytest.mark.parametrize("mode", ["bucketed", "counts"])
def test_numbers_name_no_unit(
    mode: str, shared: Operators, corpus: Corpus, asking: Callable[..., Any]
) -> None:
    body = live(mode, {"profile": "customer", "gained": list(corpus.classes[1:])})
    token = operator(ISSUERS, "policy-reviewer")
    reply = asking(shared.live, token, body)
    (profile,) = reply.json()["profiles"]
    number = sum(key[0] >= 0 for key in corpus.units.values())
    wanted = bucket(number) if mode == "bucketed" else number
    assert profile["gained"] == {"units": wanted, "threads": "0" if mode == "bucketed" else 0,
                                 "ids": None, "more": False}  # fmt: skip
    assert not any(str(one) in reply.text for one in corpus.units)


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"groups": []}, "no_audience"),
        ({"groups": ["staff-all", "contractors"]}, "no_audience"),
    ],
)
def test_an_operator_without_an_audience_is_told_no_id(
    claims: dict[str, Any], code: str, shared: Operators, asking: Callable[..., Any]
) -> None:
    """Its role gives it the numbers; which units they are is for readers."""
    token = operator(ISSUERS, "policy-reviewer", **claims)
    assert asking(shared.live, token, live("counts")).status_code == 200
    reply = asking(shared.live, token, live("ids", {"profile": "customer", "gained": [0]}))
    assert (reply.status_code, reply.json()["code"]) == (403, code)


@given(st.integers(0, 10**9))
def test_a_bucket_holds_its_number_and_says_no_more(number: int) -> None:
    low, _, high = bucket(number).partition("-")
    assert int(low) <= number <= int(high or low)
    assert {*low} <= {*"01"}
    assert {*high} <= {*"9"}
    assert len(high or low) == len(str(number))
    if number:
        assert {bucket(int(low)), bucket(int(high))} == {bucket(number)}


class Careless:
    """A sight that has lost every layer of its own."""

    def __init__(self, ids: Sequence[UUID]) -> None:
        self.ids = ids

    async def units_of_classes(
        self,
        subject: SubjectWire,  # noqa: ARG002 - whoever asks
        classes: Sequence[Sequence[int]],
        *,
        limit: int,  # noqa: ARG002 - however many
    ) -> Sequence[Sequence[UUID]]:
        return [self.ids for _ in classes]


def test_a_unit_that_only_the_second_judgement_refuses_is_an_event(
    database: Database, snapshot: Snapshot
) -> None:
    """The id is withheld, the leak is a row of the journal, and the rest is answered."""
    world = world_in(database, snapshot)
    seen, hidden = world.unit(OPEN), world.unit(SECRET)
    gone = UUID(int=1)
    request = LiveRequest.model_validate(
        live("ids", {"profile": "customer", "gained": (world.class_id(SECRET),)})
    )

    async def main() -> Answered:
        async with AsyncExitStack() as stack:
            counts = LiveCounts(world.dsn(LIVE))
            registry = PostgresRegistry(world.dsn(GUARD))
            journal = PostgresJournal(world.dsn(JOURNAL), deadline_ms=5_000)
            for store in (counts, registry, journal):
                await store.open()
                stack.push_async_callback(store.close)
            door = LiveNumbers(
                counts=counts,
                sight=Careless([seen, hidden, gone]),
                registry=registry,
                journal=journal,
            )
            principal = Principal(
                "idp:staff", "s.1", {"groups": frozenset({"grp:staff"})}, (), (), 0.0
            )
            asked = Asked(
                principal=principal,
                snapshot=world.snapshot,
                request_id="r-1",
                trace_id="a" * 32,
            )
            return await door.answer(asked, request)

    answered = asyncio.run(main())
    assert isinstance(answered.reply, LiveReply)
    (profile,) = answered.reply.profiles
    assert (profile.gained.units, profile.gained.ids) == (1, (seen,))
    events = world.ask("select kind, action, unit_ids, route from gate.security_event")
    assert events == [("wrong_audience_result", "withheld", [hidden], "admin-policy-live")]
