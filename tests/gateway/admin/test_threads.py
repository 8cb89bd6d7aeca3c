"""Owners at the operators' listener: which role, which source, and what is journaled.

Provenance: issue 5, "What to build" 9: HTTP on the admin listener, authenticated operators, who
may edit which source's threads by policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from gateway.authn.claims import subject_id
from gateway.surfaces.admin.threads import EDIT_PATH, HISTORY_PATH, LIST_PATH, SHOW_PATH
from retrieval.embedded import Embedded
from retrieval.ingest.identity import thread_id, unit_id
from retrieval.stores.roles import LABEL, dsn_for
from tests.gateway.admin.asking import REASON, Operators, explain, operator
from tests.gateway.admin.test_operators import ISSUERS, refused
from tests.gateway.cli.made import environment
from tests.gateway.journal.made import until
from tests.gateway.tokens import URLS
from tests.retrieval.owners.desk import OPEN, STAFF, new
from tests.services import Database
from tests.system.composed import composed, unit

OWNER = "knowledge-owner"


def owner(*roles: str, **claims: Any) -> str:
    """A token of the owner of the source ``native``, which the provider calls ``handbook``."""
    return operator(ISSUERS, *(roles or (OWNER,)), **{"knowledge": ["handbook"], **claims})


def asked(**more: Any) -> dict[str, Any]:
    return {"reason": REASON, "source": "native", **more}


def edit(*changes: Any, expected: int = 0, thread: str = "t/1") -> dict[str, Any]:
    said = {"thread": thread, "expected_revision": expected, "changes": list(changes)}
    return asked(edit=said)


@pytest.fixture
def run(
    services: Embedded, database: Database, tmp_path: Path
) -> Callable[[Callable[[Operators], Awaitable[None]]], None]:
    """Runs a test against a composed gateway whose source ``native`` has one unit."""
    env = environment(services, database, tmp_path)

    def running(test: Callable[[Operators], Awaitable[None]]) -> None:
        async def main() -> None:
            async with composed(env, ISSUERS, tmp_path) as world:
                await world.ingest(unit("faq/one", "One."))
                await test(Operators(world))

        asyncio.run(main())

    return running


Run = Callable[[Callable[[Operators], Awaitable[None]]], None]


def body(reply: httpx.Response) -> Any:
    assert reply.status_code == 200, reply.text
    assert reply.headers["cache-control"] == "private, no-store"
    return reply.json()


def test_an_owner_makes_shows_and_tells_a_thread(run: Run) -> None:
    """The author of a revision is the opaque subject, its reason the one that was given."""

    async def test(operators: Operators) -> None:
        member = {"do": "add_member", "unit": "faq/one"}
        made = body(await operators.post(EDIT_PATH, owner(), edit(new(), member)))["edited"]
        assert (made["revision"], made["changed"]) == (1, True)
        page = body(await operators.post(LIST_PATH, owner(), asked()))["page"]
        assert [one["thread"] for one in page["threads"]] == ["t/1"]
        shown = body(await operators.post(SHOW_PATH, owner(), asked(thread="t/1")))["shown"]
        assert [one["unit"] for one in shown["members"]] == ["faq/one"]
        told = body(await operators.post(HISTORY_PATH, owner(), asked(thread="t/1")))["history"]
        (revision,) = told["revisions"]
        assert revision["author"] == subject_id(URLS["idp:staff"], "u-1")
        assert revision["reason"] == REASON

    run(test)


def test_a_wider_label_waits_and_the_owner_is_told(run: Run) -> None:
    async def test(operators: Operators) -> None:
        await operators.post(EDIT_PATH, owner(), edit(new(label=STAFF)))
        wider = {"do": "set", "label": {"visibility": "public"}}
        made = body(await operators.post(EDIT_PATH, owner(), edit(wider, expected=1)))["edited"]
        assert [one["object_id"] for one in made["waiting"]] == [str(thread_id("t/1"))]
        held = "select visibility from brain.thread"
        assert await operators.world.sql(held) == [("employee",)]

    run(test)


def test_each_use_is_journaled_without_a_word_of_the_thread(run: Run) -> None:
    async def test(operators: Operators) -> None:
        await operators.post(EDIT_PATH, owner(), edit(new("Codename Zebra")))
        await operators.post(SHOW_PATH, owner(), asked(thread="t/1"))
        await operators.post(SHOW_PATH, owner(), asked(thread="t/absent"))
        await operators.post(EDIT_PATH, owner(), edit(new(), expected=0))
        rows = await operators.journaled()
        told = [(row["action"], row["effect"], row["told"]) for row in rows]
        ident = str(thread_id("t/1"))
        assert told == [
            ("edit_threads", "allow",
             {"source": "native", "thread": ident, "revision": 1, "changes": 1, "waiting": 0}),
            ("read_threads", "allow", {"source": "native", "thread": ident, "revision": 1}),
            ("read_threads", "allow", {"source": "native", "refused": "not_found"}),
            ("edit_threads", "allow", {"source": "native", "refused": "revision_conflict"}),
        ]  # fmt: skip
        assert "Zebra" not in str(rows)
        assert "t/1" not in str(rows)

    run(test)


def test_neither_role_nor_source_alone_opens_a_thread(run: Run) -> None:
    """A role without the source, the source without the role, a role that a deny row takes back."""

    async def test(operators: Operators) -> None:
        await operators.post(EDIT_PATH, owner(), edit(new()))
        tokens = (
            operator(ISSUERS, OWNER),
            owner(knowledge=["other"]),
            owner(knowledge=["native"]),  # our word, not the provider's
            owner("risk-officer"),
            owner("policy-reviewer"),
        )
        for token in tokens:
            for path, question in (
                (SHOW_PATH, asked(thread="t/1")),
                (HISTORY_PATH, asked(thread="t/1")),
                (LIST_PATH, asked()),
                (EDIT_PATH, edit({"do": "bury"}, expected=1)),
            ):
                refused(await operators.post(path, token, question), 403, "forbidden")
        refused(await operators.post(SHOW_PATH, None, asked(thread="t/1")), 401, "unauthenticated")
        assert await operators.world.sql("select max(revision) from brain.thread_revision") == [
            (1,)
        ]

    run(test)


def test_what_cannot_be_done_has_its_own_code(run: Run) -> None:
    async def test(operators: Operators) -> None:
        await operators.post(EDIT_PATH, owner(), edit(new()))
        for question, status, code in (
            (edit(new(), expected=0), 409, "revision_conflict"),
            (edit(new(), expected=7), 409, "revision_conflict"),
            (edit({"do": "bury"}, expected=1, thread="t/9"), 404, "not_found"),
            (edit({"do": "drop_member", "unit": "faq/one"}, expected=1), 400, "bad_body"),
            (edit({"do": "nonsense"}, expected=1), 400, "bad_body"),
            (edit({**new(), "label": {**OPEN, "visibility": "all"}}, thread="t/2"), 400,
             "bad_body"),
            (asked(edit={"thread": "t/1"}), 400, "bad_body"),
        ):  # fmt: skip
            reply = await operators.post(EDIT_PATH, owner(), question)
            refused(reply, status, code)
        reply = await operators.post(SHOW_PATH, owner(), asked(thread="t/9"))
        refused(reply, 404, "not_found")

    run(test)


def test_an_override_is_explained_and_ends_by_itself(run: Run) -> None:
    """An explanation says why a unit is looser than its label; a running gateway ends it."""

    async def test(operators: Operators) -> None:
        world = operators.world
        await world.ingest(unit("faq/staff", "Staff.", visibility="employee"))
        stores = world.gateway.stores
        dsn = dsn_for(LABEL, stores.database_url, stores.database_secret)
        profiles = list(world.gateway.snapshot.vocabulary.profiles)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            asking = (
                "select gate.ask_override(%s, '{public,null,null,null,null}', 'carol', 'a fair',"
                " interval '1 second')"
            )
            row = await (await connection.execute(asking, [unit_id("faq/staff")])).fetchone()
            assert row is not None
            await connection.execute(
                "select gate.approve_override(%s, 'ann', 'role:risk_officer', 'checked', %s, %s)",
                [row[0], world.gateway.snapshot.digest, profiles],
            )
        reviewer = operator(ISSUERS, "policy-reviewer")
        told = body(await operators.explain(reviewer, explain("faq/staff")))
        assert (told["state"]["visibility"], told["allowed"]) == ("public", True)
        assert told["override_until"] is not None

        async def ended() -> bool:
            return await world.sql("select state from gate.label_override") == [("ended",)]

        await until(ended)
        told = body(await operators.explain(reviewer, explain("faq/staff")))
        assert (told["state"]["visibility"], told["override_until"]) == ("employee", None)

    run(test)
