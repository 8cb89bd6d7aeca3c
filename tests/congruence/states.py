"""One unit in every state: each class (unclassed too) in each compartment case, some consented."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from uuid import UUID

import psycopg

from policies.snapshot import Snapshot
from tests.retrieval.database.world import World

WHERE = ("*", "own", "other")
CALLERS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    (("own",), ("own",)),
    (("own", "second"), ()),
)
SUBJECT, PURPOSE = "someone", "support"
CONSENTED_EVERY = 229
"""Every so many states one consented unit: prime, so that all classes' neighbourhoods occur."""


@dataclass(frozen=True, slots=True)
class State:
    number: int
    class_id: int
    tenant: str
    jurisdiction: str

    @property
    def id(self) -> UUID:
        return UUID(int=self.number)


def every_state(snapshot: Snapshot) -> list[State]:
    """Shape: (classes + 1) x 9."""
    classes = range(-1, snapshot.vocabulary.class_count)
    return [State(n, *key) for n, key in enumerate(product(classes, WHERE, WHERE), 1)]


def consented(states: list[State], purpose: str) -> tuple[UUID, ...]:
    """The units for which the consents written by `fill` are live under this purpose."""
    return tuple(state.id for state in states[::CONSENTED_EVERY]) if purpose == PURPOSE else ()


def fill(world: World, states: list[State]) -> None:
    """Write the units and the consents. Triggers are off: -1 must be there too."""
    with psycopg.connect(world.database.url) as admin:
        admin.execute("set session_replication_role = replica")
        admin.execute(
            "insert into brain.unit (id, canonical_address, title, class_id, tenant,"
            " jurisdiction, current_revision, content_hash)"
            " select x.id, x.id::text, 't', x.class_id, x.tenant, x.jurisdiction, 1, 'h'"
            " from unnest(%s::uuid[], %s::smallint[], %s::text[], %s::text[])"
            " x (id, class_id, tenant, jurisdiction)",
            [
                [state.id for state in states],
                [state.class_id for state in states],
                [state.tenant for state in states],
                [state.jurisdiction for state in states],
            ],
        )
        admin.execute(
            "insert into gate.consent (subject_id, purpose, unit_id, approver, granted_at,"
            " expires_at) select %s, %s, id, 'boss', now() - interval '1 minute',"
            " now() + interval '1 hour' from unnest(%s::uuid[]) id",
            [SUBJECT, PURPOSE, list(consented(states, PURPOSE))],
        )
        admin.execute("analyze brain.unit")
