"""``gateway ingest``: bring a folder or a file into the record of truth.

The mapping from the source's words to ours decides what becomes readable, so it belongs into
the policy folder and is named from there. A file from elsewhere is read by the same strict
loader, together with the policy, and said to be one.

What a source brings is its own: a record under another name neither changes nor links it.

``--from postgres`` reads a knowledge base that lives in another database, through four views
(``deploy/knowledge-base``). Its connection string is a secret, so it is no argument.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure, flat, of_policy
from gateway.cli.terminal import errors, plain
from gateway.compose.stores import attached
from gateway.settings import Settings
from policies.errors import InvalidPolicy, PolicyError
from policies.mapping import IngestMapping
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from policies.snapshot import load as load_policy

if TYPE_CHECKING:
    from gateway.compose.filling import KnowledgeBase, OnProgress, Report


class Place(StrEnum):
    """Where records come from."""

    FILES = "files"
    POSTGRES = "postgres"


def ingest(
    mapping: Annotated[
        str,
        typer.Option("--mapping", metavar="FILE", help="A mapping of the policy, or a file."),
    ],
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="JSONL, or a folder of Markdown.")
    ] = None,
    place: Annotated[
        Place, typer.Option("--from", help="`postgres`: the views that GATEWAY_SOURCE_URL has.")
    ] = Place.FILES,
    schema: Annotated[
        str | None, typer.Option(help="Where the views are. Default: gateway_export.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read all of the views, and remove what they lack."),
    ] = False,
    overlap: Annotated[
        int | None,
        typer.Option(min=0, help="Read again so far below the last revision. Default: 1000."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Who owns what is brought: no other source can change, delete, relabel or link it."
            " Default: the mapping's name.",
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="Also take what PATH names and no source has claimed yet."),
    ] = False,
    author: Annotated[
        str | None,
        typer.Option(
            "--author",
            metavar="NAME",
            help="Who answers for labels that open something: they wait until somebody else"
            " approves them (`gateway labels`). Default: the account that runs this.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    config: ConfigOption = None,
) -> int:
    """Ingest PATH; print what was accepted, changed, unchanged and quarantined, and why."""
    settings = settings_of(config)
    chosen_source = _source(path, place, schema, full=full, overlap=overlap)
    snapshot, chosen = _policy_and_mapping(settings, mapping)
    report = _run(
        settings,
        snapshot,
        chosen_source,
        chosen,
        origin=source,
        adopt=adopt,
        author=author or _account(),
    )
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(), ensure_ascii=True) + "\n")
    else:
        print(plain(report.readable()))
    return int(report.exit_code)


def _source(
    path: Path | None, place: Place, schema: str | None, *, full: bool, overlap: int | None
) -> Path | KnowledgeBase:
    """What is to be read. Raises: Failure."""
    if place is Place.FILES:
        if schema is not None or full or overlap is not None:
            reason = "--schema, --full and --overlap are about the views of a database"
            raise Failure(Exit.USAGE, "usage", reason, "add `--from postgres`, or leave them out")
        if path is None or not path.exists():
            reason = f"there is no `{path}`" if path is not None else "no PATH was given"
            raise Failure(Exit.USAGE, "no_source", reason, "name a file or a folder")
        return path
    dsn = os.environ.get("GATEWAY_SOURCE_URL", "")
    if path is not None or not dsn:
        reason = "a database is read from GATEWAY_SOURCE_URL, and from no PATH"
        raise Failure(Exit.USAGE, "no_source", reason, "set it to the connection string")
    from gateway.compose.filling import KnowledgeBase  # late: it loads every house

    given = {"schema": schema, "overlap": overlap}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return KnowledgeBase(dsn, full=full, **options)


def _run(
    settings: Settings,
    snapshot: Snapshot,
    source: Path | KnowledgeBase,
    chosen: IngestMapping,
    *,
    origin: str | None,
    adopt: bool,
    author: str,
) -> Report:
    # late: they load every house, a second or two
    from gateway.compose import database, embedding, filling

    with attached(settings) as stores:
        if not stores.held:
            database.prepare_if_new(stores, snapshot, signed=settings.release.signed)
        model = embedding.open_embedder(settings)
        with _progress() as on_progress:
            report = filling.ingest_into(
                stores,
                source,
                chosen,
                model,
                origin=origin,
                adopt=adopt,
                author=author,
                on_progress=on_progress,
            )
        if not stores.held:  # else the gateway that holds them carries it over
            asyncio.run(filling.fill_index(settings, stores, model))
    return report


def _account() -> str:
    """The name of the account that runs this; empty where it has none (a bare container)."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return ""


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """A bar on standard error; nothing when that is not a terminal."""
    console = errors()
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("records", total=None)

        def on_progress(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield on_progress


def _policy_and_mapping(settings: Settings, named: str) -> tuple[Snapshot, IngestMapping]:
    """The policy, and the mapping of that name or in that file.

    Raises: Failure.
    """
    folder = settings.policy or DEFAULT_FOLDER
    try:
        snapshot = load_policy(folder)
        if named in snapshot.mappings:
            return snapshot, snapshot.mappings[named]
        file = Path(named)
        if not file.is_file():
            names = ", ".join(f"`{one}`" for one in sorted(snapshot.mappings)) or "none"
            reason = f"`{named}` is neither a mapping of the policy ({names}) nor a file"
            raise Failure(Exit.USAGE, "no_mapping", reason, "name one of them, or a file")
        return snapshot, _from_file(folder, snapshot, file)
    except PolicyError as error:
        raise of_policy(error, folder) from error


def _with(folder: Path, overlay: Path, file: Path) -> Mapping[str, IngestMapping]:
    """All mappings with the one in the overlay. Its faults are those of the file that was named,
    not of a place in the policy folder, where it does not lie. Raises: Failure, PolicyError."""
    try:
        return load_policy(folder, overlay).mappings
    except InvalidPolicy as error:
        laid = f"mappings/{file.with_suffix('.yaml').name}"
        told = [one for one in error.faults if one.file == laid]
        if len(told) != len(error.faults):
            raise
        failure = of_policy(error, folder)
        failure.lines = tuple(
            f"mapping_invalid: {replace(one, file=os.fspath(file))}" for one in told
        )
        raise failure from error


def _from_file(folder: Path, snapshot: Snapshot, file: Path) -> IngestMapping:
    """The mapping in a file, checked together with the policy that it is meant for."""
    with tempfile.TemporaryDirectory() as scratch:
        overlay = Path(scratch)
        (overlay / "mappings").mkdir()
        try:
            shutil.copyfile(file, overlay / "mappings" / file.with_suffix(".yaml").name)
        except OSError as error:
            raise Failure(Exit.USAGE, "no_mapping", flat(error), "name a readable file") from error
        mappings = _with(folder, overlay, file)
    added = [one for name, one in mappings.items() if snapshot.mappings.get(name) != one]
    if len(added) == 1:
        print(
            f"gateway: note: mapping `{added[0].name}` is not part of the policy `{folder}`,"
            " so no reviewer has seen what it opens; copy it into its `mappings/`",
            file=sys.stderr,
        )
        return added[0]
    # an equal copy of one that the policy has
    name = file.with_suffix("").name
    if not added and name in mappings:
        return mappings[name]
    reason = f"`{file}` holds no mapping of its own"
    raise Failure(Exit.USAGE, "no_mapping", reason, "name the mapping instead of the file")
