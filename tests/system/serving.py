"""``gateway serve`` in a process of its own, on the shared stores, believing keys of the test."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from policies.snapshot import DEFAULT_FOLDER
from tests.gateway.cli.made import clean
from tests.gateway.tokens import Issuers


def believing(issuers: Issuers, folder: Path) -> Path:
    """A policy folder: the installed one, with the issuers of the tests."""
    policy, overlay = folder / "policy", folder / "overlay"
    shutil.copytree(DEFAULT_FOLDER, policy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    issuers.write(overlay)
    shutil.copytree(overlay, policy, dirs_exist_ok=True)
    return policy


@contextmanager
def serving(env: dict[str, str]) -> Iterator[str]:
    """The address of a gateway with these settings; it is ended, and must end cleanly."""
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--no-embedded"],
        env=clean() | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        rest = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        rest.start()
        try:
            assert said[0].startswith("gateway: listening on "), said
            yield said[0].split()[3]
        finally:
            process.terminate()
            assert process.wait(30) == 0, said
            rest.join(10)
