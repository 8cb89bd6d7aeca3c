"""``gateway ingest --from postgres``: another database's views, and what cannot be one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from gateway.cli.app import run as command
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.retrieval.ingest.test_database import SHIPPED, TABLES
from tests.services import Cluster, Database, fresh_database

Ask = Callable[..., tuple[int, str, str]]
VIEWS = ["ingest", "--from", "postgres", "--source", "kb", "--mapping"]


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Database]:
    with fresh_database(cluster) as made, psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute(TABLES.encode())
        connection.execute((SHIPPED / "views.sql").read_bytes())
        yield made


@pytest.fixture
def ask(
    services: Embedded,
    database: Database,
    other: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    for name, value in environment(services, database, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GATEWAY_SOURCE_URL", other.url)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command(list(arguments))
        return code, *capsys.readouterr()

    return run


def test_views_are_read_by_a_mapping_and_again_only_what_changed(ask: Ask) -> None:
    """A word that the mapping does not know is quarantine: exit code 6."""
    mapping = str(SHIPPED / "mapping.yaml")
    code, out, _ = ask(*VIEWS, mapping, "--json")
    report = json.loads(out)
    assert (code, report["accepted"]) == (6, 11)
    code, out, _ = ask(*VIEWS, mapping, "--overlap", "0", "--json")
    assert (code, json.loads(out)["by_sort"]) == (0, {})
    code, out, _ = ask(*VIEWS, mapping, "--full", "--json")
    assert json.loads(out)["unchanged"] == 11


def test_what_is_no_source_is_one_clear_line(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection string is never told."""
    mapping = str(SHIPPED / "mapping.yaml")
    for arguments, code in (
        ([*VIEWS, mapping, "some/path"], "no_source"),
        ([*VIEWS, mapping, "--schema", "absent"], "source_unfit"),
        (["ingest", "--mapping", mapping], "no_source"),
        (["ingest", str(SHIPPED), "--mapping", mapping, "--full"], "usage"),
    ):
        ended, _, err = ask(*arguments)
        assert ended in (2, 4), arguments
        assert f"gateway: error: {code}: " in err
    monkeypatch.setenv("GATEWAY_SOURCE_URL", "host=127.0.0.1 port=1 password=hush")
    ended, _, err = ask(*VIEWS, mapping)
    assert (ended, "source_unreachable" in err, "hush" in err) == (4, True, False)
    monkeypatch.delenv("GATEWAY_SOURCE_URL")
    assert ask(*VIEWS, mapping)[0] == 2
