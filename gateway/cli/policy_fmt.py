"""``gateway policy fmt``: the rule files in their canonical form, comments kept."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.failure import Exit, Failure
from gateway.cli.policy_report import DEFAULT, Folder, Verdict, opened, told
from policies.review.format import canonical, write
from policies.review.reading import read_unproven


def fmt(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 4 if a file would change.")
    ] = False,
    folder: Folder = DEFAULT,
) -> int:
    """Write rules/*.csv in canonical form. What they decide stays the same; the digest does not."""
    reading = opened(read_unproven, folder, None)
    formatted = canonical(reading)
    if not check:
        try:
            with told(folder):
                write(reading, formatted)
        except OSError as error:
            reason = f"`{folder}` cannot be written ({error.strerror})"
            raise Failure(Exit.USAGE, "unwritable", reason, "check its permissions") from error
    for file in formatted.files:
        print(f"{'would format' if check else 'formatted'} {file}")
    return Verdict.FAILED if check and formatted.files else Verdict.OK
