"""``gateway policy``: the policy house's own commands, under one roof with the others."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import typer

app: Final = typer.Typer(help="Verify the policy folder.", no_args_is_help=True)
_PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command("verify", context_settings=_PASS_ON, add_help_option=False)
def verify(context: typer.Context) -> int:
    """Prove the policy: `python -m policies verify`, with all of its options."""
    command = [sys.executable, "-m", "policies", "verify", *context.args]
    return subprocess.run(command, check=False).returncode
