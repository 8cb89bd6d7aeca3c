"""``gateway policy diff``: what does this change open, and what does it close?"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.cli.check import ConfigOption
from gateway.cli.failure import Exit, Failure, flat, of_policy
from gateway.cli.operator import (
    AdminOption,
    IdentitiesOption,
    Options,
    ReasonOption,
    TokenOption,
    WhoOption,
)
from gateway.cli.policy_live import Live, numbers, permitted
from gateway.cli.policy_report import DEFAULT, Folder, Format, FormatOption, Verdict, put
from policies.errors import PolicyError
from policies.review import revisions
from policies.review.change import Direction
from policies.review.diff import diff as diff_policies
from policies.review.diff_page import page
from policies.review.reading import Reading, read
from policies.review.revisions import NoRevision

_ENDS: Final = {
    Direction.WIDENING: Verdict.WIDENING,
    Direction.NARROWING: Verdict.NARROWING,
    Direction.NEUTRAL: Verdict.OK,
}


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A folder, or a git revision.")],
    new: Annotated[
        str | None, typer.Argument(metavar="[NEW]", help="Likewise; the folder as it stands.")
    ] = None,
    form: FormatOption = Format.TEXT,
    folder: Folder = DEFAULT,
    overlay: Annotated[
        Path | None, typer.Option("--overlay", metavar="DIR", help="Laid over both sides.")
    ] = None,
    new_overlay: Annotated[
        Path | None, typer.Option("--new-overlay", metavar="DIR", help="Laid over NEW instead.")
    ] = None,
    live: Annotated[
        Live, typer.Option("--live", help="Ask a running gateway how much is live of it.")
    ] = Live.NONE,
    reason: ReasonOption = None,
    who: WhoOption = None,
    token_file: TokenOption = None,
    identities: IdentitiesOption = None,
    admin: AdminOption = None,
    config: ConfigOption = None,
) -> int:
    """Compare two policies: 0 no change of reach, 10 narrowing only, 20 widening, 3 invalid.

    With --live it also says how many live units and threads each profile gains and loses.
    """
    options = Options(
        reason=reason,
        who=who,
        token_file=token_file,
        identities=identities,
        admin=admin,
        config=config,
        command="policy diff",
    )
    permitted(live, options)
    with ExitStack() as stack:
        before = read_side(stack, old, folder, overlay)
        after = read_side(stack, new or os.fspath(folder), folder, new_overlay or overlay)
        report = diff_policies(before, after)
        if live is not Live.NONE:
            report = replace(report, live=numbers(live, before, after, options))
        put(form, page(report), report)
    return _ENDS[report.direction]


def read_side(stack: ExitStack, side: str, folder: Path, overlay: Path | None) -> Reading:
    """One side, proven. Raises: Failure, with code 2 for a side that is not there."""
    try:
        clone, path = (folder, "") if revisions.is_folder(side) else revisions.located(folder)
        place = stack.enter_context(revisions.opened(side, clone, path))
    except NoRevision as error:
        remedy = f"name a folder, or a revision of the clone that holds `{folder}`"
        raise Failure(Exit.USAGE, "no_revision", flat(error), remedy) from error
    try:
        return read(place, overlay)
    except PolicyError as error:
        raise of_policy(error, Path(side)) from error
