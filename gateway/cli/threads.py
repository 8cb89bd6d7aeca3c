"""``gateway threads``: threads as their owners see and edit them, one source at a time.

Whether a role may read or edit is a row of ``rules/admin.csv``, as on the operators' listener;
who somebody is and which source is theirs is the operator's word here, as with labels and consents.
Every change is a revision: who, when, why, what before. A label that opens something waits for
somebody else (``gateway labels``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import BaseModel, ValidationError

from gateway.cli.check import ConfigOption, OverlayOption, policy_of, settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.shared_options import sharing
from gateway.cli.terminal import columns, line
from gateway.cli.thread_page import TITLES, edited_lines, history_lines, listed, shown_lines
from gateway.compose.stores import attached
from policies.kinds import AdminAction
from retrieval.owners.wire import Edited, ThreadEdit

if TYPE_CHECKING:
    from gateway.compose.owning import Owners

app: Final = typer.Typer(help="Threads of a source: read, edit, check.", no_args_is_help=True)

_FILE_MAX: Final = 4 * 1024 * 1024

SourceOption = Annotated[str, typer.Option("--source", help="Whose threads.")]
RoleOption = Annotated[str, typer.Option("--role", help="In which role (`role:knowledge_owner`).")]
AsOption = Annotated[str, typer.Option("--as", metavar="NAME", help="Who edits; it is kept.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ThreadArgument = Annotated[str, typer.Argument(metavar="THREAD", help="Its canonical address.")]
UnitArgument = Annotated[str, typer.Argument(metavar="UNIT", help="A unit's canonical address.")]
ExpectOption = Annotated[
    int | None,
    typer.Option("--expect", metavar="N", help="The revision that you saw. Default: the last one."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Whose threads are looked at, in which role, and how it is told."""

    source: SourceOption
    role: RoleOption
    as_json: JsonOption = False
    overlay: OverlayOption = None
    config: ConfigOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Editing(Reading):
    """And who changes them, why, and what was seen."""

    author: AsOption
    reason: ReasonOption
    expect: ExpectOption = None


@app.command("list")
@sharing
def list_threads(asked: Reading) -> None:
    """List the threads of a source by address."""
    rows: list[tuple[str, ...]] = [TITLES]
    with _owners(asked, AdminAction.READ_THREADS) as owners:
        after: str | None = ""
        while after is not None:
            page = owners.threads(asked.source, after=after)
            for one in page.threads:
                if asked.as_json:
                    print(one.model_dump_json())
                else:
                    rows.append(listed(one))
            after = page.after
    if not asked.as_json:
        for text in columns(rows) if len(rows) > 1 else ["no threads"]:
            print(text)


@app.command("show")
@sharing
def show(asked: Reading, thread: ThreadArgument) -> None:
    """Show a thread with its members, artifacts, terms, edges and health."""
    with _owners(asked, AdminAction.READ_THREADS) as owners:
        found = owners.show(asked.source, thread)
    _print(found, shown_lines(found), asked.as_json)


@app.command("history")
@sharing
def history(
    asked: Reading,
    thread: ThreadArgument,
    before: Annotated[int, typer.Option(help="Older ones than this revision.")] = 2**31 - 1,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
) -> None:
    """Tell who changed a thread, when, why and what, the newest first."""
    with _owners(asked, AdminAction.READ_THREADS) as owners:
        found = owners.history(asked.source, thread, before=before, limit=limit)
    _print(found, history_lines(found), asked.as_json)


@app.command("set")
@sharing
def set_words(
    asked: Editing,
    thread: ThreadArgument,
    title: Annotated[str | None, typer.Option(help="A new thread needs one.")] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="Another name; all that it has from now on.")
    ] = None,
    description: Annotated[str | None, typer.Option()] = None,
    purpose: Annotated[str | None, typer.Option()] = None,
    status: Annotated[str | None, typer.Option(help="`active` or `retired`.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="FACET=WORD", help="A word of its label; a new thread needs all."),
    ] = None,
) -> None:
    """Make a thread, or change its words and its label."""
    said = {
        "title": title,
        "aliases": alias or None,
        "description": description,
        "purpose": purpose,
        "status": status,
        "label": dict(_pair(one) for one in label or ()),
    }
    change = {"do": "set", **{name: value for name, value in said.items() if value is not None}}
    with _owners(asked, AdminAction.EDIT_THREADS) as owners:
        _edit(owners, asked, thread, [change])


@app.command("add")
@sharing
def add(
    asked: Editing,
    thread: ThreadArgument,
    unit: UnitArgument,
    link: Annotated[str, typer.Option(help="`canonical`, `supporting`, `report`.")] = "canonical",
    confidence: Annotated[float, typer.Option(help="0 to 1.")] = 1.0,
    status: Annotated[
        str | None, typer.Option(help="`active`, `needs_human`, `wrong_link`.")
    ] = None,
) -> None:
    """Add a unit to a thread, or say its link anew."""
    change = {"do": "add_member", "unit": unit, "role": link, "confidence": confidence}
    if status is not None:
        change["status"] = status
    with _owners(asked, AdminAction.EDIT_THREADS) as owners:
        _edit(owners, asked, thread, [change])


@app.command("drop")
@sharing
def drop(asked: Editing, thread: ThreadArgument, unit: UnitArgument) -> None:
    """Take a unit out of a thread."""
    change = {"do": "drop_member", "unit": unit}
    with _owners(asked, AdminAction.EDIT_THREADS) as owners:
        _edit(owners, asked, thread, [change])


@app.command("bury")
@sharing
def bury(asked: Editing, thread: ThreadArgument) -> None:
    """Take a thread away from every reader; `set` brings it back."""
    with _owners(asked, AdminAction.EDIT_THREADS) as owners:
        _edit(owners, asked, thread, [{"do": "bury"}])


@app.command("apply")
@sharing
def apply(
    asked: Editing,
    thread: ThreadArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A JSON list of changes; `-`: stdin.")
    ],
) -> None:
    """Make several changes as one revision, of every sort: artifacts, terms and edges, too."""
    changes = _changes(file)
    with _owners(asked, AdminAction.EDIT_THREADS) as owners:
        _edit(owners, asked, thread, changes)


@app.command("check")
def check(
    source: Annotated[
        str | None, typer.Option("--source", help="Of one source. Default: all.")
    ] = None,
    stale_days: Annotated[
        int | None, typer.Option(min=1, help="Quiet for longer is stale. `signals.stale_days`.")
    ] = None,
    units_min: Annotated[
        int | None, typer.Option(min=1, help="Fewer units are too narrow. `signals.units_min`.")
    ] = None,
    units_max: Annotated[
        int | None, typer.Option(min=1, help="More units are overbroad. `signals.units_max`.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Judge the health of threads and keep the verdicts, which resolution ranks by."""
    from gateway.compose.owning import check_threads

    settings = settings_of(config)
    usual = settings.signals
    with attached(settings) as stores, _refusing():
        found = check_threads(
            stores,
            source,
            stale_days=stale_days or usual.stale_days,
            units_min=units_min or usual.units_min,
            units_max=units_max or usual.units_max,
        )
    if as_json:
        print(json.dumps(found, sort_keys=True))
        return
    for status, parts in sorted(found.items()):
        print(f"{status}: {parts}")
    print(f"checked {sum(found.values())} parts")


# --- inside -----------------------------------------------------------------------------------


@contextmanager
def _owners(asked: Reading, action: AdminAction) -> Iterator[Owners]:
    """The service, if the policy lets this role do that. Raises: Failure."""
    settings = settings_of(asked.config)
    snapshot = policy_of(settings, asked.overlay)
    if not snapshot.decide_admin(frozenset({asked.role}), action).allowed:
        reason = f"the policy lets no `{asked.role}` do `{action}`"
        raise Failure(Exit.REFUSED, "threads_refused", reason, "see rules/admin.csv for roles")
    from gateway.compose.owning import owners_of  # late: they load every house

    with attached(settings) as stores, _refusing():
        yield owners_of(stores, snapshot)


@contextmanager
def _refusing() -> Iterator[None]:
    """A refusal of the service becomes the command's. Raises: Failure."""
    from gateway.compose.owning import OwnersRefused, Why

    try:
        yield
    except OwnersRefused as refused:
        remedy = refused.remedy
        if refused.why is Why.POLICY_CHANGED:
            remedy = "give --config and --overlay of the running gateway, or start it anew"
        code = Exit.UNAVAILABLE if refused.why is Why.STORE_UNAVAILABLE else Exit.REFUSED
        raise Failure(code, str(refused.why), line(refused.reason), remedy) from refused


def _edit(owners: Owners, asked: Editing, thread: str, changes: list[Any]) -> None:
    from gateway.compose.owning import Editor, OwnersRefused, Why

    expect = asked.expect
    if expect is None:
        try:
            expect = owners.show(asked.source, thread).revision
        except OwnersRefused as refused:
            if refused.why is not Why.UNKNOWN_THREAD:
                raise
            expect = 0
    edit = _valid({"thread": thread, "expected_revision": expect, "changes": changes})
    edited: Edited = owners.edit(asked.source, edit, Editor(asked.author, asked.reason))
    _print(edited, edited_lines(edited), asked.as_json)


def _valid(said: Mapping[str, Any]) -> ThreadEdit:
    try:
        return ThreadEdit.model_validate_json(json.dumps(said), strict=True)
    except (ValidationError, UnicodeError) as error:
        if isinstance(error, UnicodeError):
            raise _usage("not Unicode text") from error
        first = error.errors(include_url=False)[0]
        raise _usage(f"`{'.'.join(map(str, first['loc']))}`: {flat(first['msg'])}") from error


def _changes(file: str) -> list[Any]:
    """The changes of a file. Raises: Failure."""
    try:
        with sys.stdin if file == "-" else Path(file).open(encoding="utf-8") as stream:
            text = stream.read(_FILE_MAX + 1)
        found = json.loads(text) if len(text) <= _FILE_MAX else None
    except (OSError, ValueError, RecursionError) as error:
        raise _usage(f"`{file[:120]}` cannot be read as JSON ({flat(error)[:120]})") from error
    if not isinstance(found, list):
        raise _usage(f"`{file[:120]}` is no list of changes, or longer than {_FILE_MAX} characters")
    return found


def _pair(text: str) -> tuple[str, str]:
    name, sign, word = text.partition("=")
    if not sign:
        raise _usage(f"`{text[:60]}` is not FACET=WORD")
    return name, word


def _usage(reason: str) -> Failure:
    return Failure(Exit.USAGE, "usage", line(reason), "see `gateway threads --help`")


def _print(found: BaseModel, text: Iterator[str], as_json: bool) -> None:
    if as_json:
        print(found.model_dump_json())
        return
    for one in text:
        print(line(one))
