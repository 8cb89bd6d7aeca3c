"""``gateway labels``: label changes that would open something to somebody, and deciding on them.

A write that widens a label leaves the label as it is and a change that waits here. Approving it
needs a role that the policy allows for the audience of every profile that gains
(``rules/labels.csv``), and, where the rules say so, another person than the author. The names are
the operator's word, as with consents.

The database applies a change with its journal row in one transaction, or not at all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from gateway.cli.check import ConfigOption, policy_of, settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.station import Connection, in_force, station
from gateway.cli.terminal import columns, line
from policies.decision import Decision
from policies.kinds import LabelAuthor
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS

app: Final = typer.Typer(
    help="Label changes that widen: list them, decide on them.", no_args_is_help=True
)

ROLE: Final = "gw_label"
_FIELDS: Final = (
    "id", "state", "sort", "object_id", "address", "origin", "mapping", "author", "from_label",
    "from_class", "to_label", "to_class", "gained", "gains_now", "closed", "buried", "proposed_at",
    "decided_at", "approver", "approver_role", "reason", "event_id",
)  # fmt: skip
_SELECT: Final = f"select {', '.join(_FIELDS)} from gate.label_change_now"
_PENDING: Final = f"{_SELECT} where state = 'pending' or %s order by proposed_at, address, id"
_ONE: Final = f"{_SELECT} where id = %s"
_APPROVE: Final = "select gate.approve_label_change(%s, %s, %s, %s, %s, %s)"
_REJECT: Final = "select gate.reject_label_change(%s, %s, %s, %s)"
_WAITING: Final = "select count(*) from gate.label_change_now where state = 'pending'"
_TITLES: Final = ("id", "what", "address", "opens to", "author", "since", "state")
_LABEL: Final = (*FACETS, "tenant", "jurisdiction")

_UNKNOWN: Final = "GW404"
_DECIDED: Final = "GW409"
_MOVED: Final = "GW412"
_REMEDIES: Final = {
    _DECIDED: ("label_change_moved", "look again with `gateway labels pending`"),
    _MOVED: ("policy_differs", "look again: the policy moved while this was decided"),
}

Change = Mapping[str, Any]


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="What `pending` lists.")]
AsOption = Annotated[str, typer.Option("--as", metavar="NAME", help="Who decides.")]
RoleOption = Annotated[str, typer.Option("--role", help="In which role (`role:risk_officer`).")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept.")]
FormatOption = Annotated[Format, typer.Option("--format", help="`json`: one object a line.")]
OverlayOption = Annotated[
    Path | None, typer.Option("--overlay", metavar="DIR", help="Laid over the policy folder.")
]


@app.command("pending")
def pending(
    output: FormatOption = Format.TEXT,
    everything: Annotated[bool, typer.Option("--all", help="Decided ones, too.")] = False,
    config: ConfigOption = None,
) -> None:
    """List what waits for an approver, the oldest first."""
    with station(settings_of(config), ROLE) as connection:
        found = list(_read(connection, _PENDING, everything))
    if output is Format.JSON:
        for one in found:
            _print_json(one)
        return
    if not found:
        print("no label changes")
        return
    for text in columns([_TITLES, *map(_listed, found)]):
        print(text)


@app.command("show")
def show(
    change: Annotated[str, typer.Argument(metavar="ID", help="What `pending` lists.")],
    output: FormatOption = Format.TEXT,
    config: ConfigOption = None,
) -> None:
    """Show one change: what is in effect, what is wished, and whom it opens to now."""
    with station(settings_of(config), ROLE) as connection:
        found = _one(connection, _id(change))
    if output is Format.JSON:
        _print_json(found)
        return
    for text in _shown(found):
        print(line(text))


@app.command("approve")
def approve(
    changes: IdsArgument,
    approver: AsOption,
    role: RoleOption,
    reason: ReasonOption,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Apply changes, if the policy in force lets this role open them to everyone who gains."""
    idents = [_id(change) for change in changes]
    _nonempty(approver, reason)
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    refused: list[str] = []
    with station(settings, ROLE) as connection:
        in_force(connection, snapshot)
        for ident in idents:
            try:
                print(_approve(connection, snapshot, ident, approver, role, reason))
            except Failure as failure:
                refused += failure.lines
        row = connection.execute(_WAITING).fetchone()
    print(f"still pending: {row[0] if row else 0}")
    _end(refused)


@app.command("reject")
def reject(
    changes: IdsArgument,
    approver: AsOption,
    role: RoleOption,
    reason: ReasonOption,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Leave the labels as they are; the source may say the same again without asking anybody."""
    idents = [_id(change) for change in changes]
    _nonempty(approver, reason)
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    refused: list[str] = []
    with station(settings, ROLE) as connection:
        in_force(connection, snapshot)
        for ident in idents:
            try:
                found = _one(connection, ident)
                _check_rejecter(snapshot, found, role)
                _call(connection, _REJECT, [ident, approver, role, reason], found)
            except Failure as failure:
                refused += failure.lines
            else:
                print(f"rejected {ident}: {line(_name(found))}")
    _end(refused)


def _approve(
    connection: Connection,
    snapshot: Snapshot,
    ident: UUID,
    approver: str,
    role: str,
    reason: str,
) -> str:
    """One change applied, and who decided it by which rules. Raises: Failure."""
    found = _one(connection, ident)
    decisions = _decisions(snapshot, found, approver, role)
    denied = sorted(profile for profile, one in decisions.items() if not one.allowed)
    if denied:
        who = " that wrote it" if _author(found, approver) is LabelAuthor.SAME else ""
        refusal = f"the policy lets no `{role}`{who} open `{ident}` to {', '.join(denied)}"
        raise Failure(Exit.REFUSED, "label_refused", refusal, "see rules/labels.csv for roles")
    values = [ident, approver, role, reason, snapshot.digest, list(decisions)]
    event = _call(connection, _APPROVE, values, found)
    rules = sorted({rule for one in decisions.values() for rule in one.rules})
    opened = f"opened to {', '.join(decisions)}" if decisions else "opened to nobody"
    by = f" by {', '.join(rules)} of policy {snapshot.digest[:12]}" if rules else ""
    journaled = f", event {event}" if event else ""
    return f"approved {ident}: {line(_name(found))} {opened}{by}{journaled}"


def _decisions(
    snapshot: Snapshot, change: Change, approver: str, role: str
) -> Mapping[str, Decision]:
    """The policy's word for each profile that would gain now; every one must allow."""
    author = _author(change, approver)
    return {
        profile: snapshot.decide_label(profile, role, author) for profile in change["gains_now"]
    }


def _author(change: Change, approver: str) -> LabelAuthor:
    """Whether the approver is the author: names that differ in case or edges only are one."""
    same = change["author"].strip().casefold() == approver.strip().casefold()
    return LabelAuthor.SAME if same else LabelAuthor.OTHER


def _check_rejecter(snapshot: Snapshot, change: Change, role: str) -> None:
    """Who could approve it for somebody may reject it, the author included. Raises: Failure."""
    profiles = change["gains_now"] or change["gained"]
    if not any(snapshot.decide_label(p, role, LabelAuthor.OTHER).allowed for p in profiles):
        reason = f"the policy lets no `{role}` decide on `{change['id']}`"
        raise Failure(Exit.REFUSED, "label_refused", reason, "see rules/labels.csv for roles")


def _call(connection: Connection, statement: str, values: list[object], change: Change) -> Any:
    """What the database's function returns, committed. Raises: Failure."""
    try:
        with connection.transaction():
            row = connection.execute(statement.encode(), values).fetchone()
        connection.commit()
    except psycopg.DatabaseError as error:
        if error.sqlstate not in _REMEDIES:
            raise
        code, remedy = _REMEDIES[error.sqlstate]
        reason = f"`{change['id']}`: {flat(error.diag.message_primary)}"
        raise Failure(Exit.REFUSED, code, reason, remedy) from error
    return row[0] if row else None


def _read(connection: Connection, statement: str, value: object) -> Iterator[Change]:
    for row in connection.execute(statement.encode(), [value]):
        yield dict(zip(_FIELDS, row, strict=True))


def _one(connection: Connection, ident: UUID) -> Change:
    found = next(_read(connection, _ONE, ident), None)
    if found is None:
        reason = f"there is no label change `{ident}`"
        remedy = "see `gateway labels pending`"
        raise Failure(Exit.REFUSED, "unknown_label_change", reason, remedy)
    return found


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        reason = f"`{text[:60]}` is not a label change's id"
        raise Failure(Exit.USAGE, "usage", reason, "see `gateway labels pending`") from error


def _nonempty(*texts: str) -> None:
    if not all(text.strip() for text in texts):
        reason = "--as and --reason cannot be empty"
        raise Failure(Exit.USAGE, "usage", reason, "name who decides and why")


def _end(refused: list[str]) -> None:
    if refused:
        failure = Failure(Exit.REFUSED, "label_refused", "see above", "mend them")
        failure.lines = tuple(refused)
        raise failure


# --- showing ------------------------------------------------------------------------------


def _name(change: Change) -> str:
    return f"{change['sort']} {change['address'] or change['object_id']}"


def _listed(change: Change) -> tuple[str, ...]:
    state = f"{change['state']}, closed" if _is_closed(change) else change["state"]
    profiles = change["gains_now"] or change["gained"]
    return (
        str(change["id"]), change["sort"], change["address"] or "-", ", ".join(profiles),
        change["author"], _word(change["proposed_at"]), state,
    )  # fmt: skip


def _is_closed(change: Change) -> bool:
    return change["closed"] and change["state"] in ("pending", "rejected")


def _shown(change: Change) -> Iterator[str]:
    yield f"{change['id']}: {change['state']}"
    yield f"  {_name(change)}{' (deleted)' if change['buried'] else ''}"
    by = f" by mapping {change['mapping']}" if change["mapping"] else ""
    yield f"  of source {change['origin']}{by}; author {change['author']}"
    yield f"  proposed {_word(change['proposed_at'])}"
    for name, before, after in zip(_LABEL, change["from_label"], change["to_label"], strict=True):
        words = [_blank(before)] if before == after else [_blank(before), "->", _blank(after)]
        yield f"    {name:<18}{' '.join(words)}"
    if change["state"] in ("pending", "rejected"):
        yield f"  would open to: {', '.join(change['gains_now']) or 'nobody, under this policy'}"
    if _is_closed(change):
        yield "  it also closes to somebody: nobody reads it until it is decided"
    if change["decided_at"] is not None:
        who = f" by {change['approver']} ({change['approver_role']})" if change["approver"] else ""
        yield f"  {change['state']} {_word(change['decided_at'])}{who}: {change['reason']}"


def _blank(word: str | None) -> str:
    return "(blank)" if word is None else word or "(empty)"


def _print_json(change: Change) -> None:
    sys.stdout.write(json.dumps({name: _plain(value) for name, value in change.items()}) + "\n")


def _plain(value: object) -> object:
    return _word(value) if isinstance(value, datetime | UUID) else value


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return str(value)
