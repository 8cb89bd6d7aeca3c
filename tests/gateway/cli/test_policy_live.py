"""`gateway policy diff --live` and `explain --unit` against a running gateway.

Provenance: issue 3, point 3, and the rule that a pipeline is told orders of magnitude at most.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from gateway.cli.app import run
from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from retrieval.ingest.identity import unit_id
from tests.gateway.admin.asking import Operators, operator
from tests.gateway.cli.made import Ended, environment
from tests.gateway.tokens import Issuers
from tests.services import Cluster, Database, fresh_database
from tests.system.composed import composed, thread, unit

ISSUERS = Issuers()
REASON = ("--reason", "review of change 17")
OLD_ROW = "p, U-CUS-1, customer, public, published, published, low|standard"
NEW_ROW = "p, U-CUS-1, customer, public|partner, published, published, low|standard"

Command = Callable[..., Ended]


@contextmanager
def world(
    services: Embedded, cluster: Cluster, template: Database, folder: Path
) -> Iterator[tuple[Operators, dict[str, str]]]:
    with fresh_database(cluster, template=template.name) as database:
        env = environment(services, database, folder)
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(composed(env, ISSUERS, folder)) as made,
        ):
            records = [unit(f"partner/{number}", "x", visibility="partner") for number in range(12)]
            records.append(unit("partner/far", "x", visibility="partner", tenant="far"))
            portal.call(made.ingest, unit("faq/one", "x"), thread("thread/one", "One"), *records)
            yield Operators(made), env


@pytest.fixture(scope="module")
def running(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Operators, dict[str, str]]]:
    with world(services, cluster, migrated_template, tmp_path_factory.mktemp("live")) as made:
        yield made


@pytest.fixture
def command(
    running: tuple[Operators, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Runs one command as a colleague with these roles, at a terminal or in a pipeline."""
    _, env = running

    def call(*arguments: str, roles: tuple[str, ...] = ("policy-reviewer",), ci: str = "") -> Ended:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CI", ci)
        token = tmp_path / "token"
        token.write_text(operator(ISSUERS, *roles))
        code = run(["policy", *arguments, "--token-file", str(token)])
        out, err = capsys.readouterr()
        return Ended(code, out, err.splitlines())

    return call


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """The installed policy with one row edited: customers read what partners do."""
    folder = tmp_path / "edited"
    shutil.copytree(DEFAULT_FOLDER, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    units = folder / "rules" / "units.csv"
    assert OLD_ROW in units.read_text()
    units.write_text(units.read_text().replace(OLD_ROW, NEW_ROW))
    return folder


def test_a_one_line_edit_tells_how_much_is_live_of_it(command: Command, edited: Path) -> None:
    """Counts in JSON, buckets in Markdown, ids of what the reviewer itself may read."""
    ended = command("diff", str(DEFAULT_FOLDER), str(edited), "--live", "counts", *REASON,
                    "--format", "json")  # fmt: skip
    assert ended.code == 20, ended
    found = json.loads(ended.out)["live"]
    assert found["mode"] == "counts"
    (customer,) = found["profiles"]
    assert (customer["profile"], customer["gained"]["units"], customer["lost"]["units"]) == (
        "customer", 13, 0)  # fmt: skip
    ended = command("diff", str(DEFAULT_FOLDER), str(edited), "--live", "bucketed", *REASON,
                    "--format", "markdown")  # fmt: skip
    assert "| customer | 10-99 | 0 | 0 | 0 |" in ended.out
    ended = command("diff", str(DEFAULT_FOLDER), str(edited), "--live", "ids", *REASON)
    assert str(unit_id("partner/7")) in ended.out
    assert str(unit_id("partner/far")) not in ended.out
    assert "partner/7" not in ended.out
    assert "customer  13            0               0           0" in ended.out


def test_without_the_option_nobody_is_asked(command: Command, edited: Path) -> None:
    ended = command("diff", str(DEFAULT_FOLDER), str(edited), "--admin", "http://127.0.0.1:1",
                    "--format", "json")  # fmt: skip
    assert (ended.code, json.loads(ended.out)["live"]) == (20, None)


@pytest.mark.parametrize(
    ("arguments", "more", "code", "word"),
    [
        (("--live", "counts"), {}, 2, "no_reason"),
        (("--live", "counts", "--reason", " "), {}, 2, "no_reason"),
        (("--live", "counts", "--reason", "a"), {}, 2, "usage"),
        (("--live", "counts", *REASON), {"ci": "true"}, 2, "live_in_ci"),
        (("--live", "ids", *REASON), {"ci": "1"}, 2, "live_in_ci"),
        (("--live", "counts", *REASON), {"roles": ()}, 1, "forbidden"),
        (("--live", "ids", *REASON), {"roles": ("risk-officer",)}, 1, "forbidden"),
        (("--live", "counts", *REASON, "--admin", "http://127.0.0.1:1"), {}, 4,
         "gateway_unreachable"),
        (("--live", "counts", *REASON, "--admin", "http://gateway.example"), {}, 2,
         "insecure_address"),
        (("--live", "counts", *REASON, "--as", "somebody"), {}, 2, "usage"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_ends_with_a_code_and_a_remedy(
    arguments: tuple[str, ...], more: dict[str, Any], code: int, word: str,
    command: Command, edited: Path,
) -> None:  # fmt: skip
    """One line on standard error, and no report that looks complete without its numbers."""
    ended = command("diff", str(DEFAULT_FOLDER), str(edited), *arguments, **more)
    assert (ended.code, ended.out, len(ended.lines)) == (code, "", 1), ended
    assert f" {word}: " in ended.lines[0]


def test_a_pipeline_may_ask_for_orders_of_magnitude(command: Command, edited: Path) -> None:
    ended = command("diff", str(DEFAULT_FOLDER), str(edited), "--live", "bucketed", *REASON,
                    roles=("risk-officer",), ci="true")  # fmt: skip
    assert ended.code == 20, ended
    assert "10-99" in ended.out
    assert " 13 " not in ended.out


def test_a_live_unit_is_explained_for_a_caller(
    command: Command, running: tuple[Operators, dict[str, str]]
) -> None:
    """Rules and facets at the terminal, the wire form as JSON; each use is a row."""
    before = len(asyncio.run(running[0].journaled()))
    asked = ("explain", "--unit", "partner/3", "--profile", "customer", *REASON)
    ended = command(*asked)
    assert ended.code == 0, ended
    assert ended.out.startswith("DENY (no rule) customer\n")
    assert f"unit {unit_id('partner/3')} under policy" in ended.out
    assert "visibility is partner, the rule wants public" in ended.out
    found = json.loads(command(*asked, "--format", "json").out)
    assert (found["allowed"], found["state"]["visibility"]) == (False, "partner")
    ended = command("explain", "--unit", "partner/far", "--profile", "partner", "--tenant", "near",
                    "--jurisdiction", "eu", *REASON)  # fmt: skip
    assert ended.out.startswith("DENY (tenant) partner\n")
    assert "tenant far does not fit: the caller has near" in ended.out
    assert "allowed by U-PAR-1" in ended.out
    absent = command("explain", "--unit", "partner/none", "--profile", "partner", *REASON)
    assert (absent.code, absent.out) == (1, "")
    assert " not_found: " in absent.lines[0]
    assert len(asyncio.run(running[0].journaled())) == before + 4


def test_uses_are_listed_with_their_reasons(
    running: tuple[Operators, dict[str, str]],
    command: Command,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The newest first; a reason is shown without the letters that would turn its line."""
    reason = "change 18: \u202eevil"
    asked = ("explain", "--unit", "faq/one", "--profile", "customer", "--reason", reason)
    assert command(*asked).code == 0
    assert run(["events", "access", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert "explain_unit" in out
    assert "change 18: \ufffdevil" in out
    assert run(["events", "access", "--limit", "1", "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["reason"], row["effect"], row["told"]["unit"]) == (
        reason, "allow", str(unit_id("faq/one")))  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("--unit", "faq/one", *REASON),
        ("customer", "public", "--unit", "faq/one", "--profile", "customer", *REASON),
        ("customer", "public"),
        (),
    ],
)
def test_half_a_question_is_wrong_usage(arguments: tuple[str, ...], command: Command) -> None:
    ended = command("explain", *arguments)
    assert (ended.code, ended.out, len(ended.lines)) == (2, "", 1), ended
