"""``gateway threads`` as a knowledge owner types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.app import run as command
from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.retrieval.owners.desk import STAFF
from tests.services import Database

Ask = Callable[..., tuple[int, str, str]]
READ = ["--source", "native", "--role", "role:knowledge_owner"]
EDIT = [*READ, "--as", "carol", "--reason", "tidying up"]
LABEL = [part for facet, word in STAFF.items() for part in ("--label", f"{facet}={word}")]
RECORD = {**STAFF, "sort": "unit", "address": "u/1", "title": "T", "body": "words", "kind": "faq",
          "lifecycle_stage": "other"}  # fmt: skip


@pytest.fixture
def ask(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Runs the command line in this process, against a database that holds one unit."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = command(list(arguments))
        told = capsys.readouterr()
        return code, told.out, told.err

    source = tmp_path / "units.jsonl"
    source.write_text(json.dumps(RECORD) + "\n")
    assert run("ingest", str(source), "--mapping", "native")[0] == 0
    return run


def test_a_thread_is_made_filled_shown_and_told(ask: Ask) -> None:
    assert ask("threads", "list", *READ)[1] == "no threads\n"
    code, out, err = ask("threads", "set", "t/1", "--title", "Refunds", *LABEL, *EDIT)
    assert (code, out, err) == (0, "t/1 is at revision 1\n", "")
    assert ask("threads", "add", "t/1", "u/1", "--link", "supporting", *EDIT)[1] == (
        "t/1 is at revision 2\n"
    )
    shown = ask("threads", "show", "t/1", *READ)[1]
    assert "  supporting u/1 (1)\n" in shown
    assert ask("threads", "drop", "t/1", "u/1", *EDIT)[0] == 0
    told = ask("threads", "history", "t/1", *READ)[1].splitlines()
    assert [text for text in told if not text.startswith("  ")] == [
        f"revision {number}, {text.split(', ')[1]}, carol: tidying up"
        for number, text in zip((3, 2, 1), (t for t in told if t[0] == "r"), strict=True)
    ]
    assert [text for text in told if text.startswith("  ")] == [
        "  - member u/1", "  + member u/1", "  + thread",
    ]  # fmt: skip
    assert "t/1" in ask("threads", "list", *READ)[1]
    assert ask("threads", "bury", "t/1", *EDIT)[0] == 0
    assert "buried" in ask("threads", "show", "t/1", *READ)[1]


def test_a_wider_label_is_said_to_wait_and_labels_approves_it(ask: Ask) -> None:
    ask("threads", "set", "t/1", "--title", "Refunds", *LABEL, *EDIT)
    code, out, _ = ask("threads", "set", "t/1", "--label", "visibility=public", *EDIT)
    assert code == 0
    assert "waits for approval: thread" in out
    change = json.loads(ask("labels", "pending", "--format", "json")[1])
    assert (change["author"], change["address"]) == ("carol", "t/1")
    own = ["--as", "carol", "--role", "role:risk_officer", "--reason", "mine"]
    assert ask("labels", "approve", change["id"], *own)[0] == 1
    other = ["--as", "ann", "--role", "role:risk_officer", "--reason", "checked"]
    assert ask("labels", "approve", change["id"], *other)[0] == 0
    shown = json.loads(ask("threads", "show", "t/1", "--json", *READ)[1])
    assert (shown["label"]["visibility"], shown["wished"]) == ("public", None)
    newest = json.loads(ask("threads", "history", "t/1", "--json", *READ)[1])["revisions"][0]
    assert newest["changes"][0]["after"]["visibility"] == "public"


def test_several_changes_are_one_revision(ask: Ask, tmp_path: Path) -> None:
    changes = tmp_path / "changes.json"
    artifact = {"do": "expect", "title": "A report", "lifecycle_stage": "report",
                "label": {**STAFF, "kind": "report"}}  # fmt: skip
    first = {"do": "set", "title": "T", "label": STAFF}
    changes.write_text(json.dumps([first, {"do": "add_member", "unit": "u/1"}, artifact]))
    assert ask("threads", "apply", "t/1", str(changes), *EDIT)[1] == "t/1 is at revision 1\n"
    assert "  expected report: A report\n" in ask("threads", "show", "t/1", *READ)[1]


def test_an_edit_of_a_revision_that_was_overtaken_is_refused(ask: Ask) -> None:
    ask("threads", "set", "t/1", "--title", "One", *LABEL, *EDIT)
    ask("threads", "set", "t/1", "--title", "Two", *EDIT)
    code, _, err = ask("threads", "set", "t/1", "--title", "Three", "--expect", "1", *EDIT)
    assert code == 1
    assert err.startswith("gateway: error: revision_conflict: the thread is at revision 2, not 1; ")


def test_only_a_role_that_the_policy_names_reads_or_edits(ask: Ask, tmp_path: Path) -> None:
    """And only under the policy that is in force."""
    for role in ("role:policy_reviewer", "role:nobody"):
        options = ["--source", "native", "--role", role]
        edit = ["--as", "carol", "--reason", "why"]
        for arguments in (
            ["list", *options],
            ["show", "t/1", *options],
            ["history", "t/1", *options],
            ["bury", "t/1", *options, *edit],
        ):
            code, out, err = ask("threads", *arguments)
            assert (code, out) == (1, "")
            assert err.startswith("gateway: error: threads_refused: ")
    overlay = tmp_path / "overlay"
    (overlay / "rules").mkdir(parents=True)
    rules = (DEFAULT_FOLDER / "rules" / "admin.csv").read_text()
    (overlay / "rules" / "admin.csv").write_text(f"{rules}# an edit that was not activated\n")
    code, _, err = ask("threads", "list", *READ, "--overlay", str(overlay))
    assert code == 1
    assert err.startswith("gateway: error: policy_changed: ")


def test_what_is_no_edit_is_one_clear_line(ask: Ask, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for arguments, code, ended in (
        (["show", "t/9", *READ], "unknown_thread", 1),
        (["add", "t/9", "u/1", *EDIT], "bad_edit", 1),
        (["set", "t/9", "--title", "T", *EDIT], "bad_edit", 1),
        (["set", "t 9", "--title", "T", *EDIT], "usage", 2),
        (["set", "t/9", "--label", "visibility", *EDIT], "usage", 2),
        (["set", "t/9", "--label", "colour=red", *EDIT], "usage", 2),
        (["apply", "t/9", str(bad), *EDIT], "usage", 2),
        (["apply", "t/9", str(tmp_path / "absent"), *EDIT], "usage", 2),
        (["list", "--source", "unclaimed", *READ[2:]], "bad_edit", 1),
    ):
        got, out, err = ask("threads", *arguments)
        assert (got, out) == (ended, ""), arguments
        assert err.startswith(f"gateway: error: {code}: "), arguments
        assert len(err.splitlines()) == 1


def test_a_check_says_how_many_parts_are_how(ask: Ask) -> None:
    ask("threads", "set", "t/1", "--title", "Refunds", *LABEL, *EDIT)
    ask("threads", "add", "t/1", "u/1", *EDIT)
    assert ask("threads", "check")[:2] == (0, "too_narrow: 1\nchecked 1 parts\n")
    code, out, _ = ask("threads", "check", "--units-min", "1", "--json")
    assert (code, json.loads(out)) == (0, {"healthy": 1})
    assert ": healthy\n" in ask("threads", "show", "t/1", *READ)[1]
