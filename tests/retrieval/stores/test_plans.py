"""No statement of a reader walks over a table: what a request costs does not grow with what its
caller may not see.

Chosen by us. Plans are made once for all values (generic), so what is seen here holds for everyone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from policies.snapshot import Snapshot
from retrieval.contract import SubjectWire
from retrieval.stores.activation import activate
from retrieval.stores.postgres import PostgresTruth, statements
from tests.retrieval.truth import FACETS
from tests.services import Database

GROWING = frozenset({
    "unit", "unit_revision", "embedding", "thread", "thread_membership", "thread_partial",
    "thread_term", "edge", "label", "label_term", "unit_label", "thread_label",
    "expected_artifact", "corpus_partial", "lexicon_partial", "pack_delivery",
    "thread_feedback_health",
})  # fmt: skip
STATEMENTS = {
    name: text
    for name, text in vars(statements).items()
    if name.isupper() and not name.startswith("_") and "select" in str(text)
}
# Of no request: what a change of policy opened or closed, by id up to a limit.
del STATEMENTS["OF_CLASSES"]
# Some, all of one class: the planner takes a list of classes for all of them.
SOME = """insert into brain.{} (id, canonical_address, title, tenant, jurisdiction, visibility,
        readiness, publication_state, risk_class, authority, kind{})
    select gen_random_uuid(), 'some/' || n, 'some', '*', '*', %s, %s, %s, %s, %s, %s{}
    from generate_series(1, 3000) n"""
THREADS = SOME.format("thread", "", "")
UNITS = SOME.format("unit", ", current_revision, content_hash", ", 1, ''")
PARAMETER = re.compile(r"%\((\w+)\)s")


def walks(plan: dict[str, Any]) -> Iterator[str]:
    """The growing tables that a plan looks through without knowing where. What a row's own security
    asks (a sub-plan) is left out: by its cost, either a look-up a row or one walk for very many."""
    if plan.get("Parent Relationship") == "SubPlan":
        return
    named = plan.get("Relation Name")
    kind = plan["Node Type"]
    whole = kind == "Seq Scan" or (kind.startswith("Index") and "Index Cond" not in plan)
    if named in GROWING and whole:
        yield f"{kind} on {named}"
    for part in plan.get("Plans", ()):
        yield from walks(part)


async def planned(connection: AsyncConnection[Any], text: str) -> dict[str, Any]:
    """How the server would run it, whatever the values."""
    names = list(dict.fromkeys(PARAMETER.findall(text)))
    numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    await connection.execute(f"prepare one as {numbered}".encode(), prepare=False)
    nothing = sql.SQL(", ").join([sql.NULL] * len(names))
    call = sql.SQL("explain (format json) execute one ({})").format(nothing)
    cursor = await connection.execute(call, prepare=False)
    ((found,),) = await cursor.fetchall()
    await connection.execute("deallocate one", prepare=False)
    plan: dict[str, Any] = found[0]["Plan"]
    return plan


def test_no_statement_looks_a_table_through(database: Database, snapshot: Snapshot) -> None:
    words = snapshot.vocabulary.facets_of(0)
    with psycopg.connect(database.url, autocommit=True) as admin:
        activate(admin, snapshot)
        for some in (THREADS, UNITS):
            admin.execute(some.encode(), [words[facet] for facet in FACETS])
        admin.execute("analyze brain.thread, brain.unit")
    subject = SubjectWire(
        subject_id="somebody",
        audience="customer",
        profiles=("customer",),
        tenants=(),
        jurisdictions=(),
        task_scope="",
        purpose="",
        policy_digest=snapshot.digest,
    )

    async def run() -> dict[str, list[str]]:
        truth = PostgresTruth(database.url, database.secret, ["customer"])
        await truth.open()
        try:
            async with truth.reading(subject, snapshot) as reader:
                return {
                    name: list(walks(await planned(reader._connection, text)))
                    for name, text in STATEMENTS.items()
                }
        finally:
            await truth.close()

    found = asyncio.run(run())
    assert len(found) > 20
    assert {name: tables for name, tables in found.items() if tables} == {}
