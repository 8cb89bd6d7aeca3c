"""What ships in deploy/ for each proxy passes that proxy's own checker, and would fail it."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system.proxies.kinds import KINDS, Kind, Ports, proxying

CHECKED = [kind for kind in KINDS.values() if kind.check]


def _checked(kind: Kind, folder: Path) -> int:
    line = kind.line(kind.check, folder)
    return subprocess.run(line, capture_output=True, cwd=folder, timeout=60).returncode


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.name)
def test_shipped_configuration_passes_its_proxys_own_check(kind: Kind, tmp_path: Path) -> None:
    """The issue: ready configurations, validated by that proxy's own checker."""
    kind.write(tmp_path, Ports(8080, 9001, free_port()))
    assert _checked(kind, tmp_path) == 0


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.name)
def test_the_check_notices_an_unknown_word(kind: Kind, tmp_path: Path) -> None:
    """Chosen by us: a checker that passes everything would prove nothing."""
    kind.write(tmp_path, Ports(8080, 9001, free_port()))
    path = tmp_path / kind.files[0]
    words = {"nginx": "auth_request ", "envoy": "failure_mode_allow:", "caddy": "copy_headers "}
    text = path.read_text()
    assert words[kind.name] in text
    path.write_text(text.replace(words[kind.name], "no_such_" + words[kind.name]))
    assert _checked(kind, tmp_path) != 0


def test_traefik_takes_every_part_of_its_files(tmp_path: Path) -> None:
    """Traefik has no checker: the running one is asked what it made of each part."""
    kind, port = KINDS["traefik"], free_port()

    def with_api(folder: Path) -> None:
        path = folder / "traefik.yml"
        entry = f"entryPoints:\n  traefik:\n    address: 127.0.0.1:{port}"
        text = path.read_text().replace("entryPoints:", entry, 1)
        path.write_text(f"{text}\napi:\n  insecure: true\n")

    with proxying(kind, tmp_path, gateway=free_port(), upstream=free_port(), edit=with_api):
        for part, names in (
            ("routers", {"portal@file"}),
            ("services", {"customer-portal@file"}),
            ("middlewares", {"client-words@file", "audience-gateway@file", "credential@file"}),
        ):
            url = f"http://127.0.0.1:{port}/api/http/{part}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = {one["name"]: one for one in json.load(answer)}
            assert names <= found.keys()
            for name in names:
                assert found[name]["status"] == "enabled"
                assert not found[name].get("error")
    told = (tmp_path / "told").read_text().splitlines()
    # nobody listens where it asks for the decision
    assert not [line for line in told if "ERR" in line and "Error calling http" not in line]
