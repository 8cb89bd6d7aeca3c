"""A record that is refused for its content and narrows what is stored: nobody reads on.

Provenance: the law of labels (a record never becomes more visible by having a worse label).
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from retrieval.ingest import Sort
from retrieval.stores.activation import activate
from retrieval.stores.roles import POLICY, dsn_for
from tests.retrieval.ingest.bench import GOOD, Bench, thread, unit

STAFF = {"visibility": "employee"}
LONG = "x" * 501


@pytest.fixture
def live(bench: Bench) -> Bench:
    """A database in which the default policy is active."""
    dsn = dsn_for(POLICY, bench.database.url, bench.database.secret)
    with psycopg.connect(dsn, autocommit=True) as connection:
        activate(connection, bench.snapshot)
    return bench


def readers(bench: Bench, table: str = "unit") -> dict[str, str]:
    """Address -> visibility in effect, or `nobody`."""
    name = "term" if table == "label" else "canonical_address"
    return dict(
        bench.all(
            f"select {name}, case when class_id = -1 then 'nobody' else visibility end"
            f" from brain.{table} where deleted_at is null"
        )
    )


FAULTS: dict[str, dict[str, Any]] = {
    "title too long": {"title": LONG},
    "no title": {"title": ...},
    "body is no text": {"body": 7},
    "unknown field": {"tittle": "T"},
    "no thread": {"thread": "two words"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_label_of_a_refused_record_narrows_its_unit(live: Bench, fault: str) -> None:
    """Its text stays the old one."""
    live.run([unit()])
    report = live.run([unit(**STAFF, **FAULTS[fault])])
    assert {one.sort for one in report.reasons} == {Sort.RECORD}
    assert readers(live) == {"a/1": "employee"}
    assert live.one("select title, current_revision from brain.unit") == ("T", 1)


def test_refused_record_whose_label_cannot_be_read_closes_its_unit(live: Bench) -> None:
    unreadable: list[dict[str, Any]] = [{"visibility": "VIPs"}, {"visibility": ...}]
    for number, words in enumerate(unreadable, 1):
        address = f"a/{number}"
        live.run([unit(address)])
        live.run([unit(address, title=LONG, **words)])
        assert readers(live)[address] == "nobody"


def test_refused_record_opens_nothing_and_makes_nothing(live: Bench) -> None:
    live.run([unit(**STAFF)])
    report = live.run([unit(title=LONG), unit("a/2", title=LONG)])
    assert readers(live) == {"a/1": "employee"}
    assert [(one.address, one.rejected) for one in report.waiting] == [("a/1", False)]


def test_refused_record_says_nothing_of_what_another_source_brought(live: Bench) -> None:
    live.run([unit()], origin="theirs")
    live.run([unit(**STAFF, title=LONG)], origin="ours")
    assert readers(live) == {"a/1": "public"}


def test_refused_record_counts_for_nothing_beside_a_good_one(live: Bench) -> None:
    """Of two records with one address the one that can be stored speaks, wherever it stands."""
    for lines in ([unit(), unit(**STAFF, title=LONG)], [unit(**STAFF, title=LONG), unit()]):
        live.run(lines)
        assert readers(live) == {"a/1": "public"}


def test_refused_record_that_keeps_its_label_keeps_it(live: Bench) -> None:
    live.run([unit()])
    kept = dict.fromkeys(GOOD, ...)
    live.run([unit(title=LONG, keep_label=True, **kept)])
    assert readers(live) == {"a/1": "public"}


def test_thread_and_term_and_removal_are_held_to_the_same(live: Bench) -> None:
    label = {name: word for name, word in GOOD.items() if name != "lifecycle_stage"}
    term = {"sort": "label", "term": "refund", **label}
    live.run([thread(), term, unit()])
    live.run(
        [
            thread(**STAFF, aliases=7),
            {**term, **STAFF, "aliases": 7},
            {"sort": "deletion", "address": "a/1", "why": "old"},
        ]
    )
    assert readers(live, "thread") == {"t/1": "employee"}
    assert readers(live, "label") == {"refund": "employee"}
    assert readers(live) == {"a/1": "nobody"}


def test_document_that_is_refused_narrows_its_sections(live: Bench) -> None:
    made = {"id": "A", "title": "T", "sections": [{"id": "A#1", "text": "words"}], **GOOD}
    live.run([made])
    assert readers(live) == {"native/A#1": "public"}
    for change in ({"title": LONG}, {"sections": [{"id": "A#1", "text": 7}]}):
        live.run([made])
        _widen(live)
        live.run([{**made, **STAFF, **change}])
        assert readers(live) == {"native/A#1": "employee"}


def _widen(bench: Bench) -> None:
    """As somebody approved it."""
    with psycopg.connect(bench.database.url) as connection:
        connection.execute("update brain.unit set visibility = 'public', wish = null")
