"""The whole chain on real input: the PEP corpus behind a gateway process, asked over HTTP.

Who may read what comes from ``peps_rules``, which knows the source's files and the written
rules and nothing of the product. Completeness of a pack is not claimed: it holds at most 20
supporting units (one thread of this corpus has more); those are reached by their addresses.

Source: the issue's "Real input"; shared data ``peps``, README.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from policies.snapshot import Snapshot
from retrieval.embedded import Embedded
from retrieval.ingest import Exit
from tests import peps
from tests.examples import spaced
from tests.gateway.cli.made import gateway
from tests.services import Cluster, Database, fresh_database
from tests.system import callers
from tests.system.callers import Reply, Request, pack, retrieve, unit
from tests.system.peps_answers import (
    addresses_in,
    canaries,
    ids_in,
    lines_in,
    refs_in,
    units_in,
)
from tests.system.peps_rules import READERS, Document, may_read
from tests.system.peps_stage import Served, mapping, served

pytestmark = pytest.mark.timeout(300)

SUPPORTING_MAX = 20
ASKING = ("customer", "employee", "agent:auditor")
STATE = ("readiness", "publication_state", "authority")


@pytest.fixture(scope="module")
def corpus(
    cluster: Cluster,
    peps_template: Database,
    services: Embedded,
    shared_data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """One gateway for the module. Whoever changes its corpus puts it back."""
    with (
        fresh_database(cluster, template=peps_template.name) as database,
        served(
            database,
            services,
            shared_data,
            tmp_path_factory.mktemp("peps"),
            embedder=peps.EMBEDDER,
        ) as running,
    ):
        yield running


def ask(corpus: Served, reader: str, requests: Sequence[Request]) -> list[Reply]:
    return asyncio.run(corpus.caller(reader).ask_all(requests))


# --- counts and reports -----------------------------------------------------------------------


def test_states_count_as_the_statuses_of_the_source(corpus: Served, shared_data: Path) -> None:
    """703 documents and 7,373 sections; Final 361 and Active 38 are one state, and so on."""
    states = peps.status_map(shared_data)["status"]
    documents = corpus.library.documents.values()
    state = {one.status: tuple(states[one.status][key] for key in STATE) for one in documents}
    threads = Counter(state[one.status] for one in documents)
    units = Counter(state[one.status] for one in documents for _ in one.sections)
    assert (threads.total(), units.total()) == (703, 7373)
    counted = (
        f"select {', '.join(STATE)}, count(*) from brain.%s where canonical_address = any(%%s)"
    )
    for table, known, expected in (
        ("thread", corpus.library.documents, threads),
        ("unit", corpus.library.sections, units),
    ):
        query = f"{counted % table} and class_id >= 0 and deleted_at is null group by 1, 2, 3"
        found = {row[:3]: row[3] for row in corpus.sql(query, list(known))}
        assert found == expected


def test_ingest_again_reports_the_irregular_documents(corpus: Served, shared_data: Path) -> None:
    """4 superseded without a successor, 9 with one and another status; nothing is written."""
    source = shared_data / "peps" / "peps.jsonl"
    ended = gateway("ingest", str(source), "--mapping", str(peps.MAPPING), "--json", **corpus.env)
    assert ended.code == Exit.CLEAN, ended.lines
    report = json.loads(ended.out)
    assert (report["accepted"], report["changed"], report["quarantined"]) == (0, 0, 0)
    noted: dict[str, set[str]] = {}
    for note in report["notes"]:
        noted.setdefault(note["code"], set()).add(note["address"])
    raw = {peps.address(one["id"]): one for one in peps.documents(shared_data)}
    points = {one: bool(document["links"]["superseded_by"]) for one, document in raw.items()}
    old = {one for one, document in raw.items() if document["status"] == "Superseded"}
    assert noted["superseded_by_nothing"] == {one for one in old if not points[one]}
    assert noted["has_successor_but_is_current"] == {
        one for one in raw if points[one] and one not in old
    }
    assert len(noted["superseded_by_nothing"]) == 4
    assert len(noted["has_successor_but_is_current"]) == 9


# --- who reaches what -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "every"),
    [
        ("customer", 1),
        ("employee", 5),
        ("agent:auditor", 5),
        pytest.param("partner", 1, marks=pytest.mark.slow),
        pytest.param("employee", 1, marks=pytest.mark.slow),
        pytest.param("agent:drafter", 1, marks=pytest.mark.slow),
        pytest.param("agent:auditor", 1, marks=pytest.mark.slow),
    ],
)
def test_reader_reaches_exactly_what_the_rules_allow(
    corpus: Served, reader: str, every: int
) -> None:
    """Each thread's pack and each address: allowed ones are read, all others are the same 404.

    ``every`` above 1 spares addresses whose text a pack delivered, and most hidden ones: the
    packs of their threads were asked for.
    """
    allowed = corpus.library.units_of(reader)
    opened, refused = _open_packs(corpus, reader)
    delivered = {address for reply in opened for address in units_in(reply)}
    _check_nothing_forbidden(corpus, reader, opened)

    sections = list(corpus.library.sections)
    asked = sections if every == 1 else sorted({*sections[::every], *(allowed - delivered)})
    read = _read_units(corpus, reader, asked, refused)
    assert read == allowed & set(asked)
    assert read | delivered == allowed
    assert len(delivered) > len(allowed) * 0.9  # the rest has no thread that this reader sees


def _open_packs(corpus: Served, reader: str) -> tuple[list[Reply], set[tuple[int, bytes]]]:
    """Every permitted pack, checked; and the distinct refusals of all others."""
    documents = list(corpus.library.documents.values())
    asked = [pack(str(corpus.thread_ids[one.address])) for one in documents]
    replies = list(zip(documents, ask(corpus, reader, asked), strict=True))
    opened = {one.address: reply for one, reply in replies if reply.status == 200}
    assert opened.keys() == corpus.library.threads_of(reader)
    for address, reply in opened.items():
        _check_pack(corpus, reader, corpus.library.documents[address], reply)
    refused = {(reply.status, reply.unnamed) for _, reply in replies if reply.status != 200}
    return list(opened.values()), refused


def _read_units(
    corpus: Served, reader: str, asked: Sequence[str], refused: set[tuple[int, bytes]]
) -> set[str]:
    """What was served of these addresses; hidden and absent ones must be one and the same 404."""
    absent = [f"{one}-not" for one in asked[::100]] + ["peps/PEP-9999#x", "nothing"]
    replies = ask(corpus, reader, [unit(one) for one in (*asked, *absent)])
    read = set()
    for address, reply in zip((*asked, *absent), replies, strict=True):
        if reply.status != 200:
            refused.add((reply.status, reply.unnamed))
            continue
        found = reply.json()["unit"]
        assert found["unit_id"] == str(corpus.unit_ids[address])
        assert found["text"] == corpus.library.sections[address].text
        read.add(found["canonical_address"])
    assert {status for status, _ in refused} == {404}
    assert len(refused) == 1
    return read


def _check_pack(corpus: Served, reader: str, document: Document, reply: Reply) -> None:
    """The document's own sections, then permitted ones of what it replaces."""
    (found,) = reply.json()["packs"]
    own = {one.address for one in document.sections if may_read(reader, one.facets)}
    more = {s.address for s in corpus.library.absorbed(document) if may_read(reader, s.facets)}
    assert {one["canonical_address"] for one in found["canonical_units"]} == own
    supporting = {one["canonical_address"] for one in found["supporting_units"]}
    assert supporting <= more
    assert len(supporting) == min(len(more), SUPPORTING_MAX)


def _check_nothing_forbidden(corpus: Served, reader: str, replies: Iterable[Reply]) -> None:
    """Addresses, ids and texts, wherever they stand in the bytes of an answer."""
    library = corpus.library
    units, threads = library.units_of(reader), library.threads_of(reader)
    ids = {corpus.unit_ids[one] for one in units} | {corpus.thread_ids[one] for one in threads}
    forbidden = canaries(library, units)
    assert len(forbidden) > 1_000
    for reply in replies:
        assert reply.status == 200
        assert addresses_in(reply) <= units
        assert ids_in(reply) <= ids
        assert not lines_in(reply) & forbidden
        for ref in refs_in(reply.json()):
            assert ref["text"] == library.sections[ref["canonical_address"]].text


@pytest.mark.parametrize("reader", ["customer", "partner"])
def test_no_question_brings_a_customer_or_partner_what_is_not_in_print(
    corpus: Served, reader: str
) -> None:
    """Every title that is not theirs (of 703; for customers all others, too), by thread or
    fallback; a sixth of them also by vectors alone, with their first words, and with the hidden
    thread named. Of each a third in the ordinary profile."""
    library = corpus.library
    threads = library.threads_of(reader)
    hidden = [one for address, one in library.documents.items() if address not in threads]
    titled = library.documents.values() if reader == "customer" else hidden
    asked = [retrieve(one.title) for one in list(titled)[:: spaced(1)]]
    for one in hidden[:: spaced(6)]:
        words = f"{one.title} {one.sections[0].text[:200]}"
        asked.append(retrieve(words, mode="raw", k=50))
        asked.append(retrieve(one.title, thread=one.address))
    replies = ask(corpus, reader, asked)
    _check_nothing_forbidden(corpus, reader, replies)
    modes = Counter(reply.json()["mode"] for reply in replies)
    assert min(modes["single"], modes["fallback"]) > 30


@pytest.mark.parametrize("reader", ["employee", "agent:drafter", "agent:auditor"])
def test_no_question_brings_others_more_than_their_rules_allow(corpus: Served, reader: str) -> None:
    """Every eighth title, and some hidden ones by vectors alone; of each a third in the ordinary
    profile."""
    library = corpus.library
    threads = library.threads_of(reader)
    hidden = [one for address, one in library.documents.items() if address not in threads]
    asked = [retrieve(one.title) for one in list(library.documents.values())[:: spaced(8)]]
    asked += [retrieve(one.title, mode="raw", k=50) for one in hidden[:: spaced(20)]]
    _check_nothing_forbidden(corpus, reader, ask(corpus, reader, asked))


# --- superseded documents ---------------------------------------------------------------------


def superseded(corpus: Served) -> list[Document]:
    found = [one for one in corpus.library.documents.values() if one.status == "Superseded"]
    assert len(found) == 24
    return found


def test_superseded_document_is_marked_where_it_may_be_read(corpus: Served) -> None:
    """Only the auditor reads them, and each text says that it is not the current one."""
    readable = [
        one.address
        for document in superseded(corpus)
        for one in document.sections
        if may_read("agent:auditor", one.facets)
    ]
    assert len(readable) > 150
    asked = [unit(one) for one in readable]
    for reply in ask(corpus, "agent:auditor", asked):
        assert reply.json()["unit"]["readiness"] == "superseded"
    for reader in ("customer", "partner", "employee", "agent:drafter"):
        assert {reply.status for reply in ask(corpus, reader, asked[::10])} == {404}


def test_successor_is_found_by_its_own_words_and_holds_what_it_replaces(corpus: Served) -> None:
    """The auditor gets the old texts with the new ones and is pointed from old to new; a customer
    gets the new one alone."""
    library = corpus.library
    pairs = [
        (old, library.documents[address])
        for old in superseded(corpus)
        for address in old.superseded_by
    ]
    assert len(pairs) == 18  # three more lead outside of the corpus
    replaced = [(old, new) for old, new in pairs if old.address in new.replaces]
    with_old: Counter[str] = Counter()
    for reader in ("customer", "agent:auditor"):
        seen = [one for one in replaced if one[1].address in library.threads_of(reader)]
        assert len(seen) >= 8
        replies = ask(corpus, reader, [retrieve(new.title) for _, new in seen])
        for (old, new), reply in zip(seen, replies, strict=True):
            # titles may tie (``Metadata ... 1.2`` and ``... 2.1`` are the same words)
            packs = {one["thread_id"]: one for one in reply.json()["packs"]}
            found = packs[str(corpus.thread_ids[new.address])]
            marks = {u["canonical_address"]: u["readiness"] for u in found["supporting_units"]}
            own = {s.address for s in old.sections if may_read(reader, s.facets)}
            assert {s.address for s in old.sections} & marks.keys() == own
            assert {marks[one] for one in own} == ({"superseded"} if own else set())
            with_old[reader] += bool(own)
            current = {one["readiness"] for one in found["canonical_units"]}
            assert current == {new.facets["readiness"]}  # some successors had their own
    assert with_old["customer"] == 0
    assert with_old["agent:auditor"] >= 8
    _check_pointers(corpus, pairs)


def _check_pointers(corpus: Served, pairs: Sequence[tuple[Document, Document]]) -> None:
    """From the pack of the old document to the new one, for whoever may read both."""
    auditor = corpus.library.units_of("agent:auditor")
    both = [
        (old, new)
        for old, new in pairs
        if old.address in corpus.library.threads_of("agent:auditor")
        and {old.sections[0].address, new.sections[0].address} <= auditor
        and "design" in {old.sections[0].facets["kind"], new.sections[0].facets["kind"]}
    ]
    assert len(both) > 10
    asked = [pack(str(corpus.thread_ids[old.address])) for old, _ in both]
    for (old, new), reply in zip(both, ask(corpus, "agent:auditor", asked), strict=True):
        links = reply.json()["packs"][0]["related_design_code_links"]
        ends = {(one["relation"], one["from_address"], one["to_address"]) for one in links}
        wanted = ("superseded_by", old.sections[0].address, new.sections[0].address)
        assert wanted in ends


def test_hidden_superseded_texts_steer_nothing(
    corpus: Served, snapshot: Snapshot, shared_data: Path
) -> None:
    """Rewritten with the successors' own words, then removed: no byte changes for anybody who
    may not read them; the auditor's answers do change, so that the change was there to be seen."""
    ids = {one.address for one in superseded(corpus)}
    original = [one for one in peps.documents(shared_data) if peps.address(one["id"]) in ids]
    questions = _questions(corpus)
    before = _answers(corpus, questions)
    try:
        _rewrite(corpus, original, snapshot)
        rewritten = _answers(corpus, questions)
        assert {who: rewritten[who] == before[who] for who in ASKING} == _only_auditor_differs()
        _remove(corpus, original, snapshot)
        removed = _answers(corpus, questions)
        assert {who: removed[who] == before[who] for who in ASKING} == _only_auditor_differs()
    finally:
        hidden = [str(corpus.thread_ids[one]) for one in sorted(ids)]
        corpus.sql(
            "update brain.thread set deleted_at = null where id = any(%s::uuid[]) returning 1",
            hidden,
        )
        corpus.ingest(original, mapping(snapshot, "peps"))


def _only_auditor_differs() -> Mapping[str, bool]:
    return {reader: reader != "agent:auditor" for reader in ASKING}


def _questions(corpus: Served) -> list[Request]:
    """Titles of old and new documents, by thread and by vectors, and both as packs."""
    library = corpus.library
    old = superseded(corpus)
    new = {one: library.documents[one] for document in old for one in document.superseded_by}
    made = [pack(str(corpus.thread_ids[one.address])) for one in (*old[::4], *new.values())]
    made += [retrieve(one.title) for one in old]
    made += [retrieve(one.title, mode="raw") for one in list(new.values())[::2]]
    made += [retrieve(one.sections[0].text[:300], mode="raw", k=20) for one in old[::4]]
    return made


def _answers(corpus: Served, questions: Sequence[Request]) -> dict[str, list[tuple[int, bytes]]]:
    return {
        reader: [(one.status, one.unnamed) for one in ask(corpus, reader, questions)]
        for reader in ASKING
    }


def _rewrite(corpus: Served, original: Sequence[Mapping[str, Any]], snapshot: Snapshot) -> None:
    """Title and texts become the successor's: the worst that a hidden document can do."""
    changed = []
    for one in original:
        new = corpus.library.documents[peps.address(one["id"])].superseded_by
        model = corpus.library.documents[new[0] if new else "peps/PEP-0008"]
        texts = [section.text for section in model.sections]
        sections = [
            {**section, "heading": model.title, "text": texts[place % len(texts)]}
            for place, section in enumerate(one["sections"])
        ]
        changed.append({**one, "title": model.title, "sections": sections})
    report = corpus.ingest(changed, mapping(snapshot, "peps"))
    assert report.changed >= sum(len(one["sections"]) for one in original)


def _remove(corpus: Served, original: Sequence[Mapping[str, Any]], snapshot: Snapshot) -> None:
    gone = [s["id"] for one in original for s in one["sections"]]
    records = [{"sort": "deletion", "address": peps.address(one)} for one in gone]
    assert corpus.ingest(records, mapping(snapshot, "native")).changed == len(gone)
    threads = [str(corpus.thread_ids[peps.address(one["id"])]) for one in original]
    buried = "update brain.thread set deleted_at = now() where id = any(%s::uuid[]) returning 1"
    assert len(corpus.sql(buried, threads)) == len(threads)


def test_irregular_documents_are_served_by_their_status(corpus: Served) -> None:
    """A successor makes nothing superseded, and its absence nothing current."""
    documents = corpus.library.documents.values()
    alone = [one for one in superseded(corpus) if not one.names_successor]
    current = [one for one in documents if one.names_successor and one.status != "Superseded"]
    assert Counter(one.status for one in current) == {"Final": 3, "Withdrawn": 3, "Rejected": 3}
    asked = [unit(one.sections[0].address) for one in (*alone, *current)]
    found = {
        reader: [reply.status for reply in ask(corpus, reader, asked)]
        for reader in ("customer", "agent:auditor")
    }
    served_ = [200 if one.status == "Final" else 404 for one in current]
    assert found["customer"] == [404] * 4 + served_
    assert found["agent:auditor"] == [200] * 4 + served_


# --- a status that the mapping does not know --------------------------------------------------


def test_unknown_status_is_quarantined_and_refused_for_everyone(
    corpus: Served, snapshot: Snapshot, shared_data: Path
) -> None:
    """New documents with a status that is absent, foreign or nearly right, and one that everybody
    could read until its status changed."""
    served_ = next(one for one in peps.documents(shared_data) if one["id"] == "PEP-0333")
    words: list[Any] = ["Obsolete", "final", " Final", "", None, ["Final"], {"Final": 1}]
    made = [
        {
            **served_,
            "id": f"PEP-{9000 + number}",
            "title": f"Quetzal protocol number {number}",
            "status": word,
            "sections": [{"id": f"PEP-{9000 + number}#x", "heading": "X", "text": "quetzal"}],
            "links": {},
        }
        for number, word in enumerate(words)
    ]
    changed = {**served_, "status": "Obsolete"}
    everywhere = [unit(peps.address(one["sections"][0]["id"])) for one in (*made, changed)]
    try:
        report = corpus.ingest([*made, changed], mapping(snapshot, "peps"))
        assert report.exit_code == Exit.QUARANTINED
        refused = {reason.address for reason in report.reasons}
        for one in (*made, changed):
            assert {peps.address(s["id"]) for s in one["sections"]} <= refused
            assert peps.address(one["id"]) in refused
        rows = corpus.sql(
            "select id from brain.thread where canonical_address = any(%s)",
            [peps.address(one["id"]) for one in (*made, changed)],
        )
        everywhere += [pack(str(one)) for (one,) in rows]
        for reader in READERS:
            absent, *replies = ask(corpus, reader, [unit("peps/PEP-9999#x"), *everywhere])
            assert {(r.status, r.unnamed) for r in replies} == {(404, absent.unnamed)}
            questions = [retrieve("quetzal protocol number 3"), retrieve("quetzal", mode="raw")]
            _check_nothing_forbidden(corpus, reader, ask(corpus, reader, questions))
    finally:
        corpus.ingest([served_], mapping(snapshot, "peps"))
        gone = [{"sort": "deletion", "address": peps.address(f"{one['id']}#x")} for one in made]
        corpus.ingest(gone, mapping(snapshot, "native"))
        given_back = everywhere[len(made) : len(made) + 1]
        before = ask(corpus, "customer", given_back)[0].status
        corpus.sql(
            "select gate.approve_label_change(id, 'ann', 'risk', 'mended', r.digest, %s)"
            " from gate.label_change, gate.active_revision r where state = 'pending' order by sort",
            sorted(snapshot.vocabulary.profiles),
        )
    assert before == 404  # what was closed opens for nobody before somebody approves
    assert ask(corpus, "customer", given_back)[0].status == 200


def test_callers_keep_their_connections(corpus: Served) -> None:
    """The gateway answers many requests on one connection, in order."""
    some = list(corpus.library.sections)[: 3 * callers.CONNECTIONS]
    replies = ask(corpus, "agent:auditor", [unit(one) for one in some])
    assert len({reply.request_id for reply in replies}) == len(some)
