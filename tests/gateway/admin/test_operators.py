"""Who is an operator, and what is journaled of it: over HTTP, on the second listener.

Provenance: issue 3, point 3 (live numbers and explanations only for a reviewer's role, with a
reason, each use journaled).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.authn.claims import subject_id
from gateway.surfaces.admin.plane import BODY_BYTES_MAX
from gateway.surfaces.admin.wire import EXPLAIN_PATH, LIVE_PATH
from retrieval.embedded import Embedded
from retrieval.ingest.identity import unit_id
from tests.gateway.admin.asking import (
    DIGEST,
    REASON,
    Operators,
    explain,
    live,
    operator,
    pipeline,
)
from tests.gateway.cli.made import environment
from tests.gateway.tokens import URLS, Issuers
from tests.services import Database
from tests.system.composed import composed, unit

Asking = Callable[..., Any]
ISSUERS = Issuers()
REVIEWER = "policy-reviewer"
WORLD = (
    unit("faq/one", "One."),
    unit("faq/two", "Two."),
    unit("law/risky", "Risky.", risk_class="high", tenant="acme"),
)


@pytest.fixture
def env(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    return environment(services, database, tmp_path)


@asynccontextmanager
async def up(env: dict[str, str], tmp_path: Path) -> AsyncIterator[Operators]:
    async with composed(env, ISSUERS, tmp_path) as world:
        await world.ingest(*WORLD)
        yield Operators(world)


def run(env: dict[str, str], tmp_path: Path, test: Callable[[Operators], Awaitable[None]]) -> None:
    async def main() -> None:
        async with up(env, tmp_path) as operators:
            await test(operators)

    asyncio.run(main())


def refused(reply: httpx.Response, status: int, code: str) -> None:
    """A problem document of the closed list, and nothing else."""
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["cache-control"] == "private, no-store"
    assert "profiles" not in reply.json()


async def classes(operators: Operators) -> tuple[int, int]:
    """The classes of what is open and of what is risky."""
    return await operators.world.class_of("faq/one"), await operators.world.class_of("law/risky")


def test_only_a_verified_operator_is_answered(env: dict[str, str], tmp_path: Path) -> None:
    """No token, a broken one, an expired one, one for somebody else, and colleagues without a
    role that the policy names: refused alike on both doors, and nothing is journaled."""
    now = int(time.time())
    strangers: list[tuple[str | None, int, str]] = [
        (None, 401, "unauthenticated"),
        ("not-a-token", 401, "unauthenticated"),
        (operator(ISSUERS, REVIEWER, exp=now - 60, iat=now - 600), 401, "unauthenticated"),
        (operator(ISSUERS, REVIEWER, aud="https://other.example"), 401, "unauthenticated"),
        (Issuers().token("employee", roles=[REVIEWER]), 401, "unauthenticated"),
        (operator(ISSUERS), 403, "forbidden"),
        (operator(ISSUERS, "role:policy_reviewer"), 403, "forbidden"),
        (operator(ISSUERS, "knowledge-owner"), 403, "forbidden"),
        (ISSUERS.token("customer", roles=[REVIEWER]), 403, "forbidden"),
        (ISSUERS.token("agent", roles=["analyst"]), 403, "forbidden"),
    ]

    async def test(operators: Operators) -> None:
        for token, status, code in strangers:
            refused(await operators.live(token, live()), status, code)
            refused(await operators.explain(token, explain("faq/one")), status, code)
        assert await operators.journaled() == []

    run(env, tmp_path, test)


def test_a_use_is_answered_and_journaled(env: dict[str, str], tmp_path: Path) -> None:
    """Counts of classes, as the operator asked; the row says who, what, why and how much."""

    async def test(operators: Operators) -> None:
        open_class, risky = await classes(operators)
        body = live("counts", {"profile": "customer", "gained": [open_class], "lost": [risky]},
                    {"profile": "agent:new", "gained": [9_999]})  # fmt: skip
        reply = await operators.live(operator(ISSUERS, REVIEWER), body)
        assert reply.status_code == 200, reply.text
        assert reply.headers["cache-control"] == "private, no-store"
        found = reply.json()
        assert found["live_digest"] == operators.world.gateway.snapshot.digest
        numbers = [
            (one["profile"], one["gained"]["units"], one["lost"]["units"])
            for one in found["profiles"]
        ]
        assert numbers == [("customer", 2, 1), ("agent:new", 0, 0)]
        assert found["profiles"][0]["gained"]["ids"] is None
        (row,) = await operators.journaled()
        assert row["told"] == {"mode": "counts", "profiles": 2, "classes": 3, "units": 3,
                               "threads": 0, "ids": 0}  # fmt: skip
        who = subject_id(URLS["idp:staff"], "u-1")
        assert row["subject_hash"] == hashlib.sha256(who.encode()).hexdigest()
        assert (row["action"], row["effect"], row["rules"]) == ("live_counts", "allow", ["M-REV-1"])
        assert (row["reason"], row["roles"]) == (REASON, ["role:policy_reviewer"])
        assert (row["policy_digest"], row["about_digest"]) == (found["live_digest"], DIGEST)
        assert row["request_id"] == found["request_id"] == reply.headers["x-request-id"]
        span = await operators.world.span(row["request_id"])
        assert span["attributes"]["gateway.surface"] == "admin"
        assert span["attributes"]["gateway.route"] == "admin-policy-live"
        assert span["attributes"]["gateway.decision"] == "allow"

    run(env, tmp_path, test)


def test_a_role_gets_what_its_rows_say_and_each_try_is_a_row(
    env: dict[str, str], tmp_path: Path
) -> None:
    """The shipped rules: a pipeline reads orders of magnitude, a risk officer numbers."""

    async def test(operators: Operators) -> None:
        open_class, _ = await classes(operators)
        change = {"profile": "customer", "gained": [open_class]}
        machine, officer = pipeline(ISSUERS), operator(ISSUERS, "risk-officer")
        both = operator(ISSUERS, "risk-officer", REVIEWER)
        reply = await operators.live(machine, live("bucketed", change))
        assert reply.json()["profiles"][0]["gained"]["units"] == "1-9"
        for token, mode, allowed in (
            (machine, "counts", False), (machine, "ids", False), (officer, "bucketed", True),
            (officer, "counts", True), (officer, "ids", False), (both, "ids", True),
        ):  # fmt: skip
            reply = await operators.live(token, live(mode, change))
            if allowed:
                assert reply.status_code == 200, reply.text
            else:
                refused(reply, 403, "forbidden")
        refused(await operators.explain(machine, explain("faq/one")), 403, "forbidden")
        rows = [(row["action"], row["effect"], row["rules"]) for row in await operators.journaled()]
        assert rows == [
            ("live_bucketed", "allow", ["M-CI-1"]),
            ("live_counts", "deny", ["M-X-CI"]),
            ("live_ids", "deny", ["M-X-CI"]),
            ("live_bucketed", "allow", ["M-RISK-1"]),
            ("live_counts", "allow", ["M-RISK-1"]),
            ("live_ids", "deny", []),
            ("live_ids", "allow", ["M-REV-1"]),
        ]

    run(env, tmp_path, test)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"reason": ...}, "reason"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 501}, "reason"),
        ({"reason": "a\nb"}, "reason"),
        ({"reason": "\u200b\u200b\u200b"}, "reason"),
        ({"reason": "...!"}, "reason"),
        ({"mode": "all"}, "mode"),
        ({"mode": "BUCKETED"}, "mode"),
        ({"digest": "main"}, "digest"),
        ({"changes": [{"profile": "customer", "gained": [-1]}]}, "changes.0.gained.0"),
        ({"changes": [{"profile": "customer", "gained": [32768]}]}, "changes.0.gained.0"),
        ({"changes": [{"profile": "customer", "gained": ["7"]}]}, "changes.0.gained.0"),
        ({"changes": [{"profile": "customer", "gained": [True]}]}, "changes.0.gained.0"),
        ({"changes": [{"profile": "Customer"}]}, "changes.0.profile"),
        ({"changes": [{"profile": "customer"}, {"profile": "customer"}]}, "changes"),
        ({"changes": {}}, "changes"),
        ({"tenant": "acme"}, "tenant"),
    ],
)  # fmt: skip
def test_a_malformed_question_is_refused_with_its_place(
    change: dict[str, Any], where: str, shared: Operators, asking: Asking
) -> None:
    """Strict bodies: nothing is coerced, nothing is ignored, no use without a reason."""
    body = {k: v for k, v in (live("counts") | change).items() if v is not ...}
    reply: httpx.Response = asking(shared.live, operator(ISSUERS, REVIEWER), body)
    refused(reply, 400, "bad_body")
    assert reply.json()["detail"].startswith(f"{where}:"), reply.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "content", "status", "code"),
    [
        ("GET", LIVE_PATH, {}, b"", 405, "method_not_allowed"),
        ("POST", f"{LIVE_PATH}?reason=x", {}, b"{}", 400, "bad_query"),
        ("POST", f"{LIVE_PATH}/", {}, b"{}", 400, "bad_path"),
        ("POST", "/admin/v1/policy/%6cive", {}, b"{}", 400, "bad_path"),
        ("POST", "/admin/v1/policy", {}, b"{}", 404, "not_found"),
        ("POST", LIVE_PATH, {"content-type": "text/plain"}, b"{}", 415, "unsupported_media_type"),
        ("POST", LIVE_PATH, {"content-encoding": "gzip"}, b"{}", 415, "unsupported_media_type"),
        ("POST", LIVE_PATH, {}, b'{"reason":"abc","reason":"def"}', 400, "bad_body"),
        ("POST", LIVE_PATH, {}, b"[" * 90 + b"]" * 90, 400, "bad_body"),
        ("POST", LIVE_PATH, {}, b"", 400, "bad_body"),
        ("POST", EXPLAIN_PATH, {"authorization": "Basic YTpi"}, b"{}", 401, "unauthenticated"),
    ],
)  # fmt: skip
def test_what_is_no_question_is_refused(
    method: str, path: str, headers: dict[str, str], content: bytes, status: int, code: str,
    shared: Operators, asking: Asking,
) -> None:  # fmt: skip
    """The same strictness as on the first listener, and a bound of its own."""
    sent = {"authorization": f"Bearer {operator(ISSUERS, REVIEWER)}",
            "content-type": "application/json", **headers}  # fmt: skip
    url = f"{shared.world.gateway.admin_url}{path}"
    reply: httpx.Response = asking(
        shared.world.client.request, method, url, content=content, headers=sent
    )
    refused(reply, status, code)


def test_a_long_question_is_read_as_strictly_as_a_short_one(
    shared: Operators, asking: Asking
) -> None:
    """It is read on a thread, beside the requests of callers."""
    every = [*range(10_800)]
    long = live("counts", {"profile": "customer", "gained": every, "lost": every})
    reply: httpx.Response = asking(shared.live, operator(ISSUERS, REVIEWER), long)
    assert reply.status_code == 200, reply.text
    long["changes"][0]["gained"] = [*every, -1]
    refused(asking(shared.live, operator(ISSUERS, REVIEWER), long), 400, "bad_body")


def test_a_body_beyond_the_bound_is_refused_unread(shared: Operators, asking: Asking) -> None:
    """The bound is the door's own: every class of every profile fits, and little more."""
    host, port = shared.world.gateway.admin_url.removeprefix("http://").split(":")

    async def declared() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {LIVE_PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {operator(ISSUERS, REVIEWER)}\r\n"
        writer.write(f"{head}Content-Length: {BODY_BYTES_MAX + 1}\r\n\r\n{{".encode())
        answer = await reader.read()
        writer.close()
        return answer

    answer: bytes = asking(declared)
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert b'"code":"body_too_large"' in answer


def test_nothing_leaves_when_the_use_cannot_be_journaled(
    env: dict[str, str], tmp_path: Path
) -> None:
    """503 on both doors, for denied uses as well; no number and no verdict in the body."""

    async def test(operators: Operators) -> None:
        open_class, _ = await classes(operators)
        await operators.world.sql("revoke insert on gate.admin_access from gw_journal")
        change = {"profile": "customer", "gained": [open_class]}
        reviewer = operator(ISSUERS, REVIEWER)
        replies = [await operators.live(reviewer, live(mode, change))
                   for mode in ("bucketed", "counts", "ids")]  # fmt: skip
        replies.append(await operators.explain(reviewer, explain("faq/one")))
        replies.append(await operators.explain(reviewer, explain("faq/none")))
        replies.append(await operators.live(pipeline(ISSUERS), live("ids", change)))
        for reply in replies:
            refused(reply, 503, "journal_unavailable")
            assert set(reply.json()) == {"type", "title", "status", "code", "request_id"}
        await operators.world.sql("grant insert on gate.admin_access to gw_journal")
        assert (await operators.live(reviewer, live("counts", change))).status_code == 200
        assert len(await operators.journaled()) == 1

    run(env, tmp_path, test)


def test_a_revision_that_the_database_does_not_enforce_answers_nothing(
    env: dict[str, str], tmp_path: Path
) -> None:
    """A replica that is behind must not decide about operators."""

    async def test(operators: Operators) -> None:
        open_class, _ = await classes(operators)
        await operators.world.sql("update gate.active_revision set digest = repeat('0', 64)")
        change = {"profile": "customer", "gained": [open_class]}
        reviewer = operator(ISSUERS, REVIEWER)
        for mode in ("bucketed", "counts", "ids"):
            refused(await operators.live(reviewer, live(mode, change)), 503, "policy_changed")
        refused(await operators.explain(reviewer, explain("faq/one")), 503, "policy_changed")
        refused(await operators.shadow(reviewer), 503, "policy_changed")

    run(env, tmp_path, test)


@pytest.mark.parametrize("rules", ["", "p, M-X-ALL, all, all, deny\n"])
def test_a_policy_without_operators_says_so(
    rules: str, env: dict[str, str], tmp_path: Path
) -> None:
    """No file, or one that only denies: whoever is authenticated learns that it is disabled."""

    async def main() -> None:
        from policies.snapshot import DEFAULT_FOLDER
        from tests.system.serving import believing

        policy = believing(ISSUERS, tmp_path)
        assert policy != DEFAULT_FOLDER
        file = policy / "rules" / "admin.csv"
        if rules:
            file.write_text(rules)
        else:
            file.unlink()
        async with composed(env | {"GATEWAY_POLICY": str(policy)}, ISSUERS, tmp_path) as world:
            operators = Operators(world)
            refused(await operators.live(None, live()), 401, "unauthenticated")
            for ask, body in ((operators.live, live()), (operators.explain, explain("faq/one"))):
                refused(await ask(operator(ISSUERS, REVIEWER), body), 403, "admin_disabled")
            assert await operators.journaled() == []

    asyncio.run(main())


def test_health_and_metrics_need_no_operator(env: dict[str, str], tmp_path: Path) -> None:
    """Beside the operators' doors the listener is what it was; the first listener has none."""

    async def test(operators: Operators) -> None:
        client, gateway = operators.world.client, operators.world.gateway
        assert (await client.get(f"{gateway.admin_url}/livez")).status_code == 200
        await operators.live(None, live())
        metrics = (await client.get(f"{gateway.admin_url}/metrics")).text
        assert 'route="admin-policy-live"' in metrics
        bearer = {"authorization": f"Bearer {operator(ISSUERS, REVIEWER)}"}
        reply = await client.post(f"{gateway.url}{LIVE_PATH}", json=live(), headers=bearer)
        assert reply.status_code == 404

    run(env, tmp_path, test)


def test_an_explanation_names_rules_and_no_content(env: dict[str, str], tmp_path: Path) -> None:
    """By id or by address; allowed, denied by class, by compartment; absent is 404."""

    async def test(operators: Operators) -> None:
        reviewer = operator(ISSUERS, REVIEWER)

        async def ask(*args: Any, **caller: Any) -> dict[str, Any]:
            reply = await operators.explain(reviewer, explain(*args, **caller))
            assert reply.status_code == 200, reply.text
            found: dict[str, Any] = reply.json()
            text = json.dumps(found).lower()
            assert not any(word in text for word in ("about faq", "about law", "risky", "faq/"))
            return found

        first, again = await ask("faq/one"), await ask(str(unit_id("faq/one")))
        assert first | {"request_id": ""} == again | {"request_id": ""}
        assert (first["allowed"], first["unit_id"]) == (True, str(unit_id("faq/one")))
        assert first["deciding"][0]["file"] == "rules/units.csv"
        denied = await ask("law/risky", tenants=["acme"])
        assert (denied["allowed"], denied["verdict"]) == (False, "DENY (U-X-RISK)")
        assert [one["rule"] for one in denied["deciding"]] == ["U-X-RISK"]
        misses = [[miss["axis"] for miss in near["misses"]] for near in denied["nearest"]]
        assert misses[0] == ["risk_class"]
        assert ["consent"] in misses
        other = await ask("law/risky", tenants=["globex"], consent="granted")
        assert (other["allowed"], other["verdict"]) == (False, "DENY (tenant)")
        assert [one["fits"] for one in other["compartments"]] == [False, True]
        own = await ask("law/risky", tenants=["acme"], consent="granted")
        assert own["allowed"]
        assert own["verdict"].startswith("ALLOW")
        refused(await operators.explain(reviewer, explain("faq/none")), 404, "not_found")
        refused(await operators.explain(reviewer, explain("faq/one", "nobody")), 400, "bad_body")
        told = [row["told"] for row in await operators.journaled()]
        assert told[0]["unit"] == str(unit_id("faq/one"))
        assert told[-1] == {"profile": "customer", "consent": "none", "unit": "absent"}
        assert len(told) == 6

    run(env, tmp_path, test)


def test_an_unlabelled_unit_is_nobodys(env: dict[str, str], tmp_path: Path) -> None:
    """Class -1 has no state and no rule; what says so is the explanation."""

    async def test(operators: Operators) -> None:
        await operators.world.sql(
            "update brain.unit set visibility = 'pubic' where canonical_address = 'faq/one'"
        )
        reply = await operators.explain(operator(ISSUERS, REVIEWER), explain("faq/one"))
        found = reply.json()
        assert (found["class_id"], found["state"], found["allowed"]) == (-1, None, False)
        assert found["verdict"] == "DENY (no class)"

    run(env, tmp_path, test)
