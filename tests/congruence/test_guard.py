"""The egress guard gives the policy's answer on every state, over its own role and registry.

Mandated by promise G1, with G3's second check: the guard reads labels and consents anew, as
``gw_guard``, and nothing that retrieval says takes part in its verdict.
"""

from __future__ import annotations

import asyncio

from gateway.egress.guard import denied_of
from gateway.egress.registry import Key, PostgresRegistry, Registered
from policies.decision import Scope
from policies.subject import Subject
from retrieval.stores.roles import GUARD
from tests.congruence.states import PURPOSE, SUBJECT, State, consented
from tests.retrieval.database.world import World

OWN = ("own",)
BATCH = 20_000
"""States per look-up: a response never holds so many, the query does not mind."""


def test_the_guard_denies_exactly_what_the_scope_does(full: World, states: list[State]) -> None:
    """97,209 states x 8 profiles x own, other and shared x consent, through the label registry."""
    keys: list[Key] = [("unit", state.id) for state in states]

    async def run() -> int:
        registry = PostgresRegistry(full.dsn(GUARD))
        await registry.open()
        try:
            compared = 0
            for purpose in ("", PURPOSE):
                for start in range(0, len(keys), BATCH):
                    part = keys[start : start + BATCH]
                    registered = await registry.look_up(part, subject_id=SUBJECT, purpose=purpose)
                    assert registered.digest == full.snapshot.digest
                    compared += check(start, part, purpose, registered)
            return compared
        finally:
            await registry.close()

    def check(start: int, part: list[Key], purpose: str, registered: Registered) -> int:
        compared = 0
        for profile in full.snapshot.vocabulary.profiles:
            grant = full.snapshot.grant([profile])
            scope = Scope(grant, OWN, OWN, consented(states, purpose))
            wanted = {
                ("unit", state.id)
                for state in states[start : start + len(part)]
                if not scope.permits(
                    unit_id=state.id,
                    class_id=state.class_id,
                    tenant=state.tenant,
                    jurisdiction=state.jurisdiction,
                )
            }
            subject = Subject(
                subject_id=SUBJECT,
                audience=full.snapshot.vocabulary.profiles[profile],
                grant=grant,
                tenants=OWN,
                jurisdictions=OWN,
                task_scope="",
                purpose=purpose,
                actor="",
            )
            assert denied_of(part, registered, subject) == wanted
            compared += len(part)
        return compared

    expected = len(keys) * len(full.snapshot.vocabulary.profiles) * 2
    assert asyncio.run(run()) == expected


def test_an_id_that_is_no_unit_is_denied_to_everybody(full: World, states: list[State]) -> None:
    """Absent, or of another sort than declared: the registry knows no label for it."""
    strangers: list[Key] = [("thread", states[0].id), ("artifact", states[0].id)]

    async def run() -> None:
        registry = PostgresRegistry(full.dsn(GUARD))
        await registry.open()
        try:
            registered = await registry.look_up(strangers, subject_id=SUBJECT, purpose=PURPOSE)
        finally:
            await registry.close()
        for profile in full.snapshot.vocabulary.profiles:
            subject = Subject(
                SUBJECT, "any", full.snapshot.grant([profile]), ("own",), ("own",), "", PURPOSE, ""
            )
            assert denied_of(strangers, registered, subject) == frozenset(strangers)

    asyncio.run(run())
