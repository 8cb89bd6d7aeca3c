"""``gateway overrides``: approved by somebody else who may, and ended at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.app import run as command
from retrieval.embedded import Embedded
from retrieval.ingest.identity import unit_id
from tests.gateway.cli.made import environment
from tests.gateway.cli.test_consent import GRANT
from tests.gateway.cli.test_labels import RECORD
from tests.services import Database

Ask = Callable[..., tuple[int, str, str]]
ASK = ["ask", "handbook/leave", "--label", "visibility=public", "--for", "8h",
       "--as", "carol", "--reason", "for the fair"]  # fmt: skip
DECIDE = ["--reason", "checked"]
RISK = ["--as", "ann", "--role", "role:risk_officer", *DECIDE]


@pytest.fixture
def ask(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Runs the command line, in a database with one unit for employees."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command(list(arguments))
        return code, *capsys.readouterr()

    source = tmp_path / "units.jsonl"
    source.write_text(json.dumps(RECORD) + "\n")
    assert run("ingest", str(source), "--mapping", "native")[0] == 0
    return run


def listed(ask: Ask) -> list[dict[str, Any]]:
    return [json.loads(one) for one in ask("overrides", "list", "--all", "--json")[1].splitlines()]


def test_an_override_is_asked_for_approved_shown_and_revoked(ask: Ask) -> None:
    assert ask("overrides", "list")[1] == "no overrides\n"
    code, out, _ = ask("overrides", *ASK)
    assert code == 0
    assert "handbook/leave would open to " in out
    (one,) = listed(ask)
    assert (one["state"], one["in_effect"], one["from_words"][0]) == ("pending", False, "employee")
    code, out, err = ask("overrides", "approve", one["id"], *RISK)
    assert (code, err) == (0, "")
    assert "opened to" in out
    assert "in effect" in ask("overrides", "list")[1]
    events = [json.loads(text) for text in ask("events", "--json")[1].splitlines()]
    assert [(event["kind"], event["layer"]) for event in events] == [
        ("label_widened", "label_override")
    ]
    decided = ask("labels", "pending", "--all", "--format", "json")[1]
    assert f"override {one['id']}" in json.loads(decided)["reason"]
    assert ask("overrides", "revoke", one["id"], *RISK)[0] == 0
    assert [(o["state"], o["in_effect"]) for o in listed(ask)] == [("revoked", False)]
    assert ask("overrides", "list")[1] == "no overrides\n"


def test_an_override_that_opens_to_nobody_says_so_wherever_it_is_told(
    ask: Ask, tmp_path: Path
) -> None:
    """What is approved and not published is read by none but employees, who had it before."""
    approved = RECORD | {"address": "handbook/shed", "readiness": "approved"}
    (tmp_path / "shed.jsonl").write_text(json.dumps(approved) + "\n")
    assert ask("ingest", str(tmp_path / "shed.jsonl"), "--mapping", "native")[0] == 0
    code, out, _ = ask("overrides", "ask", "handbook/shed", *ASK[2:])
    assert (code, "would open to nobody" in out) == (0, True)
    titles, row = ask("overrides", "list")[1].splitlines()
    assert row[titles.index("opens to") :].startswith("nobody ")


def test_an_override_that_opens_to_nobody_yet_takes_somebody_who_may_decide(
    ask: Ask, tmp_path: Path
) -> None:
    """The next policy may let somebody read it, and asks no approver then."""
    approved = RECORD | {"address": "handbook/shed", "readiness": "approved"}
    (tmp_path / "shed.jsonl").write_text(json.dumps(approved) + "\n")
    ask("ingest", str(tmp_path / "shed.jsonl"), "--mapping", "native")
    ask("overrides", "ask", "handbook/shed", *ASK[2:])
    (one,) = listed(ask)
    for options in (
        ["--as", "carol", "--role", "role:risk_officer", *DECIDE],
        ["--as", "ann", "--role", "role:nobody", *DECIDE],
    ):
        code, _, err = ask("overrides", "approve", one["id"], *options)
        assert code == 1
        assert err.startswith("gateway: error: override_refused: ")
        assert "open it to anybody" in err
    code, out, _ = ask("overrides", "approve", one["id"], *RISK)
    assert (code, "opened to nobody" in out) == (0, True)


def test_an_address_that_reads_like_the_id_of_another_unit_is_not_guessed_at(
    ask: Ask, tmp_path: Path
) -> None:
    """Whoever brings units can know ids, and name one so that the wrong one is opened."""
    ident = str(unit_id("handbook/leave"))
    source = tmp_path / "more.jsonl"
    source.write_text(json.dumps({**RECORD, "address": ident}) + "\n")
    assert ask("ingest", str(source), "--mapping", "native")[0] == 0
    code, out, err = ask("overrides", "ask", ident, *ASK[2:])
    assert (code, out) == (1, "")
    assert err.startswith("gateway: error: ambiguous_unit: ")
    code, out, err = ask("consent", *GRANT[1:-1], ident)
    assert (code, out) == (1, "")
    assert err.startswith("gateway: error: ambiguous_unit: ")
    assert ask("overrides", *ASK)[0] == 0


def test_nobody_approves_what_they_asked_for_or_without_the_right_role(ask: Ask) -> None:
    ask("overrides", *ASK)
    (one,) = listed(ask)
    for options in (
        ["--as", "carol", "--role", "role:risk_officer", *DECIDE],
        ["--as", " Carol", "--role", "role:risk_officer", *DECIDE],
        ["--as", f"s.{'0' * 40}", "--role", "role:risk_officer", *DECIDE],
        ["--as", "ann", "--role", "role:knowledge_owner", *DECIDE],
        ["--as", "ann", "--role", "role:nobody", *DECIDE],
    ):
        code, _, err = ask("overrides", "approve", one["id"], *options)
        assert code == 1
        assert err.startswith("gateway: error: override_refused: ")
    assert [o["state"] for o in listed(ask)] == ["pending"]
    nobody = ["--as", "eve", "--role", "role:nobody", *DECIDE]
    assert ask("overrides", "reject", one["id"], *nobody)[0] == 1
    assert ask("overrides", "reject", one["id"], *RISK)[0] == 0
    assert ask("overrides", "approve", one["id"], *RISK)[0] == 1


def test_who_asked_may_take_it_back(ask: Ask) -> None:
    ask("overrides", *ASK)
    (one,) = listed(ask)
    own = ["--as", "carol", "--role", "role:nobody", *DECIDE]
    assert ask("overrides", "revoke", one["id"], *own)[0] == 0


def test_what_opens_to_nobody_can_be_rejected_so_that_it_is_in_nobodys_way(ask: Ask) -> None:
    """Of a unit that may be open there is one at a time; nobody gains by its end."""
    again = ["ask", "handbook/leave", "--label", "visibility=employee", *ASK[4:]]
    assert "would open to nobody" in ask("overrides", *again)[1]
    assert "is revoked, then ask anew" in ask("overrides", *ASK)[2]
    (one,) = listed(ask)
    nobody = ["--as", "eve", "--role", "role:nobody", *DECIDE]
    assert ask("overrides", "reject", one["id"], *nobody)[0] == 1
    assert ask("overrides", "reject", one["id"], *RISK)[0] == 0
    assert ask("overrides", *ASK)[0] == 0


def test_what_is_no_override_is_one_clear_line(ask: Ask) -> None:
    absent = "00000000-0000-4000-8000-000000000000"
    named = ["--as", "carol", "--reason", "for the fair"]
    for arguments, code, ended in (
        (["ask", "absent", *ASK[2:]], "unknown_unit", 1),
        ([*ASK[:2], "--label", "kind=law", *ASK[4:]], "usage", 2),
        ([*ASK[:2], "--label", "visibility", *ASK[4:]], "usage", 2),
        ([*ASK[:2], "--label", "visibility=all", *ASK[4:]], "override_refused", 1),
        ([*ASK[:2], "--label", "visibility=restricted", *ASK[4:]], "override_refused", 1),
        ([*ASK[:4], "--for", "400d", *named], "usage", 2),
        ([*ASK[:4], "--for", "soon", *named], "usage", 2),
        (["approve", "nonsense", *RISK], "usage", 2),
        (["approve", absent, *RISK], "unknown_override", 1),
        (["revoke", absent, *RISK], "unknown_override", 1),
    ):
        got, _, err = ask("overrides", *arguments)
        assert got == ended, arguments
        assert err.startswith(f"gateway: error: {code}: "), (arguments, err)
        assert len(err.splitlines()) == 1
