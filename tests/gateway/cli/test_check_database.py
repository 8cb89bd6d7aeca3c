"""``gateway check --database``: what keeps our schemas out of an existing database."""

from __future__ import annotations

import psycopg
import pytest

from gateway.cli.app import run
from tests.services import Database


def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> tuple[int, str, list[str]]:
    monkeypatch.setenv("GATEWAY_DATABASE_URL", url)
    monkeypatch.setenv("GATEWAY_DATABASE_SECRET", "a secret of some length")
    capsys.readouterr()
    code = run(["check", "--database"])
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def test_a_database_that_can_take_our_schemas_is_said_to(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = told(monkeypatch, capsys, empty_database.url)
    assert (code, err) == (0, [])
    assert "database ok: " in out


def test_everything_that_is_missing_is_one_line_each(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(empty_database.url) as connection:
        connection.execute("create schema gate; create schema migration")
    code, out, err = told(monkeypatch, capsys, empty_database.url)
    assert code == 4
    assert "database ok" not in out
    assert [one.split(": ")[2] for one in err] == ["schema_taken", "schema_taken"]


def test_a_database_that_is_down_or_not_named_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = told(monkeypatch, capsys, "postgresql://x@127.0.0.1:1/x")
    assert code == 4
    assert len(err) == 1
    monkeypatch.delenv("GATEWAY_DATABASE_URL")
    monkeypatch.delenv("GATEWAY_DATABASE_SECRET")
    capsys.readouterr()
    assert run(["check", "--database"]) == 2
    assert capsys.readouterr().out == ""  # nothing is ok beside it
