"""The eight rates, from events of known counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.stores.roles import METRIC, dsn_for
from tests.retrieval.signals.months import older_partition
from tests.services import Cluster, Database, fresh_database

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
METRICS = (
    "thread_hit_rate",
    "fallback_vector_rate",
    "context_sufficiency_rate",
    "wrong_thread_rate",
    "missing_thread_rate",
    "noisy_context_rate",
    "agent_extra_search_rate",
    "user_reject_rate",
)
"""Seed section 4.8, in its order."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with one pack per thread named in ``threads`` (None: a pack of the fallback)."""

    mode: str
    threads: tuple[bool, ...] = ()
    said: tuple[str, ...] = ()
    asked: str = "auto"
    audience: str = "customer"
    days_ago: int = 0
    again: bool = False
    request: str = ""


HIT = Asked("single", (True,))
FALLBACK = Asked("fallback", (False,))

FIXTURE = (
    Asked("single", (True,), ("sufficient",)),
    Asked("single", (True,), ("sufficient", "extra_search")),
    Asked("single", (True,), ("wrong_thread", "rejected_thread")),
    Asked("multi", (True, True), ("noisy_context",)),
    Asked("fallback", (False,), ("missing_thread",)),
    Asked("fallback", (False,), ("extra_search",)),
    Asked("none", (), ("missing_thread",)),
    Asked("fallback", (False,), asked="raw"),
)
KNOWN = {
    "thread_hit_rate": (4, 7),
    "fallback_vector_rate": (3, 7),
    "context_sufficiency_rate": (1, 3),
    "wrong_thread_rate": (1, 4),
    "missing_thread_rate": (2, 7),
    "noisy_context_rate": (1, 8),
    "agent_extra_search_rate": (2, 7),
    "user_reject_rate": (1, 5),
}


@pytest.fixture(scope="module")
def events(cluster: Cluster, migrated_template: Database) -> Iterator[Database]:
    with fresh_database(cluster, template=migrated_template.name) as database:
        older_partition(database, 1, "retrieval_metric_event")  # three days ago on the first
        yield database


def written(database: Database, answers: Sequence[Asked]) -> None:
    """These answers and what was said of the first pack of each, as the only events there are."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("truncate brain.retrieval_metric_event")
        for number, answer in enumerate(answers):
            _write(connection, answer, noted=NOON + timedelta(seconds=number))


def _write(connection: psycopg.Connection[Any], answer: Asked, noted: datetime) -> None:
    query, packs = uuid4(), [(uuid4(), uuid4() if thread else None) for thread in answer.threads]
    rows: list[tuple[UUID, str, UUID | None, UUID | None]] = [(query, "query", None, None)]
    rows += [(uuid4(), "pack", pack, thread) for pack, thread in packs]
    rows += [(uuid4(), kind, *(packs[0] if packs else (None, None))) for kind in answer.said]
    for one, kind, pack, thread in rows:
        connection.execute(
            "insert into brain.retrieval_metric_event (id, at, noted_at, kind, query_id,"
            " request_id, consumer, audience, profile, policy_digest, asked, mode, again, pack_id,"
            " thread_id)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, 'p', 'd', %s, %s, %s, %s, %s)",
            [
                one,
                NOON - timedelta(days=answer.days_ago),
                noted,
                kind,
                query,
                answer.request or str(query),
                "a" * 64,
                answer.audience,
                answer.asked,
                answer.mode,
                answer.again and kind in {"query", "pack"},
                pack,
                thread,
            ],
        )


def rates(database: Database) -> dict[tuple[int, str, str], tuple[int, int]]:
    """Days ago, audience and metric -> numerator and denominator, from the fresh rollup."""
    with psycopg.connect(dsn_for(METRIC, database.url, database.secret), autocommit=True) as keeper:
        keeper.execute("select brain.refresh_metrics()")
    with psycopg.connect(database.url) as connection:
        return {
            ((NOON.date() - day).days, audience, metric): (numerator, denominator)
            for day, audience, metric, numerator, denominator in connection.execute(
                "select day, audience, metric, numerator, denominator"
                " from brain.retrieval_metric_aggregate"
            )
        }


def test_every_rate_has_the_counts_that_the_events_say(events: Database) -> None:
    written(events, FIXTURE)
    found = rates(events)
    assert {metric: found[0, "customer", metric] for metric in METRICS} == KNOWN
    assert set(KNOWN) == set(METRICS)
    assert len(found) == len(METRICS)


def test_what_is_said_later_counts_for_the_day_of_the_answer(events: Database) -> None:
    """The event of three days ago was noted today, as all of them."""
    written(events, [Asked("single", (True,), ("sufficient",), days_ago=3), HIT])
    found = rates(events)
    assert found[3, "customer", "context_sufficiency_rate"] == (1, 1)
    assert (0, "customer", "context_sufficiency_rate") not in found


def test_audiences_are_counted_apart(events: Database) -> None:
    written(events, [HIT, Asked("none", audience="employee")])
    found = rates(events)
    assert found[0, "customer", "thread_hit_rate"] == (1, 1)
    assert found[0, "employee", "thread_hit_rate"] == (0, 1)


def test_an_answer_that_was_made_again_counts_once_and_as_it_left(events: Database) -> None:
    first = Asked("single", (True,), request="one")
    second = Asked("fallback", (False,), request="one", again=True)
    other = Asked("single", (True,), request="other")
    written(events, [first, second, other])
    found = rates(events)
    assert found[0, "customer", "thread_hit_rate"] == (1, 2)
    assert found[0, "customer", "noisy_context_rate"] == (0, 2)


def test_saying_the_same_of_a_pack_twice_counts_once(events: Database) -> None:
    written(events, [Asked("single", (True,), ("noisy_context", "noisy_context"))])
    assert rates(events)[0, "customer", "noisy_context_rate"] == (1, 1)


kinds = st.sampled_from(
    ("sufficient", "extra_search", "wrong_thread", "rejected_thread", "noisy_context")
)


@st.composite
def answers(draw: st.DrawFn) -> Asked:
    mode = draw(st.sampled_from(("single", "multi", "fallback", "none")))
    threads = {"single": (True,), "multi": (True, True), "fallback": (False,), "none": ()}[mode]
    said = tuple(draw(st.sets(kinds, max_size=3))) if threads else ()
    asked = draw(st.sampled_from(("auto", "raw"))) if mode in {"fallback", "none"} else "auto"
    return Asked(mode, threads, said, asked)


@settings(max_examples=20)
@given(many=st.lists(answers(), min_size=1, max_size=12))
def test_every_rate_is_a_part_of_its_whole_and_hits_and_fallbacks_share_theirs(
    events: Database, many: list[Asked]
) -> None:
    written(events, many)
    found = {metric: counts for (_, _, metric), counts in rates(events).items()}
    assert all(0 <= numerator <= denominator for numerator, denominator in found.values())
    resolved = [one for one in many if one.asked == "auto"]
    hits, of = found.get("thread_hit_rate", (0, 0))
    assert of == len(resolved)
    assert hits + found.get("fallback_vector_rate", (0, 0))[0] == of
