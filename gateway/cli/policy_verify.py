"""``gateway policy verify``: does the policy hold together, and do its cases?"""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.policy_report import (
    DEFAULT,
    Folder,
    Format,
    FormatOption,
    Overlay,
    Verdict,
    opened,
    put,
    told,
)
from gateway.compose.state import state_folder
from policies.review import kept_proof
from policies.review.reading import Reading, read
from policies.review.verify import enumerate_units, findings, page
from policies.review.verify import verify as verify_policy
from policies.review.writers import junit, sarif


def verify(
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Ask Casbin about every single state.")
    ] = False,
    min_rules: Annotated[
        int, typer.Option("--min-rules", min=0, max=100, help="Rules that cases touch, in percent.")
    ] = 100,
    min_profiles: Annotated[
        int, typer.Option("--min-profiles", min=0, max=100, help="Profiles likewise.")
    ] = 100,
    form: FormatOption = Format.TEXT,
    folder: Folder = DEFAULT,
    overlay: Overlay = None,
    config: ConfigOption = None,
) -> int:
    """Prove the policy equal to Casbin, run its cases and count what they cover."""
    reading = opened(read, folder, overlay)
    with told(folder):
        full = _enumerated(reading, config) if exhaustive else ""
        report = verify_policy(
            reading, min_rules=min_rules, min_profiles=min_profiles, exhaustive=full
        )
    others = {
        Format.JUNIT: lambda: junit.write(report.outcomes),
        Format.SARIF: lambda: sarif.write(findings(report)),
    }
    put(form, page(report), report, others)
    return Verdict.OK if report.passed else Verdict.FAILED


def _enumerated(reading: Reading, config: ConfigOption) -> str:
    kept = state_folder(settings_of(config)) / "policy"
    known = kept_proof.recall(kept, reading.snapshot)
    if known is not None:
        return f"every one of {known} states equals Casbin (proven before, kept by digest)"
    start = time.perf_counter()
    asked = enumerate_units(
        reading, lambda done: print(f"  {done} states asked", file=sys.stderr, flush=True)
    )
    note = ""
    try:
        kept_proof.keep(kept, reading.snapshot, asked)
    except OSError as error:
        note = f"; the proof could not be kept ({error.strerror})"
    return f"every one of {asked} states equals Casbin ({time.perf_counter() - start:.0f} s{note})"
