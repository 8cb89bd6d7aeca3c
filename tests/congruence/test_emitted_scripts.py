"""What ``gateway policy compile`` writes is run as it stands, and says what Casbin says.

Mandated by promise G1 for the texts that a reviewer or another system takes away: `--emit rls`
and `--emit sql`, every state, profile and consent value, on the real engine. The expectation
comes from Casbin, state by state, so that nothing of the compiler stands on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

import psycopg
import pytest

from gateway.cli.app import run
from policies.kinds import SHAPES, Kind
from policies.oracle import Oracle
from policies.snapshot import Snapshot
from policies.vocabulary import CONSENTS
from retrieval.stores.roles import profile_role
from tests.congruence.states import State
from tests.congruence.test_row_level_security import NUMBERS, numbers
from tests.retrieval.database.world import World

pytestmark = pytest.mark.timeout(600)  # Casbin is asked some 170,000 questions, once

Verdicts = Mapping[tuple[str, str], frozenset[int]]
OWN = ("own",)
EVERYTHING = "everything"
"""A purpose under which every unit of the world has a live consent."""


@pytest.fixture(scope="module")
def casbin(snapshot: Snapshot) -> Verdicts:
    """The classes that Casbin lets each profile read, by profile and consent value.

    Only the rows that name a profile can match it, so each is asked with those alone: the
    same verdicts in a third of the time.
    """
    found: dict[tuple[str, str], frozenset[int]] = {}
    for profile in snapshot.vocabulary.profiles:
        rows = [row for row in snapshot.table.units.rows if profile in row.cells[0]]
        oracle = Oracle(SHAPES[Kind.UNITS], rows)
        for consent in CONSENTS:
            found[profile, consent] = frozenset(
                class_id
                for class_id, values in snapshot.vocabulary.classes
                if oracle.allows(profile, *values, consent)
            )
    return found


def emitted(form: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The command's own output."""
    assert run(["policy", "compile", "--emit", form]) == 0
    return capsys.readouterr().out


@contextmanager
def undone(world: World) -> Iterator[psycopg.Connection[Any]]:
    """A superuser's transaction that leaves nothing behind: the world is everybody's."""
    with (
        psycopg.connect(world.database.url) as connection,
        connection.transaction(force_rollback=True),
    ):
        yield connection


def permitted(
    casbin: Verdicts, states: list[State], profile: str, consent: str, own: tuple[str, ...]
) -> set[int]:
    reach = {"*", *own}
    classes = casbin[profile, consent]
    return {
        state.number
        for state in states
        if state.class_id in classes and state.tenant in reach and state.jurisdiction in reach
    }


def test_the_emitted_masks_give_casbins_verdicts_by_row_level_security(
    full: World,
    states: list[State],
    snapshot: Snapshot,
    casbin: Verdicts,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """97,209 states x 8 profiles x consent none and granted, after the script alone was run."""
    script = emitted("rls", capsys)
    compared = 0
    with undone(full) as connection:
        connection.execute("delete from gate.profile_grant")
        connection.execute(script.encode())
        connection.execute(
            "insert into gate.consent (subject_id, purpose, unit_id, approver, granted_at,"
            " expires_at) select 'someone', %s, id, 'boss', now() - interval '1 minute',"
            " now() + interval '1 hour' from brain.unit",
            [EVERYTHING],
        )
        connection.execute("analyze gate.consent")
        for (profile, consent), own in product(casbin, ((), OWN)):
            connection.execute(
                "select set_config('role', %s, true), set_config('gw.subject', 'someone', true),"
                " set_config('gw.purpose', %s, true),"
                " set_config('gw.tenants', %s::text[]::text, true),"
                " set_config('gw.jurisdictions', %s::text[]::text, true)",
                [
                    profile_role(profile),
                    EVERYTHING if consent == "granted" else "",
                    list(own),
                    list(own),
                ],
            )
            seen = numbers(connection, NUMBERS)
            assert seen == permitted(casbin, states, profile, consent, own), (profile, consent)
            compared += len(states)
    assert compared == len(states) * len(snapshot.vocabulary.profiles) * 4


def test_row_level_security_shows_nothing_before_the_emitted_masks_are_there(
    full: World, snapshot: Snapshot
) -> None:
    """The comparison above rests on the script: without its rows every profile reads nothing."""
    with undone(full) as connection:
        connection.execute("delete from gate.profile_grant")
        for profile in snapshot.vocabulary.profiles:
            connection.execute(
                "select set_config('role', %s, true), set_config('gw.tenants', '{own}', true),"
                " set_config('gw.jurisdictions', '{own}', true)",
                [profile_role(profile)],
            )
            assert numbers(connection, NUMBERS) == set()


def test_the_emitted_sql_gives_casbins_verdicts_as_it_stands(
    full: World,
    states: list[State],
    casbin: Verdicts,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each predicate is pasted into a WHERE clause; only the caller's own values are bound."""
    digest, *parts = re.split(
        r"^-- profile (\S+): .*\n", emitted("sql", capsys), flags=re.MULTILINE
    )
    predicates = dict(zip(parts[::2], parts[1::2], strict=True))
    assert digest == f"-- policy {full.snapshot.digest}\n"
    assert set(predicates) == {profile for profile, _ in casbin}
    with undone(full) as connection:
        for (profile, consent), own in product(casbin, ((), OWN)):
            params = {
                "scope_tenants": ["*", *own],
                "scope_jurisdictions": ["*", *own],
                "scope_units": [state.id for state in states] if consent == "granted" else [],
            }
            found = numbers(connection, f"{NUMBERS} where {predicates[profile]}", params)
            assert found == permitted(casbin, states, profile, consent, own), (profile, consent)
