"""What becomes of single records: taken, changed, quarantined; nothing coerced, nothing lost.

Source: the issue's point 8 and its "every facet corrupted eight ways".
"""

from __future__ import annotations

import json
import os

from policies.vocabulary import FACETS
from retrieval.embed.hashing import HashingEmbedder
from retrieval.ingest import Exit, Outcome, Report, Sort, run
from retrieval.ingest.identity import unit_id
from retrieval.ingest.report import Reason
from tests.retrieval.ingest.bench import GOOD, Bench, Line, thread, unit

EIGHT = {
    "missing": ...,
    "null": None,
    "empty": "",
    "mis-cased": "PUBLIC",
    "padded": " public ",
    "list": ["public"],
    "object": {"value": "public"},
    "unknown": "everyone",
}


def test_a_good_unit_gets_its_class_its_words_and_its_vector(bench: Bench) -> None:
    """The class is the database's, looked up from the six words."""
    embedder = HashingEmbedder(16)
    report = bench.run([unit()], embedder=embedder)
    assert (report.accepted, report.quarantined, report.exit_code) == (1, 0, Exit.CLEAN)
    found = bench.one("select id, class_id, current_revision from brain.unit")
    assert found == (unit_id("a/1"), bench.snapshot.vocabulary.class_id(GOOD), 1)
    assert bench.one("select model, length(vector) from brain.embedding") == ("hashing-16", 32)
    terms = bench.one("select cardinality(lexical_terms), body from brain.unit_revision")
    assert terms == (3, "words here")  # the title is a word too


def test_a_corrupt_facet_leaves_a_unit_without_class_and_listed(bench: Bench) -> None:
    """Six facets, eight ways, one unit each; the visible set (class 0 and up) stays empty.

    The units belong to a public thread: what is missing is not filled from there.
    """
    corrupt = {
        f"a/{facet}/{way}": (facet, value) for facet in FACETS for way, value in EIGHT.items()
    }
    lines = [thread()]
    lines += [unit(address, thread="t/1", **{f: v}) for address, (f, v) in corrupt.items()]
    report = bench.run(lines)
    assert report.of(Outcome.QUARANTINED, Sort.UNIT) == len(corrupt)
    assert report.exit_code == Exit.QUARANTINED
    expected = {(address, facet) for address, (facet, _) in corrupt.items()}
    assert {(reason.address, reason.field) for reason in report.reasons} == expected
    assert bench.all("select canonical_address from brain.unit where class_id >= 0") == []
    assert {(address, facet) for _, address, facet, _ in bench.open_quarantine()} == expected


def test_a_malformed_compartment_puts_a_unit_out_of_everyones_reach(bench: Bench) -> None:
    """A compartment has no default; `*` is never implied."""
    values = [..., None, "", " * ", "a b", ["*"], 7, "A" * 99]
    corrupt = {
        f"a/{field}/{number}": (field, value)
        for field in ("tenant", "jurisdiction")
        for number, value in enumerate(values)
    }
    report = bench.run([unit(address, **{f: v}) for address, (f, v) in corrupt.items()])
    assert report.quarantined == len(corrupt)
    found = bench.all("select canonical_address, tenant, jurisdiction, class_id from brain.unit")
    assert {row[0]: row[1:] for row in found} == {
        address: ("?", "*", -1) if field == "tenant" else ("*", "?", -1)
        for address, (field, _) in corrupt.items()
    }
    listed = {(address, field) for _, address, field, _ in bench.open_quarantine()}
    assert {(address, field) for address, (field, _) in corrupt.items()} <= listed


def test_a_time_that_no_clock_can_show_is_refused(bench: Bench) -> None:
    """Postgres takes the year 0, and nobody who reads the row again in Python survives it."""
    ends = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59+00:00"]
    lines = [unit(f"a/{number}", active_at=end) for number, end in enumerate(ends)]
    report = bench.run([*lines, unit("a/good", active_at="1970-01-01T00:00:00Z")])
    assert (report.accepted, report.quarantined) == (1, len(ends))
    assert {reason.field for reason in report.reasons} == {"active_at"}


def test_a_name_that_no_database_can_hold_stops_one_record_only(bench: Bench) -> None:
    """NUL and half surrogates in a field's own name, doubled ones too: told, written out."""
    bad = ["\\u0000", "\\ud800"]
    lines = [json.dumps(unit(f"a/{n}"))[:-1] + f', "{name}": 1}}' for n, name in enumerate(bad)]
    lines += [f'{{"{name}": 1, "{name}": 2}}' for name in bad]
    report = bench.run([*lines, unit("a/good")])
    assert (report.accepted, report.quarantined) == (1, 4)
    assert all(str(reason).isprintable() for reason in report.reasons)


def test_a_file_name_that_is_not_utf8_stops_one_record_only(bench: Bench) -> None:
    bench.run([unit("a/good")])
    (bench.folder / os.fsdecode(b"\xff.md")).write_text("no front matter")
    report = run(bench.folder, bench.native, dsn=bench.dsn)
    assert (report.unchanged, report.quarantined) == (1, 1)
    assert all(str(reason).isprintable() for reason in report.reasons)


def test_a_corrected_record_closes_what_was_open(bench: Bench) -> None:
    """The database's rows and ingest's own; resolved, not removed."""
    bench.run([unit(readiness="imlpemented", tenant="")])
    assert len(bench.open_quarantine()) == 2
    report = bench.run([unit()])
    assert (report.changed, report.exit_code) == (1, Exit.CLEAN)
    assert bench.open_quarantine() == set()
    assert bench.one("select class_id >= 0, current_revision from brain.unit") == (True, 1)


def test_a_worse_label_closes_a_unit_that_was_visible(bench: Bench) -> None:
    """A status that the mapping does not know takes the old class away, the words stay."""
    bench.run([unit()])
    report = bench.run([unit(readiness="who knows")])
    assert report.quarantined == 1
    assert bench.one("select class_id, readiness from brain.unit") == (-1, "who knows")


def test_the_second_run_writes_nothing(bench: Bench) -> None:
    """No revision, no outbox row, no vector, no quarantine row."""
    lines: list[Line] = [thread(), unit(thread="t/1"), unit("a/2", kind="nonsense"), "not json",
             {"sort": "edge", "from": "a/1", "to": "a/2", "relation": "mentions"}]  # fmt: skip
    embedder = HashingEmbedder(16)
    first = bench.run(lines, embedder=embedder)
    before = footprint(bench)
    second = bench.run(lines, embedder=embedder)
    assert footprint(bench) == before
    assert (first.accepted, second.accepted, second.changed) == (4, 0, 0)
    assert (first.quarantined, second.quarantined) == (2, 2)
    assert second.unchanged == first.accepted
    assert second.embedded == 0


def footprint(bench: Bench) -> list[tuple[object, ...]]:
    tables = ("unit", "unit_revision", "embedding", "thread", "thread_term", "thread_membership",
              "edge", "outbox", "quarantine", "lexicon_partial", "corpus_partial")  # fmt: skip
    return [bench.one(f"select count(*), max(xmin::text::bigint) from brain.{t}") for t in tables]


def test_other_words_are_a_new_revision_and_an_outbox_row(bench: Bench) -> None:
    """The old revision stays as history."""
    bench.run([unit()])
    assert bench.run([unit(body="other words")]).changed == 1
    assert bench.one("select current_revision, content_hash <> '' from brain.unit") == (2, True)
    assert bench.all("select revision, body from brain.unit_revision order by revision") == [
        (1, "words here"),
        (2, "other words"),
    ]
    assert bench.all("select op from brain.outbox order by seq") == [("content",), ("content",)]


def test_another_label_is_no_revision(bench: Bench) -> None:
    """Label and content are written by separate statements."""
    bench.run([unit()])
    assert bench.run([unit(publication_state="withdrawn")]).changed == 1
    assert bench.one("select current_revision, publication_state from brain.unit") == (
        1,
        "withdrawn",
    )
    assert bench.all("select op from brain.outbox order by seq") == [("content",), ("label",)]


def test_content_can_be_updated_without_touching_the_label(bench: Bench) -> None:
    """``keep_label``: a reviewer's narrowing outlives a sync of texts."""
    bench.run([unit()])
    narrowed = "update brain.unit set visibility = 'restricted', tenant = 'acme' returning 1"
    bench.all(narrowed)
    labels = dict.fromkeys(GOOD, ...)
    report = bench.run([unit(body="new", keep_label=True, **labels)])
    assert report.changed == 1
    found = bench.one("select visibility, tenant, current_revision from brain.unit")
    assert found == ("restricted", "acme", 2)


def test_a_label_cannot_be_kept_where_there_is_none(bench: Bench) -> None:
    """A new unit must say who may read it."""
    report = bench.run([unit(keep_label=True)])
    assert report.quarantined == 1
    assert bench.one("select count(*) from brain.unit") == (0,)


def test_a_blank_is_filled_from_a_thread_only_where_it_is_asked_for(bench: Bench) -> None:
    """``inherit`` names the facet; kind is never inherited."""
    lines = [
        unit("a/asks", visibility=..., inherit=["visibility"], thread="t/1"),
        unit("a/silent", visibility=..., thread="t/1"),
        unit("a/kind", kind=..., inherit=["kind"], thread="t/1"),
        unit("a/both", inherit=["visibility"], thread="t/1"),
        thread(visibility="partner"),
    ]
    report = bench.run(lines)
    classed = bench.all("select canonical_address from brain.unit where class_id >= 0")
    assert classed == [("a/asks",)]
    assert report.of(Outcome.ACCEPTED, Sort.UNIT) == 1
    assert report.of(Outcome.QUARANTINED, Sort.UNIT) == 3
    expected = {**GOOD, "visibility": "partner"}
    assert bench.one("select class_id from brain.unit where canonical_address = 'a/asks'") == (
        bench.snapshot.vocabulary.class_id(expected),
    )


def test_a_blank_that_no_thread_fills_is_reported(bench: Bench) -> None:
    """Only the database knows it, after the links."""
    report = bench.run([unit(visibility=..., inherit=["visibility"])])
    (reason,) = report.reasons
    assert (reason.place, reason.field, reason.reason) == ("s.jsonl:1", "visibility", "blank")
    assert report.exit_code == Exit.QUARANTINED


def test_a_deletion_is_a_tombstone_and_the_unit_can_come_back(bench: Bench) -> None:
    """The index is told of both."""
    bench.run([unit()])
    assert bench.run([{"sort": "deletion", "address": "a/1"}]).changed == 1
    assert bench.one("select deleted_at is not null from brain.unit") == (True,)
    assert bench.run([{"sort": "deletion", "address": "a/1"}]).unchanged == 1
    assert bench.run([unit()]).changed == 1
    assert bench.one("select deleted_at is null, current_revision from brain.unit") == (True, 2)
    ops = [op for (op,) in bench.all("select op from brain.outbox order by seq")]
    assert ops == ["content", "delete", "content"]


BAD_LINES: list[tuple[object, str]] = [
    ("{not json", "the line is not valid JSON"),
    ('{"sort": "unit", "sort": "unit"}', "the name `sort` is given twice"),
    ('{"a": NaN}', "the line is not valid JSON"),
    ("[1]", "the line is not a JSON object"),
    (b'{"a": "\xff"}', "the line is not UTF-8"),
    ("[" * 100_000, "the line is not valid JSON"),
    ({"sort": "nonsense"}, "not one of"),
    ({"sort": ["unit"]}, "not one of"),
    (unit(vsibility="public"), "unknown field"),
    (unit(title=...), "absent"),
    (unit(title=["T"]), "not text"),
    (unit(title="  "), "empty"),
    (unit(body=7), "not text"),
    (unit(body="nul \x00"), "holds a character that cannot be stored"),
    (unit(body="half \ud800"), "holds a character that cannot be stored"),
    (unit(address="with space"), "not an address"),
    (unit(address="e\u0301"), "not in Unicode normal form C"),
    (unit(address=""), "empty"),
    (unit(address="a" * 301), "not an address"),
    (unit(active_at="2026-01-31"), "not a time with its offset"),
    (unit(role="owner", thread="t/1"), "not one of"),
    ({"id": "d", "title": "D"}, "neither a list of sections nor a `text`"),
    ({"id": "d", "title": "D", "sections": []}, "neither a list of sections nor a `text`"),
    ({"id": "d", "title": "D", "text": "x", "links": []}, "not an object"),
]  # fmt: skip


def test_bad_lines_are_listed_with_place_and_reason_and_the_rest_is_taken(bench: Bench) -> None:
    """Each line between two good ones; nothing is lost, the run is complete."""
    lines: list[object] = [unit("a/first"), *(line for line, _ in BAD_LINES), unit("a/last")]
    report = bench.run(lines)  # type: ignore[arg-type]
    assert report.accepted == 2
    assert report.quarantined == len(BAD_LINES)
    by_place = {reason.place: reason.reason for reason in report.reasons}
    for number, (line, expected) in enumerate(BAD_LINES, start=2):
        said = by_place[f"s.jsonl:{number}"]
        # an empty list of links is an absent one; the label is what is wrong with that record
        assert expected in said or line == BAD_LINES[-1][0], (line, said)
    stored = bench.open_quarantine()
    assert {address for sort, address, *_ in stored if sort == "record"} == {
        reason.place for reason in report.reasons if reason.sort is Sort.RECORD
    }


def test_a_repaired_source_closes_its_record_rows(bench: Bench) -> None:
    """Rows of other sources stay open."""
    bench.run(["broken"])
    other = bench.write(["broken"], name="other.jsonl")
    from retrieval.ingest import run

    run(other, bench.native, dsn=bench.dsn)
    bench.run([unit()])
    assert {address for _, address, *_ in bench.open_quarantine()} == {"other.jsonl:1"}


def test_an_address_that_is_named_twice_counts_once(bench: Bench) -> None:
    """The second telling is refused, whatever it says; the first is named."""
    gone = {"sort": "deletion", "address": "a/1"}
    report = bench.run([unit(), unit(visibility="internal"), gone])
    assert (report.accepted, report.quarantined) == (1, 2)
    assert {reason.reason for reason in report.reasons} == {"named twice, first at s.jsonl:1"}
    assert bench.one("select visibility from brain.unit") == ("public",)


def test_a_link_to_nothing_is_listed(bench: Bench) -> None:
    """Both ends must be there; a link of a good pair is written."""
    lines = [
        unit(), unit("a/2"), thread(),
        {"sort": "edge", "from": "a/1", "to": "a/2", "relation": "implements"},
        {"sort": "edge", "from": "a/1", "to": "a/9", "relation": "implements"},
        {"sort": "membership", "thread": "t/9", "unit": "a/1", "role": "canonical"},
        {"sort": "membership", "thread": "t/1", "unit": "a/2", "role": "report",
         "confidence": 0.5, "status": "needs_human"},
        {"sort": "artifact", "thread": "t/9", "title": "x", **GOOD},
        {"sort": "artifact", "thread": "t/1", "title": "A report", **GOOD},
        {"sort": "label", "term": "billing", "units": ["a/1"], "threads": ["t/1", "t/9"],
         **{name: word for name, word in GOOD.items() if name != "lifecycle_stage"}},
    ]  # fmt: skip
    report = bench.run(lines)
    assert sorted((r.place, r.field, r.value) for r in report.reasons) == [
        ("s.jsonl:10", "threads", "t/9"),
        ("s.jsonl:5", "to", "a/9"),
        ("s.jsonl:6", "thread", "t/9"),
        ("s.jsonl:8", "thread", "t/9"),
    ]
    assert bench.one("select relation from brain.edge") == ("implements",)
    assert bench.one("select role, status, confidence from brain.thread_membership") == (
        "report", "needs_human", 0.5,
    )  # fmt: skip
    assert bench.one("select title, class_id >= 0 from brain.expected_artifact") == (
        "A report",
        True,
    )
    assert bench.one("select count(*) from brain.unit_label") == (1,)
    assert bench.one("select count(*) from brain.thread_label") == (1,)


def test_a_reviewers_verdict_on_a_link_outlives_a_sync(bench: Bench) -> None:
    """A source that does not judge a link does not un-judge it."""
    lines = [thread(), unit(thread="t/1")]
    bench.run(lines)
    bench.all("update brain.thread_membership set status = 'wrong_link' returning 1")
    bench.run(lines)
    bench.run([thread(), unit(thread="t/1", role="report")])
    found = bench.one("select status, role from brain.thread_membership")
    assert found == ("wrong_link", "report")


def test_a_thread_is_found_by_its_new_words_only(bench: Bench) -> None:
    """Postings follow the title, aliases and description."""
    bench.run([thread(title="alpha", aliases=["beta"])])
    before = {term for (term,) in bench.all("select term from brain.thread_term")}
    report = bench.run([thread(title="gamma", aliases=["beta"])])
    after = {term for (term,) in bench.all("select term from brain.thread_term")}
    assert report.changed == 1
    assert len(before) == len(after) == 2
    assert len(before & after) == 1


def test_a_report_reads_back_from_its_json(bench: Bench) -> None:
    """It is what a checkpoint keeps."""
    report = bench.run([unit(), unit("a/2", kind="x"), "broken"])
    again = Report.from_json(report.as_json())
    assert again == report
    assert "s.jsonl:3" in report.readable()


def test_a_reason_reads_as_one_sentence() -> None:
    """Place, object, field and word, reason; what is missing leaves no colon behind."""
    whole = Reason("s.jsonl:3", Sort.UNIT, "notes.shed", "visibility", "VIPs", "not one of ours")
    assert str(whole) == "s.jsonl:3: unit notes.shed: visibility `VIPs`: not one of ours"
    bare = Reason("b.md:1", Sort.RECORD, "", "", "", "the file has no front matter")
    assert str(bare) == "b.md:1: record: the file has no front matter"
