"""``gateway policy``: what a reviewer runs, under one roof with the other commands.

Exit codes, which scripts may rely on: 0 nothing to object, 2 usage, 3 the policy is invalid,
4 a case does not hold, 10 the change narrows, 20 the change widens.
"""

from __future__ import annotations

from typing import Final

import typer

from gateway.cli import (
    policy_activate,
    policy_approve,
    policy_diff,
    policy_explain,
    policy_fmt,
    policy_history,
    policy_keygen,
    policy_lint,
    policy_matrix,
    policy_replay,
    policy_rollback,
    policy_shadow,
    policy_verify,
)

app: Final = typer.Typer(
    help="Verify, explain and compare what the policy says.", no_args_is_help=True
)
app.command("verify")(policy_verify.verify)
app.command("lint")(policy_lint.lint)
app.command("diff")(policy_diff.diff)
app.command("fmt")(policy_fmt.fmt)
app.command("explain")(policy_explain.explain)
app.command("matrix")(policy_matrix.matrix)
app.command("compile")(policy_matrix.compile_)
app.command("keygen")(policy_keygen.keygen)
app.command("approve")(policy_approve.approve)
app.command("activate")(policy_activate.activate)
app.command("history")(policy_history.history)
app.command("rollback")(policy_rollback.rollback)
app.command("replay")(policy_replay.replay)
app.add_typer(policy_shadow.app, name="shadow")
