"""The demo's part of the policy, written for the addresses of this run.

Issuer addresses must be known when the policy is loaded, and fixed ports would make two
clones collide: so the files are made from ``deploy/demo/policy`` into the state folder, and
``policies.snapshot.load`` lays them over the default folder. That is also the only way in
which an issuer on loopback is accepted. The rules are not touched: the demo runs under the
default policy, and an edit under ``policies/rules`` holds from the next start on.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from string import Template
from typing import Final

from deploy.demo.identity import TOKEN_AUDIENCE

SOURCE: Final = Path(__file__).parent / "policy"
MAPPING: Final = "ferrowick"


def write(folder: Path, *, identity_base: str) -> Path:
    """The overlay folder for ``policies.snapshot.load``, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for source in sorted(path for path in SOURCE.rglob("*") if path.is_file()):
        target = folder / source.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text("utf-8")
        if source.suffix == ".template":
            target = target.with_suffix("")
            text = Template(text).substitute(base=identity_base, token_audience=TOKEN_AUDIENCE)
        target.write_text(text, "utf-8")
    return folder
