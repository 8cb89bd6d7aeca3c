"""Whole runs: killed and resumed, refused, folders of Markdown, mapped documents."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from retrieval.ingest import Exit, IngestRefused, Outcome, Sort, run
from retrieval.ingest.engine import LOCK_KEY
from tests.peps import MAPPING, documents, mapping
from tests.retrieval.ingest.bench import GOOD, Bench, thread, unit

PROGRAM = """
import os, pathlib, signal, sys
from policies.loader import parse_mapping
from policies.snapshot import load
from retrieval.embed.hashing import HashingEmbedder
from retrieval.ingest import run
def stop(done, total):
    os.kill(os.getpid(), signal.SIGKILL)
mapping = parse_mapping(pathlib.Path(sys.argv[2]), load().vocabulary)
run(pathlib.Path(sys.argv[1]), mapping, dsn=sys.argv[3], embedder=HashingEmbedder(16),
    batch=30, on_progress=stop)
"""

CONTENT = """
    select u.canonical_address, u.class_id, u.current_revision, r.body, r.lexical_terms, e.vector
    from brain.unit u join brain.unit_revision r on r.unit_id = u.id
    left join brain.embedding e on e.unit_id = u.id and e.revision = r.revision
    order by 1"""
LINKS = "select thread_id, unit_id, role, status from brain.thread_membership order by 1, 2"


def test_a_killed_run_goes_on_and_comes_to_the_same(bench: Bench, shared_data: Path) -> None:
    """SIGKILL after each batch, until it is through; compared with one quiet run."""
    from retrieval.embed.hashing import HashingEmbedder

    chosen = [one for one in documents(shared_data) if one["number"] < 30]
    path = bench.write(chosen)
    deaths = 0
    while True:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path), str(MAPPING), bench.dsn],
            capture_output=True,
            check=False,
        )
        deaths += 1
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        (left,) = bench.one("select count(*) from brain.ingest_checkpoint")
        if not left:
            break  # the last call of on_progress comes after everything was committed
        assert deaths < 20
    assert deaths > 2
    content, links = bench.all(CONTENT), bench.all(LINKS)
    with_sections = sum(len(one["sections"]) for one in chosen)
    assert len(content) == with_sections
    again = run(path, mapping(bench.snapshot), dsn=bench.dsn, embedder=HashingEmbedder(16))
    assert again.unchanged == sum(again.counts.values())
    assert (bench.all(CONTENT), bench.all(LINKS)) == (content, links)


def test_a_resumed_run_reports_for_the_whole(bench: Bench) -> None:
    """Counts of before the interruption are kept with the checkpoint."""
    lines = [unit(f"a/{n}") for n in range(30)] + ["broken"] + [unit("b/1", kind="x")]

    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        bench.run(lines, batch=10, on_progress=stop)
    assert bench.one("select records_done from brain.ingest_checkpoint") == (10,)
    seen: list[tuple[int, int]] = []
    report = bench.run(lines, batch=10, on_progress=lambda *p: seen.append(p))
    assert (report.resumed_at, report.accepted, report.quarantined) == (10, 30, 2)
    assert seen == [(20, 32), (30, 32), (32, 32)]
    assert bench.one("select count(*) from brain.ingest_checkpoint") == (0,)


def test_a_source_that_changed_meanwhile_is_read_from_its_beginning(bench: Bench) -> None:
    """A checkpoint belongs to bytes, not to a name."""
    lines = [unit(f"a/{n}") for n in range(12)]

    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        bench.run(lines, batch=5, on_progress=stop)
    report = bench.run([unit("a/0", body="changed"), *lines[1:]], batch=5)
    assert (report.resumed_at, report.changed, report.unchanged, report.accepted) == (0, 1, 4, 7)


def test_a_folder_of_markdown_is_read_by_its_front_matter(bench: Bench) -> None:
    """Records of JSON lines may lie beside; an address is written out or follows the file."""
    words = "\n".join(f"{name}: '{word}'" for name, word in GOOD.items())
    folder = bench.folder / "handbook"
    (folder / "faq").mkdir(parents=True)
    (folder / "faq" / "one.md").write_text(
        f"---\ntitle: One\nauthor: somebody\nthread: t/1\n{words}\n---\n\n# One\n\nBody.\n"
    )
    (folder / "two.md").write_text(f"---\naddress: other/two\ntitle: Two\n{words}\n---\nText\n")
    (folder / "threads.jsonl").write_text(bench.write([thread()]).read_text())
    (folder / "bare.md").write_text("# No front matter\n")
    (folder / "twice.md").write_text(f"---\ntitle: A\ntitle: B\n{words}\n---\n")
    (folder / "typed.md").write_text(f"---\ntitle: A\nnotes: 2026-01-01\n{words}\n---\n")
    (folder / "truth.md").write_text(
        "---\ntitle: A\n" + words.replace("visibility: 'public'", "visibility: no") + "\n---\n"
    )
    report = run(folder, bench.native, dsn=bench.dsn)
    found = bench.all(
        "select u.canonical_address, r.title, r.body, u.class_id >= 0 from brain.unit u"
        " join brain.unit_revision r on r.unit_id = u.id order by 1"
    )
    assert found == [
        ("faq/one", "One", "# One\n\nBody.", True),
        ("other/two", "Two", "Text", True),
        ("truth", "A", "", False),
    ]
    assert bench.one("select role from brain.thread_membership") == ("canonical",)
    assert {reason.place for reason in report.reasons} == {
        "bare.md:1", "twice.md:3", "typed.md:3", "truth.md:1",
    }  # fmt: skip


def test_a_document_outside_the_map_is_refused_whole_and_its_neighbours_taken(
    bench: Bench, shared_data: Path
) -> None:
    """An unknown status: thread and sections without class; nothing is guessed by type."""
    one, two, three = (d for d in documents(shared_data) if d["number"] in (1, 2, 4))
    two["status"] = "Final "
    three["sections"] = [three["sections"][0], {"id": 7, "text": "x"}, "no section"]
    report = bench.run([one, two, three], mapping=mapping(bench.snapshot))
    by_document = bench.all(
        "select split_part(canonical_address, '#', 1), max(class_id) >= 0, bool_and(class_id >= 0)"
        " from brain.unit group by 1 order by 1"
    )
    assert by_document == [
        ("peps/PEP-0001", True, True),
        ("peps/PEP-0002", False, False),
        ("peps/PEP-0004", True, True),
    ]
    assert report.of(Outcome.QUARANTINED, Sort.UNIT) == len(two["sections"])
    assert report.of(Outcome.QUARANTINED, Sort.THREAD) == 1
    assert report.of(Outcome.QUARANTINED, Sort.RECORD) == 1
    assert {r.place for r in report.reasons if r.sort is Sort.RECORD} == {
        "s.jsonl:3 section 2",
        "s.jsonl:3 section 3",
    }
    assert ("unit", "peps/PEP-0002#" + two["sections"][0]["id"].partition("#")[2], "status",
            "unknown word") in bench.open_quarantine()  # fmt: skip


def test_what_a_document_does_not_replace_any_more_leaves_its_thread(
    bench: Bench, shared_data: Path
) -> None:
    """Membership through ``replaces`` follows the source; a reviewer's own links stay."""
    new = next(d for d in documents(shared_data) if d["id"] == "PEP-3333")
    old = next(d for d in documents(shared_data) if d["id"] == "PEP-0333")
    supporting = "select count(*) from brain.thread_membership where role = 'supporting'"
    bench.run([old, new], mapping=mapping(bench.snapshot))
    assert bench.one(supporting) == (len(old["sections"]),)
    new["links"]["replaces"] = []
    bench.run([old, new], mapping=mapping(bench.snapshot))
    assert bench.one(supporting) == (0,)


@pytest.mark.parametrize(
    ("path", "code"),
    [("absent.jsonl", "source_absent"), ("empty", "source_empty"), ("x.txt", "source_empty")],
)
def test_a_source_that_cannot_be_had_is_one_clear_line(bench: Bench, path: str, code: str) -> None:
    """Before the database is touched."""
    (bench.folder / "empty").mkdir()
    (bench.folder / "x.txt").touch()
    with pytest.raises(IngestRefused) as caught:
        run(bench.folder / path, bench.native, dsn=bench.dsn)
    assert caught.value.code == code
    assert caught.value.remedy


def test_a_database_that_cannot_be_had_is_one_clear_line(bench: Bench) -> None:
    """No password, no statement and no host in the message."""
    path = bench.write([unit()])
    with pytest.raises(IngestRefused) as caught:
        run(path, bench.native, dsn="postgresql://u:geheim@127.0.0.1:1/x")
    assert caught.value.code == "database_unavailable"
    assert "geheim" not in str(caught.value)
    empty = bench.database.url.replace(bench.database.name, "postgres")
    with pytest.raises(IngestRefused) as caught:
        run(path, bench.native, dsn=empty)
    assert caught.value.code == "not_migrated"


def test_only_one_ingest_runs_at_a_time(bench: Bench) -> None:
    """Two would count each other's work."""
    with psycopg.connect(bench.dsn) as other:
        other.execute("select pg_advisory_lock(%s)", [LOCK_KEY])
        with pytest.raises(IngestRefused) as caught:
            bench.run([unit()])
    assert caught.value.code == "ingest_running"
    assert bench.run([unit()]).exit_code == Exit.CLEAN
