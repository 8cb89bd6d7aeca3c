"""``gateway index``: how the vector index stands beside the record of truth, and filling it anew.

An existing collection is never taken over: what is indexed comes from the truth, into a collection
of our own form. Whatever else stands in one is refused here, and opens nothing there: points are
candidates, and the truth decides.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit
from gateway.cli.terminal import line
from gateway.compose.stores import attached

app: Final = typer.Typer(help="The vector index: look at it, fill it anew.", no_args_is_help=True)

CollectionOption = Annotated[
    str | None,
    typer.Option("--collection", metavar="NAME", help="Default: the one that is served from."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("check")
def check(
    collection: CollectionOption = None, as_json: JsonOption = False, config: ConfigOption = None
) -> int:
    """Say how many points equal the truth, are stale, missing, or not ours. Exit 1 if any is."""
    return _told(collection, as_json, config, rebuilt=False)


@app.command("rebuild")
def rebuild(
    collection: CollectionOption = None, as_json: JsonOption = False, config: ConfigOption = None
) -> int:
    """Fill a collection from the record of truth; make it if it is not there."""
    return _told(collection, as_json, config, rebuilt=True)


def _told(collection: str | None, as_json: bool, config: Path | None, *, rebuilt: bool) -> int:
    from gateway.compose import embedding, filling  # late: they load every house, a second or two

    settings = settings_of(config)
    with attached(settings) as stores:
        model = embedding.open_embedder(settings)
        name, found = asyncio.run(
            filling.index_standing(settings, stores, model, collection=collection, rebuilt=rebuilt)
        )
    if as_json:
        print(json.dumps({"collection": name, **asdict(found)}))
    else:
        print(
            f"{line(name)}: {found.equal} points equal the truth, {found.stale} stale,"
            f" {found.missing} units missing, {found.strangers} points not ours"
        )
    return Exit.OK if found.sound else Exit.REFUSED
