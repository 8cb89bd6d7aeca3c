"""``gateway eval``: how good retrieval is on judged questions, and whether that was lost.

What a judged set is stands in ``retrieval.evaluate.judged``. With documents of its own it runs
in stores that are thrown away; without, it asks a running gateway as one of the named callers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure, flat, of_policy
from gateway.cli.identity import FILE_NAME, token_for
from gateway.cli.query import ask, response_of
from gateway.cli.terminal import columns, errors
from gateway.cli.web import secure
from gateway.compose.state import running_address, state_folder
from gateway.settings import Settings
from gateway.settled import loading
from policies.errors import PolicyError
from policies.snapshot import DEFAULT_FOLDER
from retrieval.contract import Response, RetrieveRequest

if TYPE_CHECKING:
    from gateway.compose.evaluation import Figures, JudgedSet, OnProgress

FoldersArgument = Annotated[
    list[Path], typer.Argument(metavar="FOLDER...", help="Judged questions, as JSON lines.")
]
WhoOption = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Who asks, where a set has no documents."),
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="F", readable=False, help="A bearer token of your own."),
]
UrlOption = Annotated[str | None, typer.Option("--url", help="The gateway's address. GATEWAY_URL.")]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="Fail when worse than this, significantly."),
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", metavar="FILE", help="Write a baseline of this run.")
]


def evaluate(
    folders: FoldersArgument,
    baseline: BaselineOption = None,
    save: SaveOption = None,
    who: WhoOption = None,
    token_file: TokenOption = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    config: ConfigOption = None,
) -> int:
    """Measure retrieval on judged questions; exit code 1 for a significant loss."""
    with loading():
        from gateway.compose import evaluation  # late: it loads every house, a second or two

    settings = settings_of(config)
    try:
        sets = [one for folder in folders for one in evaluation.read(folder)]
        known = evaluation.Baseline(baseline) if baseline is not None else None
        before = [known.of(one) if known is not None else None for one in sets]
    except (evaluation.Malformed, OSError) as error:
        raise Failure(Exit.USAGE, "not_judged", flat(error), "see `gateway eval --help`") from error
    _distinct(sets)
    live = _live(settings, who=who, token_file=token_file, url=url)
    try:
        with _progress() as shown:
            outcomes = list(evaluation.evaluate(sets, settings, live, shown))
    except PolicyError as error:
        raise of_policy(error, DEFAULT_FOLDER) from error
    found = [evaluation.figures(*pair) for pair in zip(outcomes, before, strict=True)]
    if save is not None:
        save.write_text(json.dumps(evaluation.baseline(outcomes)) + "\n", "utf-8")
    if as_json:
        sys.stdout.write(json.dumps(evaluation.as_json(found)) + "\n")
    else:
        print("\n".join(_table(found, compared=known is not None)))
    return Exit.REFUSED if any(one.losses for one in found) else Exit.OK


def _distinct(sets: Sequence[JudgedSet]) -> None:
    names = [one.name for one in sets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        reason = f"two sets are called `{twice[0]}`"
        raise Failure(Exit.USAGE, "not_judged", reason, "rename a folder")


def _live(
    settings: Settings, *, who: str | None, token_file: Path | None, url: str | None
) -> Callable[[RetrieveRequest], Response]:
    """Asks the gateway. What that needs is looked for at the first question, not before."""
    told: list[tuple[str, str]] = []

    def retrieve(request: RetrieveRequest) -> Response:
        if not told:
            address = url or os.environ.get("GATEWAY_URL") or running_address(settings)
            identities = state_folder(settings) / FILE_NAME
            token = token_for(who, token_file, identities, command="eval")
            told.append((secure(address, "gateway's address"), token))
        address, token = told[0]
        return response_of(ask(address, token, request), address)

    return retrieve


def _table(found: Sequence[Figures], *, compared: bool) -> list[str]:
    """One line a set and measure: mean, 95 % interval, and the change since the baseline."""
    head = ("SET", "QUESTIONS", "BY THREAD", "MEASURE", "MEAN", "95 % INTERVAL")
    rows: list[tuple[str, ...]] = [(*head, "CHANGE") if compared else head]
    for one in found:
        start = (one.name, str(one.questions), f"{one.by_thread:.0%}")
        for name, value in one.measured.items():
            row = (*start, name, f"{value.mean:.3f}", f"{value.low:.3f} to {value.high:.3f}")
            rows.append((*row, _change(one, name)) if compared else row)
            start = ("", "", "")
    return columns(rows)


def _change(one: Figures, name: str) -> str:
    change = one.change.get(name)
    if change is None:
        return "" if one.change else "not in the baseline"
    verdict = " LOST" if name in one.losses else ""
    return f"{change.mean:+.4f} ({change.low:+.4f} to {change.high:+.4f}){verdict}"


@contextmanager
def _progress() -> Iterator[Callable[[str], OnProgress]]:
    """A bar a set on standard error; nothing when that is not a terminal."""
    console = errors()
    shown = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*shown, console=console, disable=not console.is_terminal) as progress:

        def of(name: str) -> OnProgress:
            task = progress.add_task(name, total=None)

            def on_progress(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            return on_progress

        yield of
