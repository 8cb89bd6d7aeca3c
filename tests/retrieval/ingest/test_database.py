"""A knowledge base in another database: laid out as Directus does, read through four views.

Provenance: issue 5, "What to build" 9: four documented views, incremental by revision, for a
knowledge base that lives in another database. The views and the mapping are those that we ship.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from policies.loader import parse_mapping
from retrieval.ingest import IngestRefused, Outcome, Report, Sort, run
from retrieval.ingest.database import knowledge_base
from retrieval.ingest.engine import marks_of
from retrieval.ingest.fields import ADDRESS_MAX, BODY_MAX, LIST_MAX, TEXT_MAX, TITLE_MAX
from retrieval.ingest.identity import unit_id
from retrieval.ingest.native import native_items
from retrieval.ingest.ownership import FOREIGN
from retrieval.stores.activation import activate
from tests.retrieval.ingest.bench import Bench, unit
from tests.retrieval.owners.desk import Desk
from tests.services import Cluster, Database, fresh_database

SHIPPED = Path(__file__).resolve().parents[3] / "deploy" / "knowledge-base"
TABLES = """
    create table directus_users (id uuid primary key, email text);
    create table directus_collections (collection text primary key);
    create table topics (id serial primary key, slug text, title text, summary text, status text,
        audience text, date_updated timestamptz);
    create table articles (id serial primary key, slug text, title text, body text, status text,
        audience text, kind text, language text, date_updated timestamptz,
        topic integer references topics);
    create table articles_topics (id serial primary key, articles_id integer references articles,
        topics_id integer references topics);
    create table articles_links (id serial primary key, from_article integer references articles,
        to_article integer references articles, relation text, date_updated timestamptz);
    create table glossary (id serial primary key, word text, other_words text[], audience text,
        date_updated timestamptz);
    insert into topics (slug, title, summary, status, audience, date_updated) values
        ('refunds', 'Refunds', 'All about refunds', 'published', 'everyone', '2026-01-01Z'),
        ('cash', 'Cash', '', 'published', 'staff', '2026-01-02Z');
    insert into articles (slug, title, body, status, audience, kind, language, date_updated, topic)
    values
        ('how', 'How to refund', 'Press it.', 'published', 'everyone', 'guide', 'en',
            '2026-01-01Z', 1),
        ('count', 'Counting cash', 'One, two.', 'published', 'staff', 'runbook', 'en',
            '2026-01-02Z', 2),
        ('odd', 'Odd', 'For some.', 'published', 'VIPs', 'guide', 'en', '2026-01-03Z', 1);
    insert into articles_topics (articles_id, topics_id) values (2, 1), (1, 1);
    insert into articles_links (from_article, to_article, relation, date_updated)
        values (1, 2, 'mentions', '2026-01-01Z'), (3, 1, 'mentions', '2026-01-01Z');
    insert into glossary (word, other_words, audience, date_updated)
        values ('Refunds', '{RFD,money back}', 'everyone', '2026-01-01Z');
"""


@dataclass(frozen=True, slots=True)
class Base:
    """The knowledge base, and the bench that it is ingested into."""

    other: Database
    bench: Bench

    def change(self, statement: str) -> None:
        with psycopg.connect(self.other.url) as connection:
            connection.execute(statement.encode())

    def enforce(self) -> None:
        """Put the default policy into force, so that labels open something to somebody."""
        with psycopg.connect(self.bench.database.url, autocommit=True) as connection:
            activate(connection, self.bench.snapshot)

    def run(self, *, origin: str = "kb", dsn: str = "", **options: Any) -> Report:
        mapping = parse_mapping(SHIPPED / "mapping.yaml", self.bench.snapshot.vocabulary)
        marks = partial(marks_of, self.bench.dsn, origin)
        with knowledge_base(dsn or self.other.url, marks=marks, **options) as source:
            return run(source, mapping, dsn=self.bench.dsn, origin=origin)

    def live(self, table: str = "unit") -> set[str]:
        name = "term" if table == "label" else "canonical_address"
        return {
            row[0]
            for row in self.bench.all(f"select {name} from brain.{table} where deleted_at is null")
        }

    def visibility(self, address: str) -> Any:
        asked = "select visibility from brain.unit where canonical_address = %s"
        return self.bench.one(asked, address)[0]


@pytest.fixture
def base(cluster: Cluster, bench: Bench) -> Iterator[Base]:
    with fresh_database(cluster) as other:
        made = Base(other, bench)
        made.change(TABLES)
        made.change((SHIPPED / "views.sql").read_text())
        yield made


def touched(slug: str, when: str, **words: str) -> str:
    said = ", ".join(f"{name} = '{word}'" for name, word in words.items())
    return f"update articles set {said}, date_updated = '{when}' where slug = '{slug}'"


def total(report: Report) -> int:
    return sum(report.counts.values())


def test_four_views_become_units_threads_terms_and_links(base: Base) -> None:
    """Labels go through the mapping; a word that it does not know is quarantined."""
    report = base.run()
    assert report.of(Outcome.ACCEPTED, Sort.UNIT) == 2
    assert [(r.place, r.field, r.value) for r in report.reasons] == [
        ("unit:kb/odd", "audience", "VIPs"),
        ("unit:kb/odd", "visibility", ""),
    ]
    assert base.live() == {"kb/how", "kb/count", "kb/odd"}
    assert base.visibility("kb/count") == "employee"
    links = base.bench.all(
        "select t.canonical_address, u.canonical_address, m.role from brain.thread_membership m"
        " join brain.thread t on t.id = m.thread_id join brain.unit u on u.id = m.unit_id"
        " order by 1, 2"
    )
    assert links == [
        ("topic/cash", "kb/count", "canonical"),
        ("topic/refunds", "kb/count", "supporting"),
        ("topic/refunds", "kb/how", "canonical"),
        ("topic/refunds", "kb/odd", "canonical"),
    ]
    assert base.bench.all("select term, aliases from brain.label") == [
        ("Refunds", ["RFD", "money back"])
    ]
    assert len(base.bench.all("select from brain.thread_label")) == 1
    assert base.bench.all("select relation from brain.edge") == [("mentions",)] * 2
    assert {row[0] for row in base.bench.all("select origin from brain.unit")} == {"kb"}


def test_a_second_run_reads_only_what_changed(base: Base) -> None:
    first = base.run(overlap=0)
    assert total(first) == 12
    assert total(base.run(overlap=0)) == 0
    base.change(touched("how", "2026-02-01Z", body="Press it twice."))
    again = base.run(overlap=0)
    assert (again.of(Outcome.CHANGED, Sort.UNIT), again.of(Outcome.UNCHANGED, Sort.UNIT)) == (1, 0)
    assert base.bench.one("select max(current_revision) from brain.unit") == (2,)


def test_what_ended_out_of_order_is_read_within_the_overlap(base: Base) -> None:
    """A row whose revision is lower than one that was read already."""
    base.run()
    base.change(touched("how", "2026-01-02T23:59:59.5Z", audience="staff"))
    base.run(overlap=0)
    assert base.visibility("kb/how") == "public"
    base.run(overlap=1_000)
    assert base.visibility("kb/how") == "employee"


def test_a_narrower_word_narrows_and_a_wider_one_waits(base: Base) -> None:
    base.enforce()
    base.run()
    base.change(touched("how", "2026-02-01Z", audience="staff"))
    base.change(touched("count", "2026-02-01Z", audience="everyone"))
    report = base.run()
    assert base.visibility("kb/how") == "employee"
    assert base.visibility("kb/count") == "employee"
    assert [(w.sort, w.address) for w in report.waiting] == [(Sort.UNIT, "kb/count")]


def test_absence_removes_only_in_a_full_run(base: Base) -> None:
    base.run()
    base.change("delete from articles_links where to_article = 2; delete from articles_topics;"
                " delete from articles where slug = 'count'; delete from glossary;"
                " delete from topics where slug = 'cash'")  # fmt: skip
    base.run()
    assert base.live() == {"kb/how", "kb/count", "kb/odd"}
    report = base.run(full=True)
    assert base.live() == {"kb/how", "kb/odd"}
    assert base.live("thread") == {"topic/refunds"}
    assert base.live("label") == {"Refunds"}  # its view is empty now: that says nothing
    assert report.of(Outcome.CHANGED, Sort.DELETION) == 2
    links = "select from brain.thread_membership where unit_id = %s"
    assert base.bench.all(links, unit_id("kb/count")) == []
    back = base.run(full=True)
    assert (back.accepted, back.changed) == (0, 0)


def test_a_view_that_is_not_complete_or_empty_removes_nothing(base: Base) -> None:
    base.run()
    view = (SHIPPED / "views.sql").read_text().split("create view gateway_export.unit as")[1]
    body = view.split("create view gateway_export.thread")[0].replace(
        "true as complete", "a.slug <> 'how' as complete"
    )
    base.change(f"create or replace view gateway_export.unit as {body}")
    base.change("delete from articles_links; delete from articles_topics;"
                " delete from articles where slug = 'count'")  # fmt: skip
    base.run(full=True)
    assert "kb/count" in base.live()
    base.change("delete from articles")
    base.run(full=True)
    assert base.live() == {"kb/how", "kb/count", "kb/odd"}


def test_a_full_run_touches_no_other_source_and_no_owner_s_link(base: Base) -> None:
    """What another source brought stays, and what an owner added to a thread by hand."""
    base.enforce()
    base.bench.run([unit("other/1")], origin="theirs")
    base.run()
    desk = Desk(base.bench.folder, base.bench.database, base.bench.snapshot)
    member = {"do": "add_member", "unit": "kb/how", "role": "supporting"}
    page = desk.owners.show("kb", "topic/cash")
    desk.edit(member, thread="topic/cash", source="kb", expected=page.revision)
    base.run(full=True)
    assert "other/1" in base.live()
    members = {one.unit for one in desk.owners.show("kb", "topic/cash").members}
    assert members == {"kb/count", "kb/how"}


def test_an_address_of_another_source_is_refused(base: Base) -> None:
    base.bench.run([unit("kb/how", body="mine")], origin="theirs")
    report = base.run()
    assert FOREIGN in {r.reason for r in report.reasons if r.place == "unit:kb/how"}
    assert base.bench.one("select origin from brain.unit where canonical_address = 'kb/how'") == (
        "theirs",
    )


def test_what_is_quarantined_stays_listed_until_its_row_is_read_again(base: Base) -> None:
    """An incremental run closes only what it looked at."""
    base.change("delete from articles_links where from_article = 3;"
                " update articles set slug = 'has space' where slug = 'odd'")  # fmt: skip
    base.run(overlap=0)
    listed = "select address from brain.quarantine where resolved_at is null and sort = 'record'"
    assert base.bench.all(listed) == [("unit:kb/has space",)]
    base.run(overlap=0)
    assert base.bench.all(listed) == [("unit:kb/has space",)]
    base.change("update articles set audience = 'staff', slug = 'even' where slug = 'has space'")
    base.run(full=True)
    assert base.bench.all(listed) == []


def test_two_places_under_one_name_have_marks_of_their_own(base: Base, cluster: Cluster) -> None:
    """Revisions of one database say nothing about those of another."""
    base.run()
    with fresh_database(cluster) as second:
        moved = Base(second, base.bench)
        moved.change(TABLES)
        moved.change((SHIPPED / "views.sql").read_text())
        assert total(moved.run(overlap=0)) == 12
    assert len(base.bench.all("select distinct place from brain.ingest_mark")) == 2


def test_a_run_that_was_stopped_moves_no_mark(base: Base) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Stopped

    mapping = parse_mapping(SHIPPED / "mapping.yaml", base.bench.snapshot.vocabulary)
    marks = partial(marks_of, base.bench.dsn, "kb")
    with (
        knowledge_base(base.other.url, marks=marks) as source,
        pytest.raises(Stopped),
    ):
        run(source, mapping, dsn=base.bench.dsn, origin="kb", batch=1, on_progress=stop)
    assert base.bench.all("select from brain.ingest_mark") == []
    assert base.run().resumed_at > 0
    assert base.live() == {"kb/how", "kb/count", "kb/odd"}


BROKEN: Mapping[str, str] = {
    "no view": "drop view gateway_export.term",
    "no column": "drop view gateway_export.term; create view gateway_export.term as select 1 as x",
    "no number": "alter view gateway_export.term rename column revision to r;"
    " drop view gateway_export.term; create view gateway_export.term as select 'x' as revision,"
    " true as complete",
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_unfit_view_is_one_clear_refusal(base: Base, name: str) -> None:
    base.change(BROKEN[name])
    with pytest.raises(IngestRefused) as caught:
        base.run()
    assert caught.value.code == "source_unfit"
    assert "`term`" in caught.value.reason


def test_a_login_that_may_not_read_or_is_not_let_in_is_said(base: Base) -> None:
    base.change("drop role if exists test_kb_reader; create role test_kb_reader login password 'x'")
    try:
        dsn = psycopg.conninfo.make_conninfo(base.other.url, user="test_kb_reader", password="x")
        with pytest.raises(IngestRefused) as caught:
            base.run(dsn=dsn)
        assert caught.value.code == "source_unfit"
        with pytest.raises(IngestRefused) as caught:
            base.run(dsn="host=127.0.0.1 port=1")
        assert caught.value.code == "source_unreachable"
    finally:
        base.change("drop role test_kb_reader")


ODD_WORDS = (
    "'[]'::jsonb",
    "'null'::jsonb",
    """'{"title": "x"}'::jsonb""",
    """'{"sort": "x"}'::jsonb""",
)


@pytest.mark.parametrize("words", ODD_WORDS)
def test_words_that_are_no_words_refuse_their_record_alone(base: Base, words: str) -> None:
    view = (SHIPPED / "views.sql").read_text().split("create view gateway_export.unit as")[1]
    body = view.split("create view gateway_export.thread")[0]
    start = body.index("jsonb_build_object")
    end = body.index(" as words")
    changed = (
        f"{body[:start]}case a.slug when 'odd' then {words} else {body[start:end]} end{body[end:]}"
    )
    base.change(f"create or replace view gateway_export.unit as {changed}")
    report = base.run()
    assert {r.place for r in report.reasons} >= {"unit:kb/odd"}
    assert base.live() == {"kb/how", "kb/count"}


@pytest.mark.parametrize("words", ODD_WORDS)
def test_row_whose_words_cannot_be_read_any_more_is_read_by_nobody(base: Base, words: str) -> None:
    """Not by those who might read it before: it may have been narrowed."""
    base.enforce()
    base.change("alter table articles add words jsonb")
    view = (SHIPPED / "views.sql").read_text().split("create view gateway_export.unit as")[1]
    body = view.split("create view gateway_export.thread")[0].replace(
        "jsonb_build_object(", "coalesce(a.words, jsonb_build_object("
    )
    base.change(f"create or replace view gateway_export.unit as {body.replace(') as', ')) as')}")
    base.run()
    base.change(f"update articles set words = {words}, date_updated = now() where slug = 'how'")
    base.run()
    asked = "select class_id from brain.unit where canonical_address = %s"
    assert base.bench.one(asked, "kb/how") == (-1,)
    assert base.bench.one(asked, "kb/count") != (-1,)


def test_row_without_a_revision_is_read_in_every_run(base: Base) -> None:
    """Directus leaves `date_updated` empty until a row is edited."""
    base.enforce()
    base.change("update articles set date_updated = null where slug = 'how'")
    base.run()
    assert base.visibility("kb/how") == "public"
    base.change("update articles set audience = 'staff' where slug = 'how'")
    base.run()
    assert base.visibility("kb/how") == "employee"
    base.run(full=True)
    assert "kb/how" in base.live()


def test_a_base_that_names_no_encoding_is_read_as_text(base: Base) -> None:
    """Its own setting would make bytes of every address."""
    name = psycopg.conninfo.conninfo_to_dict(base.other.url)["dbname"]
    base.change(f"alter database {name} set client_encoding = 'sql_ascii'")
    base.run()
    assert base.live() == {"kb/how", "kb/count", "kb/odd"}


def test_a_text_without_end_is_refused_and_does_not_travel(base: Base) -> None:
    """A row may hold a gigabyte; what comes over is one character more than can be stored."""
    base.change("update articles set body = repeat('x', 3000000) where slug = 'how'")
    marks = partial(marks_of, base.bench.dsn, "kb")
    with knowledge_base(base.other.url, marks=marks) as source:
        longest = max(len(raw.fields.get("body", "")) for raw in source)
    assert longest == BODY_MAX + 1
    report = base.run()
    assert "longer than" in {r.place: r.reason for r in report.reasons}["unit:kb/how"]
    assert base.live() == {"kb/count", "kb/odd"}


WIDE = """
    create schema wide;
    create view wide.thread as select big as address, 1 as revision, true as complete, big as title,
        array[big, big] as aliases, big as description, big as purpose, big as status,
        jsonb_build_object('kind', big) as words from (select repeat('x', 200000)) t (big);
    create view wide.unit as select big as address, 1 as revision, true as complete, big as title,
        'short' as body, big as language, now() as active_at, big as thread, big as role,
        jsonb_build_object('kind', big) as words from (select repeat('x', 200000)) t (big);
    create view wide.term as select big as term, 1 as version, 1 as revision, true as complete,
        array[big, big] as aliases, array[big] as units,
        array(select 'u/' || n from generate_series(1, 100500) n) as threads,
        '{"kind": "faq"}'::jsonb as words from (select repeat('x', 200000)) t (big)
        union all select 'nested', 1, 1, true, array[array['a', 'b'], array['c', 'd']], null, null,
        null;
    create view wide.edge as select sort, big as source, big as relation, big as target,
        1.0 as confidence, big as status, 1 as revision, true as complete
        from (select repeat('x', 200000)) t (big), (values ('edge'), ('membership')) s (sort);
"""


def test_no_field_of_any_view_travels_longer_than_it_can_be_stored(base: Base) -> None:
    base.change(WIDE)
    marks = partial(marks_of, base.bench.dsn, "kb")
    with knowledge_base(base.other.url, schema="wide", marks=marks) as source:
        # below the record: how a row is read is all that is looked at
        rows = [row for view in ("thread", "unit", "term", "edge") for row in source._rows(view)]
        read = list(source)
    longest: dict[str, int] = {}
    for row in rows:
        for name, value in row.items():
            texts = value if isinstance(value, list) else [value]
            length = max((len(one) for one in texts if isinstance(one, str)), default=0)
            longest[name] = max(length, longest.get(name, 0))
    assert longest["title"] == longest["aliases"] == longest["term"] == TITLE_MAX + 1
    assert longest["description"] == longest["purpose"] == TEXT_MAX + 1
    for name in ("address", "status", "language", "thread", "role", "units", "source", "relation"):
        assert longest[name] == ADDRESS_MAX + 1, name
    assert max(len(row.get("threads") or ()) for row in rows) == LIST_MAX + 1
    (nested,) = (row for row in rows if row.get("term") == "nested")
    assert (nested["aliases"], nested["units"]) == ([[""]], None)
    words = [row["words"] for row in rows if "words" in row and row is not nested]
    assert words == [None, None, {"kind": "faq"}]
    assert [one.fault.partition(",")[0] for one in read if one.fault] == [
        "`words` is not an object"
    ] * 3


def test_a_list_of_too_many_entries_or_of_lists_refuses_its_record(base: Base) -> None:
    mapping = parse_mapping(SHIPPED / "mapping.yaml", base.bench.snapshot.vocabulary)
    told = {}
    for name, aliases in (
        ("many", [str(number) for number in range(LIST_MAX + 1)]),
        ("lists", [[""]]),
    ):
        record = {"sort": "label", "term": "T", "audience": "everyone", "aliases": aliases}
        told[name] = [str(one) for one in native_items(mapping, name, record)]
    assert any(f"more than {LIST_MAX} entries" in one for one in told["many"])
    assert any("not a list of text" in one for one in told["lists"])


def test_the_knowledge_base_is_never_written(base: Base) -> None:
    """Not even by a view that tries."""
    base.change(
        "create function sneaky() returns boolean language plpgsql as $$ begin"
        " insert into glossary (word) values ('written'); return true; end $$;"
        " drop view gateway_export.term; create view gateway_export.term as"
        " select 'x'::text as term, 1 as version, 1::bigint as revision, sneaky() as complete,"
        " '{}'::text[] as aliases, '{}'::text[] as units, '{}'::text[] as threads,"
        " '{}'::jsonb as words"
    )
    with pytest.raises(IngestRefused):
        base.run()
    with psycopg.connect(base.other.url) as connection:
        found = connection.execute("select from glossary where word = 'written'").fetchall()
    assert found == []
