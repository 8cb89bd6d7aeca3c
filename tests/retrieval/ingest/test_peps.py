"""The PEP corpus after ingest: every label, count and irregularity against the source's own word.

Source: shared data ``peps`` (703 documents, 7,373 sections), its README and status map.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from policies.vocabulary import FACETS
from tests import peps
from tests.services import Database


def ask(database: Database, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.url) as connection:
        return connection.execute(query.encode()).fetchall()


def test_every_section_and_thread_has_the_class_that_the_source_proposes(
    peps_template: Database, shared_data: Path, snapshot: Any
) -> None:
    """8,076 objects; the expected facets are computed without our mapping file."""
    source, expected = peps.status_map(shared_data), {}
    for document in peps.documents(shared_data):
        whole = peps.expected_facets(document, "", source)
        expected[peps.address(document["id"])] = snapshot.vocabulary.class_id(whole)
        for section in document["sections"]:
            facets = peps.expected_facets(document, section["heading"], source)
            expected[peps.address(section["id"])] = snapshot.vocabulary.class_id(facets)
    found = dict(
        ask(
            peps_template,
            "select canonical_address, class_id from brain.unit"
            " union all select canonical_address, class_id from brain.thread",
        )
    )
    assert min(expected.values()) >= 0
    assert found == expected


def test_the_states_of_threads_count_as_the_statuses_of_the_source(
    peps_template: Database, shared_data: Path
) -> None:
    """Final 361 and Active 38 are one state, and so on."""
    states = peps.status_map(shared_data)["status"]
    keys = ("readiness", "publication_state", "authority")
    expected = Counter(
        tuple(states[document["status"]][key] for key in keys)
        for document in peps.documents(shared_data)
    )
    counted = f"select {', '.join(keys)}, count(*) from brain.thread group by 1, 2, 3"
    found = ask(peps_template, counted)
    assert {row[:3]: row[3] for row in found} == expected


def test_texts_arrive_unchanged_and_complete(peps_template: Database, shared_data: Path) -> None:
    """Title, body and address of all sections; nothing is in quarantine."""
    expected = {
        (peps.address(section["id"]), section["heading"], section["text"])
        for document in peps.documents(shared_data)
        for section in document["sections"]
    }
    found = ask(
        peps_template,
        "select u.canonical_address, r.title, r.body from brain.unit u"
        " join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision",
    )
    assert len(found) == len(expected) == 7373
    assert set(found) == expected
    assert ask(peps_template, "select count(*) from brain.quarantine") == [(0,)]


def test_a_thread_holds_its_document_and_what_that_replaces_and_nothing_else(
    peps_template: Database, shared_data: Path
) -> None:
    """A pointer from old to new makes no membership: a hidden text may not steer a result."""
    documents = list(peps.documents(shared_data))
    sections = {one["id"]: [s["id"] for s in one["sections"]] for one in documents}
    expected = set()
    for one in documents:
        thread = peps.address(one["id"])
        expected |= {(thread, peps.address(s), "canonical") for s in sections[one["id"]]}
        expected |= {
            (thread, peps.address(section), "supporting")
            for replaced in one["links"]["replaces"]
            for section in sections.get(replaced, [])
        }
    found = ask(
        peps_template,
        "select t.canonical_address, u.canonical_address, m.role from brain.thread_membership m"
        " join brain.thread t on t.id = m.thread_id join brain.unit u on u.id = m.unit_id",
    )
    assert set(found) == expected


def test_pointers_become_edges_between_first_sections(
    peps_template: Database, shared_data: Path
) -> None:
    """Both ends in the corpus; 47 pointers lead outside."""
    documents = list(peps.documents(shared_data))
    first = {one["id"]: one["sections"][0]["id"] for one in documents}
    expected = {
        (peps.address(first[one["id"]]), relation, peps.address(first[target]))
        for one in documents
        for relation, targets in one["links"].items()
        for target in targets
        if target in first
    }
    found = ask(
        peps_template,
        "select s.canonical_address, e.relation, d.canonical_address from brain.edge e"
        " join brain.unit s on s.id = e.src join brain.unit d on d.id = e.dst",
    )
    assert set(found) == expected


def test_the_irregular_documents_are_reported(
    peps_database: Database, shared_data: Path, snapshot: Any
) -> None:
    """4 superseded ones name no successor, 9 name one and are not superseded.

    A second run over the filled corpus, which writes nothing.
    """
    before = ask(peps_database, "select count(*), max(seq) from brain.outbox")
    report = peps.fill(peps_database, snapshot, shared_data)
    assert report.unchanged == sum(report.counts.values()) == 7373 + 703 + 7773 + 1656
    assert ask(peps_database, "select count(*), max(seq) from brain.outbox") == before
    noted: dict[str, set[str]] = {
        code: set() for code in ("superseded_by_nothing", "has_successor_but_is_current")
    }
    for note in report.notes:
        noted.setdefault(note.code, set()).add(note.address)
    documents = list(peps.documents(shared_data))
    assert noted["superseded_by_nothing"] == {
        peps.address(one["id"])
        for one in documents
        if one["status"] == "Superseded" and not one["links"]["superseded_by"]
    }
    assert noted["has_successor_but_is_current"] == {
        peps.address(one["id"])
        for one in documents
        if one["status"] != "Superseded" and one["links"]["superseded_by"]
    }
    assert len(noted["superseded_by_nothing"]) == 4
    assert len(noted["has_successor_but_is_current"]) == 9


def test_facets_are_stored_as_words_of_the_vocabulary(
    peps_template: Database, snapshot: Any
) -> None:
    """No word is invented on the way; the overlays use all five visibilities."""
    for facet in FACETS:
        found = {word for (word,) in ask(peps_template, f"select distinct {facet} from brain.unit")}
        assert found <= set(snapshot.vocabulary.facets[facet])
    assert len(ask(peps_template, "select distinct visibility from brain.unit")) == 5
