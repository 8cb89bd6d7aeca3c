"""The demo stands on the houses; no house knows of the demo."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies.snapshot import load

ROOT = Path(__file__).resolve().parents[2]


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("house", ["gateway", "policies", "retrieval"])
def test_no_house_imports_the_demo(house: str) -> None:
    """Mandated by the issue: the identity provider is never importable from production."""
    files = list((ROOT / house).rglob("*.py"))
    assert files
    for file in files:
        assert not [name for name in imported(file) if name.split(".")[0] == "deploy"], file


@pytest.mark.parametrize("house", ["gateway", "policies", "retrieval"])
def test_no_house_names_the_demo_as_a_module_to_load(house: str) -> None:
    """A name in a string (importlib, a subprocess) would be an import, too."""
    for file in (ROOT / house).rglob("*.py"):
        assert "deploy.demo" not in file.read_text("utf-8"), file


def test_the_default_policy_trusts_no_issuer_of_the_demo() -> None:
    """Nothing on loopback, and nobody but the example addresses that exist nowhere."""
    for issuer in load().issuers:
        assert issuer.url.startswith("https://")
        assert issuer.url.split("/")[2].endswith(".example")
