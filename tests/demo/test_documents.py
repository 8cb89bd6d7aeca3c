"""The newcomer's page and the operator's page say nothing that is not so.

Every command line in them is held against the command line itself, every path and make
target against the repository, the settings example against the loader.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from deploy.demo.people import CLIENTS, Realm
from gateway.cli.app import app
from gateway.settings import ENVIRONMENT, load

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md"]
PROGRAM = ".venv/bin/gateway "


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def lines_and_quotes() -> list[str]:
    """Every line of a code block without its comment, continued ones joined, and every inline
    quotation."""
    found: list[str] = []
    for page in PAGES:
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL):
            whole = block.replace("\\\n", "")
            found += [line.partition(" # ")[0].strip() for line in whole.splitlines()]
        found += re.findall(r"`([^`\n]+)`", text_of(page))
    return found


def commands() -> list[str]:
    return sorted({one for one in lines_and_quotes() if one.startswith(PROGRAM)})


@pytest.mark.parametrize("line", commands())
def test_every_printed_command_and_option_exists(line: str) -> None:
    words = shlex.split(line.removeprefix(PROGRAM))
    command = typer.main.get_command(app)
    path: list[str] = []
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words.pop(0))
        command = command.commands[path[-1]]  # type: ignore[attr-defined]
    assert path, line
    if path == ["policy", "verify"]:  # passes its options on to the policy house
        return
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_make_target_exists() -> None:
    makefile = text_of(ROOT / "Makefile")
    targets = {one.split()[1] for one in lines_and_quotes() if one.startswith("make ")}
    assert {"demo", "test"} <= targets
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in targets)


def test_every_path_exists() -> None:
    named = {
        path
        for page in PAGES
        for path in re.findall(
            r"(?<![\w./])(?:policies|retrieval|gateway|deploy|tests)/[\w./-]*[\w/]", text_of(page)
        )
    }
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).exists()]


def test_paths_of_the_operators_tables_exist() -> None:
    page = text_of(ROOT / "deploy" / "README.md")
    named = set(re.findall(r"`((?:demo|requirements)/[\w./]+)`", page))
    assert len(named) > 8
    assert not [path for path in named if not (ROOT / "deploy" / path).exists()]


def test_every_variable_is_documented_and_every_documented_one_exists() -> None:
    page = text_of(ROOT / "deploy" / "README.md")
    named = set(re.findall(r"`((?:GATEWAY|OTEL)_[A-Z_]*[A-Z])`", page)) - {"GATEWAY_CONFIG"}
    assert named == set(ENVIRONMENT)


def test_the_settings_examples_are_accepted(tmp_path: Path) -> None:
    page = text_of(ROOT / "deploy" / "README.md")
    example, portal = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "gateway.toml"
    file.write_text(example + portal)
    (tmp_path / "database-secret").write_text("secret")
    (tmp_path / "qdrant-key").write_text("key")
    settings = load(file, {})
    assert settings.upstreams.keys() == {"customer-portal", "wiki"}


def test_every_person_who_may_ask_is_named() -> None:
    page = text_of(ROOT / "README.md")
    people = {one.name for one in CLIENTS if one.realm is not Realm.SERVICES}
    assert all(f"`{name}`" in page for name in people)
    asked = set(re.findall(r"--as ([a-z-]+)", page))
    assert asked <= people


def test_licences_of_all_locked_distributions_are_noted() -> None:
    """Mandated by the issue; made by a script, so that a new lock cannot forget it."""
    script = ROOT / "deploy" / "requirements" / "licences.py"
    run = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    "lock", ["run.txt", "dev.txt", "bench.txt", "proxies.txt", "mutation.txt", "fuzz.txt"]
)
def test_locks_hold_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / "deploy" / "requirements" / lock).read_text("utf-8")
    pinned = re.findall(r"^[A-Za-z0-9._-]+==", text, re.MULTILINE)
    assert len(pinned) >= 3
    assert text.count("--hash=sha256:") >= len(pinned)
    assert "://" not in text
