"""``gateway labels``: a widening label is approved by who may, and by nobody else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.authn.claims import subject_id
from gateway.cli.app import run
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.services import Database

RECORD = {
    "sort": "unit", "address": "handbook/leave", "title": "Leave", "body": "Ask in writing.",
    "visibility": "employee", "readiness": "published", "publication_state": "published",
    "risk_class": "low", "authority": "enacted", "kind": "guide", "lifecycle_stage": "other",
    "tenant": "*", "jurisdiction": "*",
}  # fmt: skip
DECIDE = ["--reason", "asked for"]
RISK = ["--as", "ann", "--role", "role:risk_officer", *DECIDE]
OWNER = ["--as", "ann", "--role", "role:knowledge_owner", *DECIDE]

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(
    services: Embedded,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Run a command: exit code, output, errors. `ingest` takes a visibility and an author."""
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        return code, *capsys.readouterr()

    return command


def ingest(ask: Ask, folder: Path, author: str, **words: str) -> str:
    source = folder / "units.jsonl"
    source.write_text(json.dumps(RECORD | words) + "\n")
    code, out, err = ask("ingest", str(source), "--mapping", "native", "--author", author)
    assert code == 0, err
    return out


def pending(ask: Ask, *options: str) -> list[dict[str, Any]]:
    code, out, err = ask("labels", "pending", "--format", "json", *options)
    assert code == 0, err
    return [json.loads(text) for text in out.splitlines()]


def visibility(database: Database) -> str:
    with psycopg.connect(database.url) as connection:
        row = connection.execute("select visibility from brain.unit").fetchone()
    assert row is not None
    return str(row[0])


def close_to_outsiders(ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activate a policy under which customers and partners read nothing of low risk."""
    closed = folder / "closed"
    shutil.copytree(DEFAULT_FOLDER, closed, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    with (closed / "rules" / "units.csv").open("a") as rules:
        rules.write("p, U-X-CLOSED, customer|partner, all, all, all, low, all, all, all, deny\n")
    assert ask("policy", "activate", str(closed))[0] == 0
    monkeypatch.setenv("GATEWAY_POLICY", str(closed))


def test_a_widening_is_listed_shown_and_approved_and_stands_in_the_journal(
    ask: Ask, database: Database, tmp_path: Path
) -> None:
    """The whole way of one change, by the shipped rules."""
    ingest(ask, tmp_path, "carol")
    assert ask("labels", "pending") == (0, "nothing waits for an approver\n", "")
    assert ask("labels", "pending", "--all") == (0, "there was no label change yet\n", "")
    said = ingest(ask, tmp_path, "carol", visibility="public")
    assert "unit handbook/leave: pending: opens to" in said
    (change,) = pending(ask)
    assert (change["address"], change["author"], change["state"]) == (
        "handbook/leave", "carol", "pending",
    )  # fmt: skip
    assert {"customer", "partner"} <= set(change["gains_now"])
    code, out, _ = ask("labels", "show", change["id"])
    assert code == 0
    assert "visibility        employee -> public" in out
    assert visibility(database) == "employee"

    code, out, err = ask("labels", "approve", change["id"], *RISK)
    assert (code, err) == (0, "")
    assert out.startswith(f"approved {change['id']}: unit handbook/leave opened to ")
    assert "L-OUT-1" in out
    assert out.endswith("still pending: 0\n")
    assert visibility(database) == "public"
    code, out, _ = ask("events", "--json")
    event = json.loads(out.splitlines()[0])
    assert (event["kind"], event["severity"], event["action"]) == (
        "label_widened", "warning", "approved",
    )  # fmt: skip
    assert event["unit_ids"] == [change["object_id"]]
    assert ask("events", "verify")[0] == 0
    (kept,) = pending(ask, "--all")
    assert (kept["state"], kept["approver"], kept["event_id"]) == ("approved", "ann", event["id"])


def test_nobody_approves_for_an_audience_without_the_right_role_or_one_s_own_change(
    ask: Ask, database: Database, tmp_path: Path
) -> None:
    """A knowledge owner may open to employees and not to customers; the author to nobody, however
    the name is written."""
    ingest(ask, tmp_path, "carol")
    ingest(ask, tmp_path, "carol", visibility="public")
    (change,) = pending(ask)
    attempts = (
        OWNER,
        ["--as", "ann", "--role", "role:nobody", *DECIDE],
        ["--as", "carol", "--role", "role:risk_officer", *DECIDE],
        ["--as", " Carol ", "--role", "role:risk_officer", *DECIDE],
    )
    for options in attempts:
        code, out, err = ask("labels", "approve", change["id"], *options)
        assert (code, out) == (1, "still pending: 1\n")
        assert err.startswith("gateway: error: label_refused: ")
    assert visibility(database) == "employee"
    assert ask("events", "--json")[1] == ""


def test_a_caller_of_the_listener_approves_nothing_of_its_own_by_another_name(
    ask: Ask, database: Database, tmp_path: Path, snapshot: Snapshot
) -> None:
    """The listener writes an opaque id down. A name cannot be compared with it, so four eyes are
    not to be had by one; the same caller by its issuer is known, and another one may approve."""
    author = subject_id(snapshot.issuers[0].url, "carol-7")
    issuer = snapshot.issuers[0].alias
    ingest(ask, tmp_path, author)
    ingest(ask, tmp_path, author, visibility="public")
    (change,) = pending(ask)
    for name, told in (
        ("carol", "cannot be compared with its author"),
        (f"{issuer}:carol-7", "that wrote it"),
        (author.upper(), "that wrote it"),
    ):
        options = ["--as", name, "--role", "role:risk_officer", *DECIDE]
        code, _, err = ask("labels", "approve", change["id"], *options)
        assert code == 1
        assert told in err
    other = ["--as", f"{issuer}:ann-1", "--role", "role:risk_officer", *DECIDE]
    assert ask("labels", "approve", change["id"], *other)[0] == 0
    (kept,) = pending(ask, "--all")
    assert kept["approver"] == subject_id(snapshot.issuers[0].url, "ann-1")


def test_a_name_is_not_compared_with_a_caller_either(
    ask: Ask, tmp_path: Path, snapshot: Snapshot
) -> None:
    ingest(ask, tmp_path, "carol")
    ingest(ask, tmp_path, "carol", visibility="public")
    (change,) = pending(ask)
    caller = f"{snapshot.issuers[0].alias}:carol-7"
    options = ["--as", caller, "--role", "role:risk_officer", *DECIDE]
    code, _, err = ask("labels", "approve", change["id"], *options)
    assert (code, "cannot be compared with its author `carol`" in err) == (1, True)


def test_a_change_that_opens_to_nobody_any_more_takes_who_could_have_approved_it(
    ask: Ask, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy of today closes to customers and partners what waits for them; the next one may
    open it again, and asks no approver then."""
    ingest(ask, tmp_path, "carol")
    ingest(ask, tmp_path, "carol", visibility="public")
    close_to_outsiders(ask, tmp_path, monkeypatch)
    (change,) = pending(ask)
    assert (change["gains_now"], set(change["gained"])) == ([], {"customer", "partner"})
    for options in (
        ["--as", "carol", "--role", "role:risk_officer", *DECIDE],
        ["--as", "ann", "--role", "role:nobody", *DECIDE],
        OWNER,
    ):
        code, _, err = ask("labels", "approve", change["id"], *options)
        assert code == 1
        assert err.startswith("gateway: error: label_refused: ")
        assert "to customer, partner" in err
    assert visibility(database) == "employee"
    code, out, _ = ask("labels", "approve", change["id"], *RISK)
    assert (code, "opened to nobody by L-OUT-1 of policy" in out) == (0, True)
    assert visibility(database) == "public"


@pytest.mark.parametrize("state", ["pending", "rejected"])
def test_no_source_decides_by_saying_again_what_opens_to_nobody_today(
    ask: Ask, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The policy of tomorrow may open it again; other texts, and words that close, go through."""
    ingest(ask, tmp_path, "carol")
    ingest(ask, tmp_path, "carol", visibility="public")
    (change,) = pending(ask)
    if state == "rejected":
        assert ask("labels", "reject", change["id"], *RISK)[0] == 0
    close_to_outsiders(ask, tmp_path, monkeypatch)
    said = ingest(ask, tmp_path, "carol", visibility="public", title="Leave, anew")
    assert (visibility(database), [one["state"] for one in pending(ask, "--all")]) == (
        "employee", [state],
    )  # fmt: skip
    with psycopg.connect(database.url) as connection:
        assert connection.execute("select title from brain.unit").fetchone() == ("Leave, anew",)
    assert f"unit handbook/leave: {state}: opens to customer, partner" in said
    ingest(ask, tmp_path, "carol", visibility="restricted")
    assert (visibility(database), [one["state"] for one in pending(ask, "--all")]) == (
        "restricted", ["superseded"],
    )  # fmt: skip


def test_of_several_changes_each_is_decided_by_itself(
    ask: Ask, database: Database, tmp_path: Path
) -> None:
    """One that is refused stops no other; the exit code tells."""
    source = tmp_path / "units.jsonl"
    for staff in (True, False):
        lines = [RECORD | {"address": f"handbook/{n}"} for n in range(2)]
        if staff:
            lines = [one | {"visibility": "restricted"} for one in lines]
        else:
            lines[1] |= {"visibility": "public"}
        source.write_text("".join(json.dumps(one) + "\n" for one in lines))
        assert ask("ingest", str(source), "--mapping", "native", "--author", "carol")[0] == 0
    changes = {one["address"]: one["id"] for one in pending(ask)}
    code, out, err = ask("labels", "approve", changes["handbook/1"], changes["handbook/0"], *OWNER)
    assert code == 1
    assert out.startswith(f"approved {changes['handbook/0']}")
    assert len(err.splitlines()) == 1
    code, out, _ = ask("labels", "reject", changes["handbook/1"], *RISK)
    told = f"rejected {changes['handbook/1']}: unit handbook/1\nstill pending: 0\n"
    assert (code, out) == (0, told)
    assert pending(ask) == []


def test_another_policy_than_the_one_in_force_decides_nothing(
    ask: Ask, database: Database, tmp_path: Path
) -> None:
    """An edited rule that was not activated lets nobody approve."""
    ingest(ask, tmp_path, "carol")
    ingest(ask, tmp_path, "carol", visibility="public")
    (change,) = pending(ask)
    overlay = tmp_path / "overlay"
    (overlay / "rules").mkdir(parents=True)
    rules = (DEFAULT_FOLDER / "rules" / "labels.csv").read_text()
    (overlay / "rules" / "labels.csv").write_text(f"{rules}# an edit that was not activated\n")
    code, _, err = ask("labels", "approve", change["id"], *RISK, "--overlay", str(overlay))
    assert code == 1
    assert err.startswith("gateway: error: policy_differs: ")
    assert visibility(database) == "employee"


def test_what_is_no_change_is_one_clear_line(ask: Ask, tmp_path: Path) -> None:
    ingest(ask, tmp_path, "carol")
    absent = "00000000-0000-4000-8000-000000000000"
    for arguments, code in (
        (["approve", "nonsense", *RISK], "usage"),
        (["approve", absent, "--as", " ", *RISK[2:]], "usage"),
        (["approve", absent, *RISK], "unknown_label_change"),
        (["reject", absent, *RISK], "unknown_label_change"),
        (["show", absent], "unknown_label_change"),
    ):
        ended, _, err = ask("labels", *arguments)
        assert ended == (2 if code == "usage" else 1)
        assert err.startswith(f"gateway: error: {code}: ")
