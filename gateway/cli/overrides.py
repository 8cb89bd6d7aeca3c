"""``gateway overrides``: read a unit more widely than its label says, for a time.

Asking opens nothing. Approving needs what approving a wider label needs (``rules/labels.csv``): a
role that the policy allows for every profile that gains and, where the rules say so, another
person than who asked. Names are the operator's word, as with labels. The end is at once, by the
clock or by ``revoke``; a change of the unit's own label ends it, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
import typer

from gateway.cli.authorship import decide_opening, may_close, person, why_denied
from gateway.cli.check import ConfigOption, OverlayOption, policy_of, settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.station import Connection, in_force, station
from gateway.cli.terminal import columns, line
from policies.vocabulary import FACETS

app: Final = typer.Typer(help="Looser labels for a time: ask, decide, end.", no_args_is_help=True)

_ROLE: Final = "gw_label"
_LOOSE: Final = tuple(facet for facet in FACETS if facet != "kind")
_FIELDS: Final = (
    "id", "state", "unit_id", "address", "origin", "author", "wanted", "from_words", "to_words",
    "gained", "gains_now", "asked_at", "expires_at", "decided_at", "ended_at", "approver",
    "approver_role", "reason", "event_id", "in_effect",
)  # fmt: skip
_SELECT: Final = f"select {', '.join(_FIELDS)} from gate.label_override_now"
_OPEN: Final = f"{_SELECT} where state in ('pending', 'approved') or %s order by asked_at, id"
_ONE: Final = f"{_SELECT} where id = %s"
_UNIT: Final = """
    select id from brain.unit
    where (id::text = %(ref)s or canonical_address = %(ref)s) and deleted_at is null"""
_ASK: Final = "select gate.ask_override(%s, %s, %s, %s, %s)"
_APPROVE: Final = "select gate.approve_override(%s, %s, %s, %s, %s, %s)"
_CLOSE: Final = "select gate.close_override(%s, %s, %s, %s, %s)"
_REMEDIES: Final = {
    "GW404": ("unknown_override", "see `gateway overrides list`"),
    "GW409": (
        "override_moved",
        "look again with `gateway overrides list --all`; one in the way is revoked, then ask anew",
    ),
    "GW412": ("policy_differs", "look again: the policy moved while this was decided"),
    "GW422": ("override_refused", "name words of ours that are looser than the label's"),
}
_TTL: Final = re.compile(r"([1-9][0-9]{0,3})([mhd])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_MOST: Final = timedelta(days=366)
_TITLES: Final = ("id", "unit", "opens to", "asked by", "until", "state")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="What `list` tells.")]
AsOption = Annotated[str, typer.Option("--as", metavar="NAME", help="Who asks or decides.")]
RoleOption = Annotated[str, typer.Option("--role", help="In which role (`role:risk_officer`).")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; it is kept.")]


@app.command("ask")
def ask(
    unit: Annotated[str, typer.Argument(metavar="UNIT", help="Its id or canonical address.")],
    word: Annotated[
        list[str], typer.Option("--label", metavar="FACET=WORD", help="As it shall be read.")
    ],
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="15m, 8h, 30d.")],
    author: AsOption,
    reason: ReasonOption,
    config: ConfigOption = None,
) -> None:
    """Ask for an override; nothing opens before somebody approves it."""
    _nonempty(author, reason)
    words = _words(word)
    settings, until = settings_of(config), _lasting(lasting)
    with station(settings, "gw_ingest") as registry:
        rows = registry.execute(_UNIT, {"ref": unit}).fetchall()
    if len(rows) > 1:  # an address may read like an id
        double = f"`{unit[:120]}` is the id of one unit and the address of another"
        raise Failure(Exit.REFUSED, "ambiguous_unit", double, "name it by the other of its two")
    if not rows:
        missing = f"there is no unit `{unit[:120]}`"
        raise Failure(Exit.REFUSED, "unknown_unit", missing, "name its id or address")
    with station(settings, _ROLE) as connection:
        ident = _call(connection, _ASK, [rows[0][0], words, author, reason, until])
        found = _one(connection, ident)
    opens = ", ".join(found["gains_now"]) or "nobody, under this policy"
    print(f"asked {ident}: {line(found['address'])} would open to {opens}")


@app.command("list")
def list_overrides(
    everything: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    config: ConfigOption = None,
) -> None:
    """List what was asked for and what is in effect, the oldest first."""
    with station(settings_of(config), _ROLE) as connection:
        rows = connection.execute(_OPEN.encode(), [everything]).fetchall()
    found = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
    if as_json:
        for one in found:
            print(json.dumps({name: _plain(value) for name, value in one.items()}))
        return
    for text in columns([_TITLES, *map(_listed, found)]) if found else ["no overrides"]:
        print(text)


@app.command("approve")
def approve(
    override: IdArgument,
    approver: AsOption,
    role: RoleOption,
    reason: ReasonOption,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Put an override into effect, if the policy lets this role open it to all who gain."""
    _nonempty(approver, reason)
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    approver = person(snapshot, approver)
    with station(settings, _ROLE) as connection:
        in_force(connection, snapshot)
        found = _one(connection, _id(override))
        author, gains = person(snapshot, found["author"]), found["gains_now"]
        opening = decide_opening(snapshot, gains, role, author=author, approver=approver)
        if opening.denied:
            who, remedy = why_denied(author, approver)
            refusal = f"the policy lets no `{role}`{line(who)} open it to {opening.denied}"
            raise Failure(Exit.REFUSED, "override_refused", refusal, remedy)
        values = [found["id"], approver, role, reason, snapshot.digest, gains]
        event = _call(connection, _APPROVE, values)
    opens = ", ".join(gains) or "nobody"
    until = _plain(found["expires_at"])
    print(f"approved: {line(found['address'])} opened to {opens} until {until}, event {event}")


@app.command("reject")
def reject(
    override: IdArgument,
    approver: AsOption,
    role: RoleOption,
    reason: ReasonOption,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Refuse what was asked for."""
    _close("rejected", override, approver, role, reason, overlay, config)


@app.command("revoke")
def revoke(
    override: IdArgument,
    approver: AsOption,
    role: RoleOption,
    reason: ReasonOption,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """End an override at once, or take back what was asked for."""
    _close("revoked", override, approver, role, reason, overlay, config)


# --- inside -----------------------------------------------------------------------------------


def _close(
    becomes: str,
    override: str,
    approver: str,
    role: str,
    reason: str,
    overlay: Path | None,
    config: Path | None,
) -> None:
    """Whoever could approve it for somebody may; who asked may always take it back."""
    _nonempty(approver, reason)
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    approver = person(snapshot, approver)
    with station(settings, _ROLE) as connection:
        in_force(connection, snapshot)
        found = _one(connection, _id(override))
        own = becomes == "revoked" and found["author"].strip() == approver.strip()
        # what opens to nobody now may stand in the way of another: any decider may close it
        gains, gained = found["gains_now"], found["gained"]
        if not own and not may_close(snapshot, gains, role, gained=gained):
            refusal = f"the policy lets no `{role}` decide on it"
            raise Failure(Exit.REFUSED, "override_refused", refusal, "see rules/labels.csv")
        _call(connection, _CLOSE, [found["id"], becomes, approver, role, reason])
    print(f"{becomes} {found['id']}: {line(found['address'])}")


def _call(connection: Connection, statement: str, values: list[object]) -> Any:
    """What the database's function returns, committed. Raises: Failure."""
    try:
        with connection.transaction():
            row = connection.execute(statement.encode(), values).fetchone()
        connection.commit()
    except psycopg.DatabaseError as error:
        if error.sqlstate not in _REMEDIES:
            raise
        code, remedy = _REMEDIES[error.sqlstate]
        raise Failure(Exit.REFUSED, code, flat(error.diag.message_primary), remedy) from error
    return row[0] if row else None


def _one(connection: Connection, ident: UUID) -> dict[str, Any]:
    row = connection.execute(_ONE.encode(), [ident]).fetchone()
    if row is None:
        code, remedy = _REMEDIES["GW404"]
        raise Failure(Exit.REFUSED, code, f"there is no override `{ident}`", remedy)
    return dict(zip(_FIELDS, row, strict=True))


def _listed(one: Mapping[str, Any]) -> tuple[str, ...]:
    opens = ", ".join(one["gains_now"] or one["gained"]) or "nobody"
    state = "in effect" if one["in_effect"] else one["state"]
    return str(one["id"]), one["address"], opens, one["author"], _plain(one["expires_at"]), state


def _words(said: list[str]) -> list[str | None]:
    words: dict[str, str] = {}
    for one in said:
        facet, sign, word = one.partition("=")
        if not sign or facet not in _LOOSE or facet in words:
            known = ", ".join(_LOOSE)
            raise _usage(f"`{line(one[:60])}` is not FACET=WORD, once for each of {known}")
        words[facet] = word
    return [words.get(facet) for facet in _LOOSE]


def _lasting(text: str) -> timedelta:
    match = _TTL.fullmatch(text)
    found = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else _MOST * 2
    if found > _MOST:
        raise _usage(f"`{line(text[:20])}` is not a time such as 15m, 8h or 30d, at most 366d")
    return found


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise _usage(f"`{line(text[:60])}` is not an override's id") from error


def _nonempty(*texts: str) -> None:
    if not all(len(text.strip()) >= 3 for text in texts[1:]) or not texts[0].strip():
        raise _usage("--as cannot be empty, and --reason needs three letters")


def _usage(reason: str) -> Failure:
    return Failure(Exit.USAGE, "usage", reason, "see `gateway overrides --help`")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return str(value) if isinstance(value, UUID) else value
