"""Writes LICENCES.md: under which licence each locked distribution comes.

    python deploy/requirements/licences.py            write the file anew
    python deploy/requirements/licences.py --check    exit 1 when it is out of date

It reads the two locks and the metadata of what is installed in this environment, so run it
where both locks are installed (``make lint`` sets that up). A distribution whose metadata name
no licence is reported and makes the run fail: somebody has to look.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
TARGET: Final = HERE / "LICENCES.md"
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_CLASSIFIER: Final = "License :: OSI Approved :: "


def pinned(lock: str) -> dict[str, str]:
    """Name and version of everything in a lock."""
    return dict(_PINNED.findall((HERE / lock).read_text("utf-8")))


def licence(name: str, version: str) -> str:
    """The licence as the distribution states it, on one line; empty when it states none."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return ""
    if found.version != version:
        return ""
    metadata = found.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    classifiers = [
        value.removeprefix(_CLASSIFIER)
        for value in metadata.get_all("Classifier") or []
        if value.startswith(_CLASSIFIER)
    ]
    free_text = metadata["License"].strip().splitlines() if "License" in metadata else []
    if classifiers:
        return ", ".join(classifiers)
    return free_text[0][:80] if free_text else ""


def table(rows: dict[str, str]) -> str:
    lines = [f"| {name} | {version} | {licence(name, version)} |" for name, version in rows.items()]
    return "\n".join(["| distribution | version | licence |", "| --- | --- | --- |", *lines])


def page() -> tuple[str, list[str]]:
    """The page, and the distributions for which no licence was found."""
    run = pinned("run.txt")
    dev = {name: version for name, version in pinned("dev.txt").items() if name not in run}
    silent = [name for name, version in (run | dev).items() if not licence(name, version)]
    text = (
        "# Licences\n\n"
        "Made by `python deploy/requirements/licences.py` from the metadata of the locked\n"
        "distributions. Nothing of them is copied into this repository.\n\n"
        f"## Installed with the gateway (`run.txt`)\n\n{table(run)}\n\n"
        f"## Only for tests, linters and benches (`dev.txt`)\n\n{table(dev)}\n"
    )
    return text, silent


def main(arguments: list[str]) -> int:
    text, silent = page()
    if silent:
        print("no licence found, or another version is installed: " + ", ".join(silent))
        return 1
    if "--check" in arguments:
        current = TARGET.exists() and TARGET.read_text("utf-8") == text
        print("LICENCES.md is up to date" if current else "LICENCES.md is out of date")
        return 0 if current else 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
