"""Two sources in one database: none changes, deletes, relabels or links what the other brought.

Source: an attack on this repository. With ``native`` a thread record of a second file relabelled
a foreign thread, and the units that inherit from it opened.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from retrieval.ingest import IngestRefused, Outcome, Report, Sort
from retrieval.ingest.ownership import FOREIGN
from tests.peps import documents
from tests.peps import mapping as peps_mapping
from tests.retrieval.ingest.bench import GOOD, Bench, Line, thread, unit

LABEL = {name: word for name, word in GOOD.items() if name != "lifecycle_stage"}
TABLES = ("unit", "unit_revision", "embedding", "thread", "thread_term", "thread_membership",
          "edge", "label", "unit_label", "thread_label", "expected_artifact", "outbox")  # fmt: skip

OURS: list[Line] = [
    thread(visibility="restricted"),
    unit(thread="t/1", visibility=..., inherit=["visibility"]),
    unit("a/2"),
    {"sort": "edge", "from": "a/1", "to": "a/2", "relation": "mentions"},
    {"sort": "label", "term": "billing", "units": ["a/2"], **LABEL},
    {"sort": "artifact", "thread": "t/1", "title": "A report", **GOOD},
]


def stored(bench: Bench) -> list[list[tuple[Any, ...]]]:
    return [bench.all(f"select t::text, xmin::text from brain.{t} t order by 1") for t in TABLES]


@pytest.fixture
def held(bench: Bench) -> Bench:
    """A database in which the source ``ours`` has one of everything."""
    report = bench.run(OURS, origin="ours")
    assert not report.reasons
    return bench


def refused(report: Report) -> set[str]:
    return {reason.reason for reason in report.reasons}


def test_an_object_keeps_the_name_of_the_source_that_brought_it(held: Bench) -> None:
    """Without a name it is the mapping's."""
    held.run([thread("t/9"), unit("a/9")])
    for table in ("unit", "thread", "label", "expected_artifact"):
        found = {origin for (origin,) in held.all(f"select origin from brain.{table}")}
        assert found == ({"ours", "native"} if table in ("unit", "thread") else {"ours"})


def test_a_foreign_thread_record_opens_no_unit_that_inherits(held: Bench) -> None:
    """The attack itself."""
    before = stored(held)
    report = held.run([thread(visibility="public")], origin="theirs")
    assert stored(held) == before
    assert refused(report) == {FOREIGN}
    effective = {**GOOD, "visibility": "restricted"}
    found = held.one("select class_id from brain.unit where canonical_address = 'a/1'")
    assert found == (held.snapshot.vocabulary.class_id(effective),)


STRANGE: dict[str, Line] = {
    "overwritten unit": unit(body="other words"),
    "relabelled unit": unit(visibility="public"),
    "kept label": unit(body="x", keep_label=True, **dict.fromkeys(GOOD, ...)),
    "deleted unit": {"sort": "deletion", "address": "a/1"},
    "renamed thread": thread(title="Theirs", visibility="restricted"),
    "relabelled term": {"sort": "label", "term": "billing", **LABEL, "visibility": "internal"},
    "term put elsewhere": {"sort": "label", "term": "billing", "units": ["b/1"], **LABEL},
    "artifact": {"sort": "artifact", "thread": "t/1", "title": "A report", **GOOD,
                 "visibility": "internal"},
    "new artifact": {"sort": "artifact", "thread": "t/1", "title": "Another", **GOOD},
    "foreign unit in an own thread": {"sort": "membership", "thread": "t/b", "unit": "a/1",
                                      "role": "canonical"},
    "own unit in a foreign thread": {"sort": "membership", "thread": "t/1", "unit": "b/1",
                                     "role": "canonical"},
    "judged link": {"sort": "membership", "thread": "t/1", "unit": "a/1", "role": "report",
                    "status": "wrong_link"},
    "edge": {"sort": "edge", "from": "a/1", "to": "b/1", "relation": "implements"},
    "weaker edge": {"sort": "edge", "from": "a/1", "to": "a/2", "relation": "mentions",
                    "confidence": 0.1},
    "own term on a foreign unit": {"sort": "label", "term": "mine", "units": ["a/1"], **LABEL},
    "own term on a foreign thread": {"sort": "label", "term": "mine", "threads": ["t/1"], **LABEL},
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_record_about_a_foreign_object_is_quarantined_and_changes_nothing(
    held: Bench, name: str
) -> None:
    """Every sort of record and link; what is the source's own beside it is taken."""
    own: list[Line] = [thread("t/b"), unit("b/1")]
    if "mine" in str(STRANGE[name]):
        own.append({"sort": "label", "term": "mine", **LABEL})
    held.run(own, origin="theirs")
    before = stored(held)
    lines = [line for line in own if "mine" not in str(line)]
    report = held.run([*lines, STRANGE[name]], origin="theirs")
    assert stored(held) == before
    assert refused(report) == {FOREIGN}
    assert report.of(Outcome.QUARANTINED) == 1
    assert {reason.place for reason in report.reasons} == {"s.jsonl:3"}


def test_a_refusal_tells_nothing_of_the_other_object(bench: Bench) -> None:
    """Not its words, even where the database lists them as a fault of their own."""
    bench.run([thread(title="Alpha plan", readiness="codeword")], origin="ours")
    report = bench.run([thread(title="Mine")], origin="theirs")
    (reason,) = report.reasons
    assert (reason.sort, reason.address, reason.field, reason.value) == (
        Sort.RECORD, "t/1", "", "",
    )  # fmt: skip
    assert reason.reason == "belongs to another source"
    assert "codeword" not in report.readable()
    assert "Alpha" not in report.readable()
    assert "ours" not in report.readable()


def test_an_edge_may_point_to_a_foreign_unit(held: Bench) -> None:
    """It belongs to where it starts; a reader needs both ends."""
    edge = {"sort": "edge", "from": "b/1", "to": "a/2", "relation": "mentions"}
    report = held.run([unit("b/1"), edge], origin="theirs")
    assert report.of(Outcome.ACCEPTED, Sort.EDGE) == 1


def test_what_another_source_buried_stays_buried(held: Bench) -> None:
    held.run([{"sort": "deletion", "address": "a/2"}], origin="ours")
    assert refused(held.run([unit("a/2")], origin="theirs")) == {FOREIGN}
    assert held.run([unit("a/2")], origin="ours").changed == 1


def test_a_document_absorbs_no_thread_of_another_source(bench: Bench, shared_data: Any) -> None:
    """One mapping, two sources: the successor is theirs, what it says to replace is not."""
    new = next(d for d in documents(shared_data) if d["id"] == "PEP-3333")
    old = next(d for d in documents(shared_data) if d["id"] == "PEP-0333")
    chosen = peps_mapping(bench.snapshot)
    bench.run([old], mapping=chosen, origin="ours")
    before = bench.all("select xmin::text from brain.unit where origin = 'ours' order by 1")
    report = bench.run([new], mapping=chosen, origin="theirs")
    assert [(r.value, r.reason) for r in report.reasons] == [("peps/PEP-0333", FOREIGN)]
    after = bench.all("select xmin::text from brain.unit where origin = 'ours' order by 1")
    assert after == before
    supporting = "select count(*) from brain.thread_membership where role = 'supporting'"
    assert bench.one(supporting) == (0,)


def test_a_checkpoint_of_one_source_is_none_of_another(bench: Bench) -> None:
    """Same bytes, same mapping: what was done under one name was not done under the other."""

    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stopped

    lines = [unit(f"a/{n}") for n in range(12)]
    with pytest.raises(Stopped):
        bench.run(lines, batch=5, on_progress=stop, origin="ours")
    report = bench.run(lines, batch=5, origin="theirs")
    assert (report.resumed_at, report.quarantined, report.accepted) == (0, 5, 7)


# --- what no source has claimed yet ---------------------------------------------------------

UNCLAIM = "update brain.{} set origin = 'unclaimed' returning 1"


def test_unclaimed_objects_are_taken_only_by_an_explicit_adoption(held: Bench) -> None:
    """What was stored before sources had names belongs to nobody, so nobody gets it by chance."""
    for table in ("unit", "thread", "label", "expected_artifact"):
        held.all(UNCLAIM.format(table))
    assert refused(held.run(OURS, origin="ours")) == {FOREIGN}
    report = held.run(OURS, origin="ours", adopt=True)
    assert not report.reasons
    assert not held.all("select from brain.unit where origin <> 'ours'")
    assert held.run(OURS, origin="ours").unchanged == sum(report.counts.values())
    assert refused(held.run([thread(), unit()], origin="theirs", adopt=True)) == {FOREIGN}


@pytest.mark.parametrize("name", ["", "Ours", "a b", "-a", "a" * 65, "a\n", "unclaimed", "é"])
def test_a_name_that_is_no_token_is_one_clear_line(bench: Bench, name: str) -> None:
    """`unclaimed` is nobody's."""
    with pytest.raises(IngestRefused) as caught:
        bench.run([unit()], origin=name)
    assert caught.value.code == "source_name"
    assert bench.all("select from brain.unit") == []


# --- the database itself --------------------------------------------------------------------

WRITES = {
    "content": "update brain.unit set title = 'x'",
    "label": "update brain.thread set visibility = 'public'",
    "term": "update brain.label set deleted_at = now()",
    "artifact": "update brain.expected_artifact set title = 'x'",
    "taking": "update brain.unit set origin = current_setting('gw.origin', true)",
    "revision": "insert into brain.unit_revision (unit_id, revision, title, body, body_sha256)"
    " select id, 2, 't', 'b', 's' from brain.unit",
    "lexical form": "update brain.unit_revision set lexical_terms = '{}', lexical_weights = '{}'",
    "vector": "insert into brain.embedding select id, 1, 'm', '\\x00' from brain.unit",
    "posting": "insert into brain.thread_term (term, thread_id, weight)"
    " select 1, id, 1 from brain.thread",
    "postings gone": "delete from brain.thread_term",
    "link": "insert into brain.thread_membership (thread_id, unit_id, role)"
    " select t.id, u.id, 'report' from brain.thread t, brain.unit u where u.title = 'T'"
    " and u.canonical_address = 'a/2'",
    "judged": "update brain.thread_membership set status = 'wrong_link'",
    "link gone": "delete from brain.thread_membership",
    "edge": "insert into brain.edge (id, src, dst, relation)"
    " select gen_random_uuid(), id, id, 'x' from brain.unit limit 1",
    "edge gone": "delete from brain.edge",
    "term on a unit": "insert into brain.unit_label select l.id, u.id from brain.label l,"
    " brain.unit u where u.canonical_address = 'a/1'",
    "term off a unit": "delete from brain.unit_label",
    "term on a thread": "insert into brain.thread_label"
    " select l.id, t.id from brain.label l, brain.thread t",
    "new artifact": "insert into brain.expected_artifact (id, thread_id, title, lifecycle_stage,"
    " tenant, jurisdiction) select gen_random_uuid(), id, 'x', 'report', '*', '*'"
    " from brain.thread",
}


@pytest.mark.parametrize("at_work", [None, "", "theirs", "unclaimed"])
def test_the_database_refuses_the_writer_without_the_right_name(
    held: Bench, at_work: str | None
) -> None:
    """Whatever code forgets: every table that ingest may write, no name or another one."""
    before = stored(held)
    with psycopg.connect(held.dsn, autocommit=True) as connection:
        if at_work is not None:
            connection.execute("select set_config('gw.origin', %s, false)", [at_work])
        for statement in WRITES.values():
            with pytest.raises(errors.InsufficientPrivilege, match="source"):
                connection.execute(statement.encode())
    assert stored(held) == before


def test_the_database_lets_a_source_write_what_is_its_own(held: Bench) -> None:
    """Each of the same statements; none can give an object away."""
    with psycopg.connect(held.dsn, autocommit=True) as connection:
        connection.execute("select set_config('gw.origin', 'ours', false)")
        with pytest.raises(errors.InsufficientPrivilege, match="source"):
            connection.execute("update brain.unit set origin = 'theirs'")
        for statement in WRITES.values():
            with connection.transaction(force_rollback=True):
                connection.execute(statement.encode())


def test_the_database_gives_the_unclaimed_away_only_on_demand(held: Bench) -> None:
    held.all(UNCLAIM.format("unit"))
    take = "update brain.unit set origin = 'theirs'"
    with psycopg.connect(held.dsn, autocommit=True) as connection:
        connection.execute("select set_config('gw.origin', 'theirs', false)")
        with pytest.raises(errors.InsufficientPrivilege, match="source"):
            connection.execute(take)
        connection.execute("select set_config('gw.adopt', 'on', false)")
        connection.execute(take)
        with pytest.raises(errors.InsufficientPrivilege, match="source"):
            connection.execute("update brain.thread set origin = 'theirs'")
