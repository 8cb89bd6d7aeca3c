"""``gateway policy lint``: rules without effect, and words that nobody can reach."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.policy_report import (
    DEFAULT,
    Folder,
    Format,
    FormatOption,
    Overlay,
    Verdict,
    opened,
    put,
)
from policies.review.finding import Level
from policies.review.lint import lint as lint_policy
from policies.review.lint import page
from policies.review.reading import read_unproven
from policies.review.writers import sarif


def lint(
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 4 for a warning, too.")
    ] = False,
    form: FormatOption = Format.TEXT,
    folder: Folder = DEFAULT,
    overlay: Overlay = None,
) -> int:
    """Find dead, shadowed, redundant and overlapping rules, unreachable profiles, unused words."""
    report = lint_policy(opened(read_unproven, folder, overlay))
    put(form, page(report), report, {Format.SARIF: lambda: sarif.write(report.findings)})
    if report.at_least(Level.ERROR):
        return Verdict.INVALID
    return Verdict.FAILED if strict and report.at_least(Level.WARNING) else Verdict.OK
