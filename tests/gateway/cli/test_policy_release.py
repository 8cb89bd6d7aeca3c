"""A release from the signer's desk to every gateway, and back: the commands, on a real database."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gateway.cli.app import run
from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.services import Cluster, Database, fresh_database

ISSUERS = "rules/issuers.yaml"
WIDER = (
    "p, U-CUS-9, customer, partner, published, published, low, enacted, faq, none|granted, allow\n"
)


@dataclass(frozen=True)
class Desk:
    """Three signers, a folder, and a database whose gateway believes them."""

    tmp: Path
    folder: Path
    database: Database

    def key(self, *names: str) -> list[str]:
        return [word for name in names for word in ("--key", str(self.tmp / f"{name}.pem"))]

    def append(self, rows: str) -> None:
        path = self.folder / "rules/units.csv"
        path.write_text(path.read_text() + rows)

    def drop(self, start: str) -> None:
        """Remove the row that starts so."""
        path = self.folder / "rules/units.csv"
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(start)]
        assert len(kept) == len(lines) - 1
        path.write_text("".join(kept))

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.url) as connection:
            return connection.execute(statement.encode()).fetchall()

    @property
    def active(self) -> int:
        rows = self.ask("select generation from gate.active_revision")
        return int(rows[0][0]) if rows else 0


def policy(*words: object) -> int:
    return run(["policy", *map(str, words)])


@contextmanager
def at_desk(services: Embedded, database: Database, tmp: Path) -> Iterator[Desk]:
    """The settings of a production environment in the folder of its keys and its policy."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(services, database, tmp).items():
            patch.setenv(name, value)
        patch.setenv("GATEWAY_RELEASE_ENVIRONMENT", "production")
        patch.setenv("GATEWAY_RELEASE_KEYS_FILE", str(tmp / "keys.json"))
        yield Desk(tmp, tmp / "policy", database)


@pytest.fixture(scope="module")
def drawer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pairs of keys, two of them trusted, and the default policy: for others to copy."""
    folder = tmp_path_factory.mktemp("drawer")
    keys = []
    for name in ("ann", "bob", "eve"):
        with redirect_stdout(StringIO()) as out:
            assert policy("keygen", name, "--out", folder / f"{name}.pem") == 0
        keys.append(json.loads(out.getvalue()))
    (folder / "keys.json").write_text(json.dumps({"keys": keys[:2]}))
    for part in ("rules", "models", "mappings", "cases"):
        shutil.copytree(DEFAULT_FOLDER / part, folder / "policy" / part)
    return folder


@pytest.fixture(scope="module")
def first(
    services: Embedded,
    cluster: Cluster,
    migrated_template: Database,
    drawer: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:
    """Generation 1 is signed by both and active. Never write to it: see ``released``."""
    folder = shutil.copytree(drawer, tmp_path_factory.mktemp("first"), dirs_exist_ok=True)
    with fresh_database(cluster, template=migrated_template.name) as database:
        with at_desk(services, database, folder) as desk:
            both = desk.key("ann", "bob")
            assert policy("approve", desk.folder, *both, "--reason", "first") == 0
            assert policy("activate", desk.folder) == 0
        yield desk


@pytest.fixture
def desk(services: Embedded, database: Database, drawer: Path, tmp_path: Path) -> Iterator[Desk]:
    """A database without a release."""
    shutil.copytree(drawer, tmp_path, dirs_exist_ok=True)
    with at_desk(services, database, tmp_path) as desk:
        yield desk


@pytest.fixture
def released(services: Embedded, cluster: Cluster, first: Desk, tmp_path: Path) -> Iterator[Desk]:
    """A copy of the desk and the database with generation 1."""
    shutil.copytree(first.tmp, tmp_path, dirs_exist_ok=True)
    with (
        fresh_database(cluster, template=first.database.name) as database,
        at_desk(services, database, tmp_path) as desk,
    ):
        yield desk


def test_a_key_pair_is_private_and_made_once(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    path = desk.tmp / "ann.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert policy("keygen", "ann", "--out", path) == 2
    assert policy("keygen", "Ann!", "--out", desk.tmp / "other.pem") == 3
    assert not (desk.tmp / "other.pem").exists()


def test_a_first_release_takes_both_signers(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """The first makes the file, the second adds to it, and then it may be served."""
    assert policy("approve", desk.folder, *desk.key("ann")) == 0
    out = capsys.readouterr().out
    assert "generation 1 of production, on nothing" in out
    assert "needs 1 more signer of bob" in out
    assert policy("activate", desk.folder) == 3
    assert "too_few_signers" in capsys.readouterr().err
    assert policy("approve", desk.folder, *desk.key("ann")) == 3
    assert "duplicate_signer" in capsys.readouterr().err
    assert policy("approve", desk.folder, *desk.key("bob")) == 0
    assert "no more signer is needed" in capsys.readouterr().out
    assert policy("activate", desk.folder) == 0
    out = capsys.readouterr().out
    assert "generation: 1" in out
    assert "replicas: 0 of 0 serve it" in out
    assert desk.active == 1


def test_a_first_release_brings_an_empty_database_to_this_version(
    desk: Desk, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_DATABASE_URL", empty_database.url)
    assert policy("approve", desk.folder, *desk.key("ann", "bob")) == 0
    assert policy("activate", desk.folder) == 0
    assert Desk(desk.tmp, desk.folder, empty_database).active == 1


def test_a_key_that_is_not_trusted_signs_nothing(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert policy("approve", desk.folder, *desk.key("eve")) == 3
    assert "unknown_key" in capsys.readouterr().err
    assert not (desk.folder / "release.json").exists()


def test_a_key_that_others_may_read_signs_nothing(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever could read it could have signed as well."""
    (desk.tmp / "ann.pem").chmod(0o640)
    assert policy("approve", desk.folder, *desk.key("ann")) == 2
    assert "key_unusable" in capsys.readouterr().err
    assert not (desk.folder / "release.json").exists()


def test_check_tells_whose_signatures_count(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing need be signed yet: it says what it takes, not what there is."""
    assert run(["check"]) == 0
    told = capsys.readouterr().out
    assert "release: production; it needs the signature of one of ann, bob," in told
    assert "to open anything of 2" in told


def test_one_signer_may_close_and_two_may_open(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """And going back to what was closed opens, so that it takes two again."""
    released.drop("p, U-CUS-1,")
    assert policy("approve", released.folder, *released.key("bob"), "--reason", "less") == 0
    assert "change: narrowing" in capsys.readouterr().out
    assert policy("activate", released.folder) == 0
    assert released.active == 2
    capsys.readouterr()

    assert policy("rollback", "--reason", "too much", *released.key("ann")) == 3
    err = capsys.readouterr().err
    assert "too_few_signers: going back to generation 1 needs 1 more signer of bob" in err
    assert released.active == 2
    assert policy("rollback", "--reason", "too much", *released.key("ann", "bob")) == 0
    assert "generation: 3" in capsys.readouterr().out
    digests = dict(released.ask("select generation, digest from gate.policy_release"))
    assert digests[1] == digests[3] != digests[2]
    assert policy("rollback", "--reason", "again", *released.key("ann", "bob")) == 2
    assert "name the generation" in capsys.readouterr().err
    assert policy("rollback", "2", "--reason", "again", *released.key("bob")) == 0
    assert released.active == 4


def test_a_widening_with_one_signer_is_not_served(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever its manifest says; forcing skips no verification."""
    released.append(WIDER)
    assert policy("approve", released.folder, *released.key("ann")) == 0
    out = capsys.readouterr().out
    assert "change: WIDENING" in out
    assert "customer: +" in out
    for extra in ((), ("--force",)):
        assert policy("activate", released.folder, *extra) == 3
        assert "too_few_signers" in capsys.readouterr().err
    assert released.active == 1
    assert released.ask("select count(*) from gate.policy_release") == [(1,)]


def test_a_folder_that_changed_since_is_neither_co_signed_nor_served(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    released.append(WIDER)
    assert policy("approve", released.folder, *released.key("ann")) == 0
    released.append("# one word more\n")
    assert policy("approve", released.folder, *released.key("bob")) == 3
    assert "folder_differs" in capsys.readouterr().err
    assert policy("activate", released.folder) == 3
    assert "hash_mismatch" in capsys.readouterr().err
    assert policy("approve", released.folder, *released.key("bob"), "--new") == 0
    assert "signed by: bob" in capsys.readouterr().out


def test_a_release_of_a_base_that_moved_is_refused(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two reviewers at once: the second sees a change that is not the one that would happen."""
    other = released.tmp / "other"
    shutil.copytree(released.folder, other)
    released.append(WIDER)
    assert policy("approve", released.folder, *released.key("ann", "bob")) == 0
    (other / "rules/units.csv").write_text((other / "rules/units.csv").read_text() + "# a note\n")
    assert policy("approve", other, *released.key("ann", "bob")) == 0
    assert policy("activate", other) == 0
    capsys.readouterr()
    assert policy("activate", released.folder) == 3
    assert "older_generation" in capsys.readouterr().err


def test_a_signer_is_told_of_cases_that_do_not_hold(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever signs sees what the folder's own expectations say of it, before it is served."""
    released.append("# a note\n")
    assert policy("approve", released.folder, *released.key("ann")) == 0
    assert "cases:" not in capsys.readouterr().out
    released.drop("p, U-CUS-1,")
    assert policy("approve", released.folder, *released.key("ann"), "--new") == 0
    told = capsys.readouterr().out
    assert "cases: `" in told
    assert "does not hold" in told
    for case in (released.folder / "cases").iterdir():
        case.unlink()
    assert policy("approve", released.folder, *released.key("ann"), "--new") == 0
    assert "cases: cannot be read: " in capsys.readouterr().out


def test_a_signer_without_a_database_compares_with_a_folder(
    released: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of the environment and the folder that is live are all that it takes."""
    base = released.tmp / "base"
    shutil.copytree(released.folder, base)
    released.drop("p, U-CUS-1,")
    with monkeypatch.context() as offline:
        offline.delenv("GATEWAY_DATABASE_URL")
        offline.delenv("GATEWAY_DATABASE_SECRET")
        command = ("approve", released.folder, *released.key("ann"), "--base", base)
        assert policy(*command) == 0
        assert "generation 2 of production, on generation 1" in capsys.readouterr().out
        (base / "rules/units.csv").write_text("")
        assert policy(*command) == 2
        assert "no_base" in capsys.readouterr().err
    assert policy("activate", released.folder) == 0


def test_a_signer_without_a_database_is_asked_what_is_active(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedded store that was started for it would be an empty one: a first release."""
    for name in ("GATEWAY_DATABASE_URL", "GATEWAY_DATABASE_SECRET"):
        monkeypatch.delenv(name)
    state = desk.tmp / "nowhere"
    monkeypatch.setenv("GATEWAY_STATE", str(state))
    assert policy("approve", desk.folder, *desk.key("ann")) == 2
    told = capsys.readouterr().err
    assert "no_base: no database is set and no gateway runs here" in told
    assert "--base" in told
    assert not state.exists()
    assert not (desk.folder / "release.json").exists()


def test_a_number_beside_a_release_of_another_number_is_told_apart(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not taken for a second signature of the same signer under the first one."""
    ann = desk.key("ann")
    assert policy("approve", desk.folder, *ann, "--generation", 1) == 0
    assert policy("approve", desk.folder, *ann, "--generation", 2) == 3
    told = capsys.readouterr().err
    assert "other_generation: `release.json` is generation 1, and 2 was asked for" in told
    assert "--new" in told
    assert policy("approve", desk.folder, *ann, "--generation", 1) == 3
    assert "duplicate_signer" in capsys.readouterr().err
    assert policy("approve", desk.folder, *ann, "--generation", 2, "--new") == 0
    assert "generation 2 of production" in capsys.readouterr().out


def test_history_names_who_signed_what_and_why(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert policy("history", "--format", "json") == 0
    (release,) = json.loads(capsys.readouterr().out)["releases"]
    assert (release["generation"], release["state"], release["signers"], release["reason"]) == (
        1,
        "active",
        ["ann", "bob"],
        "first",
    )
    assert policy("history") == 0
    assert "ann, bob" in capsys.readouterr().out


def test_history_lists_replicas_in_one_table(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two workers of one host are two rows, told apart by when they were started."""
    for _ in range(2):
        released.ask(
            "insert into gate.replica (id, host, digest, generation)"
            " values (gen_random_uuid(), 'here', repeat('0', 64), 1) returning id"
        )
    assert policy("history") == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("replica"))
    assert [line.split()[0] for line in lines[start:]] == ["replica", "here", "here"]


def test_development_activates_without_signatures_and_says_so(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GATEWAY_RELEASE_ENVIRONMENT")
    monkeypatch.delenv("GATEWAY_RELEASE_KEYS_FILE")
    assert policy("activate", desk.folder) == 0
    desk.append(WIDER)
    assert policy("activate", desk.folder, "--reason", "a try") == 0
    assert "unsigned: this is development" in capsys.readouterr().out
    assert desk.ask("select generation, change, jws, state from gate.policy_release") == [
        (1, "widening", None, "past"),
        (2, "widening", None, "active"),
    ]
    assert policy("rollback", "--reason", "enough") == 0
    assert desk.active == 3


def test_development_goes_on_with_its_overlay(
    desk: Desk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A provider on loopback stays one in the release: it is compared, and rolled back to. It is
    dropped only by who says so."""
    monkeypatch.delenv("GATEWAY_RELEASE_ENVIRONMENT")
    monkeypatch.delenv("GATEWAY_RELEASE_KEYS_FILE")
    (tmp_path / "over" / "rules").mkdir(parents=True)
    text = (desk.folder / ISSUERS).read_text()
    text = text.replace("https://login.staff.example", "http://127.0.0.1:8400")
    (tmp_path / "over" / ISSUERS).write_text(text)
    over = "--overlay", tmp_path / "over"
    assert policy("activate", desk.folder, *over) == 0
    desk.append(WIDER)
    assert policy("activate", desk.folder) == 2
    told = capsys.readouterr().err
    assert f"overlay_dropped: the active policy has {ISSUERS} from an overlay" in told
    assert "--no-overlay" in told
    assert policy("activate", desk.folder, *over, "--no-overlay") == 2
    assert policy("activate", desk.folder, *over) == 0
    assert policy("rollback", "--reason", "enough") == 0
    rows = desk.ask("select generation, change, overlaid from gate.policy_release order by 1")
    assert rows == [
        (1, "widening", [ISSUERS]),
        (2, "widening", [ISSUERS]),
        (3, "narrowing", [ISSUERS]),
    ]
    assert policy("shadow", "start", desk.folder, *over, "--reason", "a trial") == 0
    assert policy("shadow", "show") == 0
    assert policy("shadow", "stop") == 0
    assert policy("activate", desk.folder, "--no-overlay") == 0
    assert policy("activate", desk.folder) == 0


def test_development_does_not_touch_a_database_of_signed_releases(
    released: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GATEWAY_RELEASE_ENVIRONMENT")
    monkeypatch.delenv("GATEWAY_RELEASE_KEYS_FILE")
    released.append(WIDER)
    assert policy("activate", released.folder) == 3
    assert "environment_differs" in capsys.readouterr().err
    assert released.active == 1
