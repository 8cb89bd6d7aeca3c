"""Options that several commands share: each command has them as its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli.app import run
from gateway.cli.shared_options import sharing
from policies.snapshot import DEFAULT_FOLDER


@dataclass(frozen=True, kw_only=True)
class Group:
    name: Annotated[str, typer.Option("--as")]
    loud: Annotated[bool, typer.Option("--loud")] = False


def test_the_fields_of_a_group_are_options_of_each_command() -> None:
    app = typer.Typer()

    @app.command("greet")
    @sharing
    def greet(asked: Group, whom: Annotated[str, typer.Argument()], times: int = 1) -> None:
        print(asked.name, asked.loud, whom, times)

    @app.command("leave")
    @sharing
    def leave(asked: Group) -> None:
        print(asked)

    told = CliRunner().invoke(app, ["greet", "world", "--as", "ann", "--times", "2"])
    assert (told.exit_code, told.output) == (0, "ann False world 2\n")
    told = CliRunner().invoke(app, ["leave", "--as", "ann", "--loud"])
    assert "name='ann', loud=True" in told.output
    assert CliRunner().invoke(app, ["leave"]).exit_code == 2, "--as is needed"


def test_a_command_has_one_group() -> None:
    def none(whom: str) -> None:
        raise AssertionError(whom)

    def two(first: Group, second: Group) -> None:
        raise AssertionError(first, second)

    for function, count in ((none, 0), (two, 2)):
        with pytest.raises(TypeError, match=f"takes {count} groups"):
            sharing(function)


def test_a_check_is_of_the_policy_with_its_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that one can check what a gateway with an overlay would serve."""
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    (tmp_path / "rules").mkdir()
    rules = (DEFAULT_FOLDER / "rules" / "labels.csv").read_text()
    (tmp_path / "rules" / "labels.csv").write_text(f"{rules}# another\n")
    digests = []
    for options in ([], ["--overlay", str(tmp_path)]):
        assert run(["check", *options]) == 0
        digests.append(capsys.readouterr().out.split("digest: ")[1].split()[0])
    assert digests[0] != digests[1]
