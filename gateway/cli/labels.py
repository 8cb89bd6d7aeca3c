"""``gateway labels``: label changes that would open something to somebody, and deciding on them.

A write that widens a label leaves the label as it is and a change that waits here. Approving it
needs a role that the policy allows for the audience of every profile that gains
(``rules/labels.csv``), and, where the rules say so, another person than the author. The names are
the operator's word, as with consents.

The database applies a change with its journal row in one transaction, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from gateway.cli.authorship import decide_opening, may_close, person, why_denied
from gateway.cli.check import ConfigOption, OverlayOption, policy_of, settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.label_page import TITLES, Change, as_json, listed, name_of, shown
from gateway.cli.station import Connection, in_force, station
from gateway.cli.terminal import columns, line
from policies.snapshot import Snapshot

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

_DECIDED: Final = "GW409"
_MOVED: Final = "GW412"
_REMEDIES: Final = {
    _DECIDED: ("label_change_moved", "look again with `gateway labels pending`"),
    _MOVED: ("policy_differs", "look again: the policy moved while this was decided"),
}


class Format(StrEnum):
    """For people, or one object a line."""

    TEXT = "text"
    JSON = "json"


IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="What `pending` lists.")]
AsOption = Annotated[
    str, typer.Option("--as", metavar="NAME", help="Who decides; a listener's caller: ISSUER:SUB.")
]
RoleOption = Annotated[str, typer.Option("--role", help="In which role (`role:risk_officer`).")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept.")]
FormatOption = Annotated[Format, typer.Option("--format", help="`json`: one object a line.")]


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
            print(as_json(one))
        return
    if not found:
        print("there was no label change yet" if everything else "nothing waits for an approver")
        return
    for text in columns([TITLES, *map(listed, found)]):
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
        print(as_json(found))
        return
    for text in shown(found):
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
    _each(changes, _Decider(approver, role, reason), _approve, overlay, config)


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
    _each(changes, _Decider(approver, role, reason), _reject, overlay, config)


@dataclass(frozen=True, slots=True)
class _Decider:
    """Who decides, in which role and why."""

    name: str
    role: str
    reason: str


def _each(
    changes: list[str],
    decider: _Decider,
    act: Callable[[Connection, Snapshot, Change, _Decider], str],
    overlay: Path | None,
    config: Path | None,
) -> None:
    """Decide one by one, under the policy in force. Raises: Failure, once all were tried."""
    idents = [_id(change) for change in changes]
    _nonempty(decider.name, decider.reason)
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    decider = replace(decider, name=person(snapshot, decider.name))
    refused: list[str] = []
    with station(settings, ROLE) as connection:
        in_force(connection, snapshot)
        for ident in idents:
            try:
                print(act(connection, snapshot, _one(connection, ident), decider))
            except Failure as failure:
                refused += failure.lines
        row = connection.execute(_WAITING).fetchone()
    print(f"still pending: {row[0] if row else 0}")
    if refused:
        together = Failure(Exit.REFUSED, "label_refused", "see above", "mend them")
        together.lines = tuple(refused)
        raise together


def _approve(connection: Connection, snapshot: Snapshot, change: Change, decider: _Decider) -> str:
    """One change applied, and who decided it by which rules. Raises: Failure."""
    ident, role = change["id"], decider.role
    author = person(snapshot, change["author"])
    gains = change["gains_now"]
    opening = decide_opening(
        snapshot, gains, role, author=author, approver=decider.name, gained=change["gained"]
    )
    if opening.denied:
        who, remedy = why_denied(author, decider.name)
        refusal = f"the policy lets no `{role}`{line(who)} open `{ident}` to {opening.denied}"
        raise Failure(Exit.REFUSED, "label_refused", refusal, remedy)
    values = [ident, decider.name, role, decider.reason, snapshot.digest, gains]
    event = _call(connection, _APPROVE, values, change)
    opened = f"opened to {', '.join(gains) or 'nobody'}"
    by = f" by {', '.join(opening.rules)} of policy {snapshot.digest[:12]}"
    journaled = f", event {event}" if event else ""
    return f"approved {ident}: {line(name_of(change))} {opened}{by}{journaled}"


def _reject(connection: Connection, snapshot: Snapshot, change: Change, decider: _Decider) -> str:
    """One change rejected. Whoever could approve it for somebody may, the author included.

    Raises: Failure.
    """
    ident, role = change["id"], decider.role
    if not may_close(snapshot, change["gains_now"], role, gained=change["gained"]):
        reason = f"the policy lets no `{role}` decide on `{ident}`"
        raise Failure(Exit.REFUSED, "label_refused", reason, "see rules/labels.csv for roles")
    _call(connection, _REJECT, [ident, decider.name, role, decider.reason], change)
    return f"rejected {ident}: {line(name_of(change))}"


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
