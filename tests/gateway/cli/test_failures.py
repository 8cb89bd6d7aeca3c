"""What goes wrong is one line with a remedy, and the right exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.authn.revoked import read_revoked
from gateway.cli.app import run
from gateway.compose.live import tell_strangers
from policies.snapshot import DEFAULT_FOLDER, load
from tests.gateway.cli.made import Ended, gateway

# code, then a reason, then a remedy
_LINE = re.compile(r"gateway: error: [a-z_]+: .+; .+")


def one_line(ended: Ended, exit_code: int, code: str) -> str:
    """The one error line of a command that failed with this exit code and code."""
    assert ended.code == exit_code, ended
    (line,) = ended.lines
    assert _LINE.fullmatch(line)
    assert line.startswith(f"gateway: error: {code}: ")
    return line


@contextmanager
def taken_port() -> Iterator[str]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("serve", "--nonsense"),
        ("query",),
        ("query", "x"),
        ("query", "x", "--as", "a", "--token-file", "b"),
        ("query", "x", "--k", "0", "--as", "a"),
        ("query", "", "--token-file", "b"),
        ("events", "verify", "--head", "nonsense"),
        ("consent", "revoke", "nonsense"),
    ],
)
def test_wrong_usage_is_exit_two(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line instead of a page of help, and it names where the help is."""
    code = run(list(arguments))
    out, err = capsys.readouterr()
    one_line(Ended(code, out, err.splitlines()), 2, "usage")


def test_process_ends_with_the_code_and_the_line() -> None:
    """The same through the command itself, as a script sees it."""
    one_line(gateway("fly"), 2, "usage")


def test_settings_faults_are_one_line_each(tmp_path: Path) -> None:
    """All at once, exit 2."""
    config = tmp_path / "g.toml"
    config.write_text("sample = 1\nother = 2\n")
    ended = gateway("serve", "--config", str(config))
    assert ended.code == 2
    assert len(ended.lines) == 2
    assert all(line.startswith("gateway: error: settings_invalid: ") for line in ended.lines)
    assert all(_LINE.fullmatch(line) for line in ended.lines)


@pytest.mark.parametrize("command", ["serve", "check"])
def test_invalid_policy_at_start_is_exit_three_with_every_fault(
    tmp_path: Path, command: str
) -> None:
    """Nothing is started: no store, no listener. Every fault has its file, line and remedy."""
    folder = tmp_path / "policies"
    shutil.copytree(DEFAULT_FOLDER, folder)
    rules = folder / "rules" / "units.csv"
    rules.chmod(rules.stat().st_mode | stat.S_IWUSR)
    rules.write_text(rules.read_text() + "p, X-1, nobody, nonsense\np, X-2\n")
    state = tmp_path / "state"
    ended = gateway(command, GATEWAY_POLICY=str(folder), GATEWAY_STATE=str(state))
    assert ended.code == 3, ended
    assert len(ended.lines) >= 2
    assert all("units.csv:" in line and _LINE.fullmatch(line) for line in ended.lines)
    assert not state.exists()


def test_a_fault_of_a_mapping_file_is_told_at_the_file_that_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read as if it lay in the policy folder, where nobody would find it."""
    file = tmp_path / "handbook.yaml"
    file.write_text("name: handbook\nfields:\n\treaders: {}\n")
    (tmp_path / "none.jsonl").write_text("")
    assert run(["ingest", str(tmp_path / "none.jsonl"), "--mapping", str(file)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gateway: error: mapping_invalid: {file}:3:1: control_character: ")


def test_store_that_does_not_answer_is_exit_four() -> None:
    """Postgres down at the start: said at once, with what to do."""
    line = one_line(
        gateway(
            "serve",
            GATEWAY_DATABASE_URL="postgresql://nobody@127.0.0.1:1/x?connect_timeout=3",
            GATEWAY_DATABASE_SECRET="do-not-print-this",
            GATEWAY_QDRANT_URL="http://127.0.0.1:1",
            GATEWAY_LISTEN="127.0.0.1:0",
            GATEWAY_ADMIN_LISTEN="127.0.0.1:0",
        ),
        4,
        "database_unavailable",
    )
    assert "do-not-print-this" not in line


def test_embedded_services_that_cannot_start_are_exit_four(tmp_path: Path) -> None:
    """The state folder is a file: the embedded supervisor's own code and remedy."""
    place = tmp_path / "file"
    place.write_text("x")
    line = one_line(
        gateway(
            "serve",
            GATEWAY_STATE=str(place / "state"),
            GATEWAY_LISTEN="127.0.0.1:0",
            GATEWAY_ADMIN_LISTEN="127.0.0.1:0",
        ),
        4,
        "state_unwritable",
    )
    assert "GATEWAY_STATE" in line


@pytest.mark.parametrize("listener", ["GATEWAY_LISTEN", "GATEWAY_ADMIN_LISTEN"])
def test_taken_port_is_exit_five_before_any_store_is_started(tmp_path: Path, listener: str) -> None:
    """Both listeners; the state folder is not even made."""
    state = tmp_path / "state"
    free = {"GATEWAY_LISTEN": "127.0.0.1:0", "GATEWAY_ADMIN_LISTEN": "127.0.0.1:0"}
    with taken_port() as address:
        ended = gateway("serve", GATEWAY_STATE=str(state), **(free | {listener: address}))
    assert address in one_line(ended, 5, "port_taken")
    assert not state.exists()


def test_no_gateway_running_is_said_with_the_remedy(tmp_path: Path) -> None:
    """Exit 4: `gateway query` needs a gateway."""
    token = tmp_path / "token"
    token.write_text("abc\n")
    line = one_line(
        gateway("query", "hello", "--token-file", str(token), "--url", "http://127.0.0.1:1"),
        4,
        "gateway_unreachable",
    )
    assert "gateway serve" in line


def test_token_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    """http beyond loopback is refused before a connection is made."""
    token = tmp_path / "token"
    token.write_text("abc\n")
    one_line(
        gateway("query", "hello", "--token-file", str(token), "--url", "http://192.0.2.1"),
        2,
        "insecure_address",
    )


def test_unknown_identity_names_the_known_ones(tmp_path: Path) -> None:
    """The demo writes the file; a slip of the pen should cost one look."""
    file = tmp_path / "identities.json"
    file.write_text(
        '{"partner": {"token_url": "http://127.0.0.1:1/t", "client_id": "a",'
        ' "client_secret": "do-not-print-this"}}'
    )
    line = one_line(
        gateway("query", "x", "--as", "partmer", "--identities", str(file)), 2, "unknown_identity"
    )
    assert "`partner`" in line
    assert "do-not-print-this" not in line


def test_provider_that_is_down_is_exit_four(tmp_path: Path) -> None:
    """An identity that cannot be had is not a refusal of the gateway."""
    file = tmp_path / "identities.json"
    file.write_text(
        '{"a": {"token_url": "http://127.0.0.1:1/t", "client_id": "a", "client_secret": "b"}}'
    )
    one_line(
        gateway("query", "x", "--as", "a", "--identities", str(file)), 4, "identity_unavailable"
    )


def test_check_tells_the_digest_and_starts_nothing(tmp_path: Path) -> None:
    """Settings and policy proven; for a pipeline before a roll-out."""
    state = tmp_path / "state"
    ended = gateway("check", GATEWAY_STATE=str(state))
    assert (ended.code, ended.lines) == (0, [])
    assert re.search(r"^digest: [0-9a-f]{64}$", ended.out, re.MULTILINE)
    assert not state.exists()


def test_policy_verify_is_the_policy_houses_own_command() -> None:
    """`gateway policy verify` = `python -m policies verify`, its exit code included."""
    ended = gateway("policy", "verify")
    assert ended.code == 0, ended
    assert "equals Casbin" in ended.out


def test_a_folder_is_no_token(tmp_path: Path) -> None:
    """Nobody can read a token from it, root neither."""
    one_line(gateway("query", "x", "--token-file", str(tmp_path)), 2, "token_unreadable")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_token_is_said(tmp_path: Path) -> None:
    """A file without rights is not an empty token."""
    token = tmp_path / "token"
    token.write_text("abc")
    token.chmod(0)
    one_line(gateway("query", "x", "--token-file", str(token)), 2, "token_unreadable")


def test_check_warns_where_strangers_meet_an_unsigned_policy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is wrong with it on a developer's own machine."""
    monkeypatch.setenv("GATEWAY_LISTEN", "127.0.0.1:8080")
    assert run(["check"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("GATEWAY_LISTEN", "0.0.0.0:8080")
    assert run(["check"]) == 0
    out, err = capsys.readouterr()
    assert "release: development, nothing has to be signed" in out
    assert err.startswith("gateway: warning: unsigned_release: 0.0.0.0:8080 ")


def test_check_names_the_upstreams_that_have_no_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would start, and each of their routes would answer 502."""
    assert run(["check"]) == 0
    assert "no address in the settings: customer-portal, employee-portal, partner-portal;" in (
        capsys.readouterr().out
    )
    file = tmp_path / "gateway.toml"
    names = ("customer-portal", "employee-portal", "partner-portal")
    file.write_text("".join(f'[upstreams.{n}]\naddress = "http://127.0.0.1:1"\n' for n in names))
    assert run(["check", "--config", str(file)]) == 0
    assert "no address" not in capsys.readouterr().out


def test_an_issuer_that_policy_has_not_is_told_to_revoke_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """By the validator and in the log of what serves: a typing error is seen as one."""
    listed, config = tmp_path / "revoked.jsonl", tmp_path / "gateway.toml"
    words = {"iss": "https://typo.example/", "jti": "a", "until": "2100-01-01T00:00:00Z"}
    listed.write_text(json.dumps(words))
    config.write_text(f'[tokens]\nrevoked_file = "{listed}"\n')
    assert run(["check", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    tell_strangers(read_revoked(listed.read_bytes()), load(DEFAULT_FOLDER))
    (record,) = caplog.records
    told = "a revocation names `https://typo.example/`, which is no issuer of policy"
    assert err == f"gateway: warning: unknown_issuer: {told}: it revokes nothing\n"
    assert record.getMessage() == f"settings: {told}: it revokes nothing"
    assert "revocations: 1 tokens, 0 callers\n" in out
