"""What becomes of labels that a source changes after they were in effect (issue 3, point 4)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import psycopg
import pytest

from policies.errors import InvalidPolicy
from policies.loader import parse_mapping
from policies.mapping import IngestMapping, Relabel
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from retrieval.ingest import Exit, IngestRefused, Sort
from retrieval.ingest.identity import unit_id
from retrieval.ingest.report import Waiting
from retrieval.stores.activation import activate
from retrieval.stores.roles import LABEL, POLICY, dsn_for
from tests.retrieval.ingest.bench import GOOD, Bench, thread, unit

STAFF = {"visibility": "employee"}
TERM = {name: word for name, word in GOOD.items() if name != "lifecycle_stage"}


def enforce(bench: Bench, snapshot: Snapshot) -> None:
    with psycopg.connect(
        dsn_for(POLICY, bench.database.url, bench.database.secret), autocommit=True
    ) as connection:
        activate(connection, snapshot)


@pytest.fixture
def live(bench: Bench) -> Bench:
    """A database in which the default policy is active."""
    enforce(bench, bench.snapshot)
    return bench


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """The default policy with one more line in the mapping `native`: it is trusted."""
    overlay = tmp_path_factory.mktemp("overlay")
    (overlay / "mappings").mkdir()
    text = (DEFAULT_FOLDER / "mappings" / "native.yaml").read_text()
    (overlay / "mappings" / "native.yaml").write_text(f"{text}\nrelabel: trusted\n")
    return load(DEFAULT_FOLDER, overlay)


def classes(bench: Bench) -> dict[str, str]:
    """What is in effect: address -> visibility, or `nobody`."""
    rows = bench.all(
        "select canonical_address, case class_id when -1 then 'nobody' else visibility end"
        " from brain.unit"
    )
    return dict(rows)


def events(bench: Bench) -> list[tuple[object, ...]]:
    return bench.all(
        "select layer, unit_count, cardinality(unit_ids), profile from gate.security_event"
        " where kind = 'label_widened' order by occurred_at"
    )


def approve_all(bench: Bench) -> int:
    """Everything that waits, by somebody else; how many that was."""
    waiting = bench.all("select id from gate.label_change where state = 'pending'")
    dsn = dsn_for(LABEL, bench.database.url, bench.database.secret)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for (change,) in waiting:
            connection.execute(
                "select gate.approve_label_change(%s, 'ann', 'r', 'ok', %s, %s)",
                [change, bench.snapshot.digest, sorted(bench.snapshot.vocabulary.profiles)],
            )
    return len(waiting)


# --- the mapping's default: approval -------------------------------------------------------------


def test_new_units_enter_as_labelled_and_later_wishes_wait(live: Bench) -> None:
    """The run says so and is no failure; the other record's change is not held up."""
    live.run([unit(**STAFF), unit("a/2", **STAFF)])
    report = live.run([unit(), unit("a/2", visibility="restricted")], author="carol")
    assert classes(live) == {"a/1": "employee", "a/2": "restricted"}
    (waiting,) = report.waiting
    assert (waiting.sort, waiting.address, waiting.rejected) == ("unit", "a/1", False)
    assert "customer" in waiting.opens_to
    assert (report.changed, report.unchanged, report.pending) == (1, 1, 1)
    assert report.exit_code is Exit.CLEAN
    assert report.as_json()["label_changes"]["pending"] == 1
    assert "label changes that are not in effect" in report.readable()
    assert live.one("select author, origin, mapping from gate.label_change") == (
        "carol", "native", "native",
    )  # fmt: skip


def test_repeating_the_wish_writes_nothing_and_reports_it_again(live: Bench) -> None:
    live.run([unit(**STAFF)])
    live.run([unit()])
    rows = "select xmin::text from brain.unit union all select xmin::text from gate.label_change"
    before = live.all(rows)
    report = live.run([unit()])
    assert live.all(rows) == before
    assert (report.unchanged, report.pending) == (1, 1)


def test_a_source_that_takes_its_wish_back_has_none(live: Bench) -> None:
    """Also when it goes back to exactly what is in effect: no column would change by that."""
    live.run([unit(**STAFF)])
    live.run([unit()])
    report = live.run([unit(**STAFF)])
    assert report.pending == 0
    assert live.all("select state from gate.label_change") == [("superseded",)]
    assert classes(live) == {"a/1": "employee"}


def test_text_and_stage_go_on_while_the_label_waits(live: Bench) -> None:
    live.run([unit(**STAFF)])
    report = live.run([unit(body="other words", lifecycle_stage="law")])
    assert (report.changed, report.pending) == (1, 1)
    found = live.one("select current_revision, lifecycle_stage, visibility from brain.unit")
    assert found == (2, "law", "employee")


def test_an_approved_wish_is_what_the_source_says(live: Bench) -> None:
    """The next run has nothing to do, and nothing to report."""
    live.run([unit(**STAFF), thread(**STAFF)])
    live.run([unit(), thread()])
    assert approve_all(live) == 2
    assert classes(live) == {"a/1": "public"}
    report = live.run([unit(), thread()])
    assert (report.unchanged, report.waiting) == (2, [])


def test_a_deletion_does_not_wash_a_label(live: Bench) -> None:
    """Bury and bring back with a wider label: the words come back, the label waits."""
    live.run([unit(**STAFF)])
    live.run([{"sort": "deletion", "address": "a/1"}])
    report = live.run([unit()])
    assert live.one("select deleted_at is null from brain.unit") == (True,)
    assert (classes(live), report.pending) == ({"a/1": "employee"}, 1)


def test_another_source_of_the_same_address_and_an_adoption_wash_no_label(live: Bench) -> None:
    live.run([unit(**STAFF)], origin="ours")
    theirs = live.run([unit()], origin="theirs", adopt=True)
    assert theirs.quarantined == 1
    live.all("update brain.unit set origin = 'unclaimed' returning 1")
    adopted = live.run([unit()], origin="theirs", adopt=True)
    assert (adopted.pending, classes(live)) == (1, {"a/1": "employee"})
    assert live.one("select origin from gate.label_change") == ("theirs",)


def test_a_thread_that_opens_asks_for_itself_and_then_for_its_units(live: Bench) -> None:
    """Each object is approved by itself; the units' author is the one who changed the thread."""
    inherits = {"visibility": ..., "inherit": ["visibility"], "thread": "t/1"}
    live.run([thread(**STAFF), unit(**inherits), unit("a/own", **STAFF, thread="t/1")])
    assert classes(live) == {"a/1": None, "a/own": "employee"}
    report = live.run([thread(), unit(**inherits)], author="carol")
    assert [one.address for one in report.waiting] == ["t/1"]
    approve_all(live)
    found = live.all("select object_id, author from gate.label_change where state = 'pending'")
    assert found == [(unit_id("a/1"), "carol")]
    expected = {**GOOD, **STAFF}
    assert live.one("select class_id from brain.unit where canonical_address = 'a/1'") == (
        live.snapshot.vocabulary.class_id(expected),
    )
    approve_all(live)
    assert live.one("select class_id from brain.unit where canonical_address = 'a/1'") == (
        live.snapshot.vocabulary.class_id(GOOD),
    )


def test_terms_and_artifacts_wait_like_units(live: Bench) -> None:
    """All four governed sorts go through the same statements."""

    def lines(visibility: str) -> list[dict[str, object]]:
        words = {"visibility": visibility}
        return [
            thread(),
            {"sort": "label", "term": "billing", **TERM, **words},
            {"sort": "artifact", "thread": "t/1", "title": "A report", **GOOD, **words},
        ]

    live.run(lines("employee"))
    report = live.run(lines("public"))
    assert [(one.sort, one.address) for one in report.waiting] == [
        ("artifact", "A report"), ("label", "billing"),
    ]  # fmt: skip
    assert approve_all(live) == 2
    assert live.run(lines("public")).waiting == []


def test_a_rejected_wish_stays_in_the_report(live: Bench) -> None:
    live.run([unit(**STAFF)])
    live.run([unit()])
    (change,) = live.one("select id from gate.label_change")
    dsn = dsn_for(LABEL, live.database.url, live.database.secret)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select gate.reject_label_change(%s, 'ann', 'r', 'no')", [change])
    report = live.run([unit()])
    assert [str(one).split(":")[1] for one in report.waiting] == [" rejected"]
    assert report.pending == 0


def test_what_one_source_wishes_is_not_told_to_another(live: Bench) -> None:
    live.run([unit(**STAFF)], origin="ours")
    live.run([unit()], origin="ours")
    assert live.run([unit("b/1")], origin="theirs").waiting == []


# --- a trusted mapping ---------------------------------------------------------------------------


def test_a_trusted_mapping_widens_at_once_with_one_event_a_batch(
    bench: Bench, trusting: Snapshot
) -> None:
    """Sixty units in one batch: one event that counts all and names fifty."""
    enforce(bench, trusting)
    mapping = trusting.mappings["native"]
    bench.run([unit(f"a/{n}", **STAFF) for n in range(60)], mapping=mapping)
    assert events(bench) == []
    report = bench.run([unit(f"a/{n}") for n in range(60)], mapping=mapping)
    assert set(classes(bench).values()) == {"public"}
    assert (report.changed, report.waiting) == (60, [])
    ((layer, count, named, profile),) = events(bench)
    assert (layer, count, named) == ("trusted_mapping", 60, 50)
    assert "customer" in str(profile)
    assert bench.all("select distinct state, approver from gate.label_change") == [
        ("approved", "mapping:native")
    ]


@pytest.mark.parametrize("other", ["not trusted", "another text", "another name", "another policy"])
def test_only_the_very_mapping_that_the_active_policy_trusts_is_trusted(
    bench: Bench, trusting: Snapshot, other: str
) -> None:
    """Not by its name, not by its word about itself, and only while that policy is active."""
    enforce(bench, trusting)
    trusted = trusting.mappings["native"]
    claimed: IngestMapping = {
        "not trusted": bench.snapshot.mappings["native"],
        "another text": dataclasses.replace(trusted, inherited=frozenset()),
        "another name": dataclasses.replace(trusted, name="other"),
        "another policy": trusted,
    }[other]
    assert trusted.relabel is Relabel.TRUSTED
    bench.run([unit(**STAFF)], mapping=claimed, origin="s")
    if other == "another policy":
        enforce(bench, bench.snapshot)
    report = bench.run([unit()], mapping=claimed, origin="s")
    assert (report.pending, classes(bench)) == (1, {"a/1": "employee"})
    assert events(bench) == []


def test_a_trusted_mapping_widens_nothing_that_another_one_labelled(
    bench: Bench, trusting: Snapshot
) -> None:
    """Same source, other mapping: what the reviewers trusted did not label it."""
    enforce(bench, trusting)
    other = dataclasses.replace(bench.snapshot.mappings["native"], name="other")
    bench.run([unit(**STAFF)], mapping=other, origin="s")
    report = bench.run([unit()], mapping=trusting.mappings["native"], origin="s")
    assert (report.pending, classes(bench)) == (1, {"a/1": "employee"})


def test_trust_that_comes_later_applies_what_waited(bench: Bench, trusting: Snapshot) -> None:
    """The mapping's next run does it, though its words are the same."""
    enforce(bench, bench.snapshot)
    bench.run([unit(**STAFF)])
    assert bench.run([unit()]).pending == 1
    enforce(bench, trusting)
    report = bench.run([unit()], mapping=trusting.mappings["native"])
    assert (report.waiting, classes(bench)) == ([], {"a/1": "public"})
    states = {state for (state,) in bench.all("select state from gate.label_change")}
    assert states == {"superseded", "approved"}


def test_a_batch_that_fails_leaves_neither_label_nor_event(
    bench: Bench, trusting: Snapshot
) -> None:
    """Fault injection: the event is written last, in the batch's own transaction."""
    enforce(bench, trusting)
    mapping = trusting.mappings["native"]
    bench.run([unit(**STAFF)], mapping=mapping)
    with psycopg.connect(bench.database.url) as connection:
        connection.execute(
            "alter table gate.security_event add constraint broken check (kind <> 'label_widened')"
        )
    with pytest.raises(IngestRefused):
        bench.run([unit()], mapping=mapping)
    assert classes(bench) == {"a/1": "employee"}
    assert bench.all("select from gate.label_change") == []


def test_a_mapping_s_word_about_relabelling_is_one_of_two(tmp_path: Path) -> None:
    """And absent it is `approval`."""
    text = (DEFAULT_FOLDER / "mappings" / "native.yaml").read_text()
    vocabulary = load().vocabulary
    for word, expected in (("approval", Relabel.APPROVAL), ("trusted", Relabel.TRUSTED)):
        (tmp_path / "native.yaml").write_text(f"{text}\nrelabel: {word}\n")
        assert parse_mapping(tmp_path / "native.yaml", vocabulary).relabel is expected
    for word in ("Trusted", "yes", "[trusted]", "''"):
        (tmp_path / "native.yaml").write_text(f"{text}\nrelabel: {word}\n")
        with pytest.raises(InvalidPolicy):
            parse_mapping(tmp_path / "native.yaml", vocabulary)
    assert load().mappings["native"].relabel is Relabel.APPROVAL


def test_a_waiting_label_says_what_it_does() -> None:
    told = str(Waiting(Sort.UNIT, "a/1", rejected=False, closed=True, opens_to=("customer",)))
    assert told == "unit a/1: pending: opens to customer; nobody reads it until then"
