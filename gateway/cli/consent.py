"""``gateway consent``: give, end and list consents to read high-risk material.

A consent is given to one subject for one purpose and one unit or thread, by an approver whose
role the policy allows (`rules/consent.csv`), for a time that the policy allows. Nothing
here opens a class that the policy does not open to somebody with a consent.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from gateway.authn.claims import subject_id
from gateway.cli.check import ConfigOption, OverlayOption, policy_of, settings_of
from gateway.cli.failure import Exit, Failure, of_database
from gateway.cli.station import Connection, in_force, station
from gateway.cli.terminal import columns
from policies.snapshot import Snapshot

app: Final = typer.Typer(help="Consents to read high-risk material.", no_args_is_help=True)

_TTL: Final = re.compile(r"([1-9][0-9]{0,3})([mhd])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_COLUMNS: Final = (
    "id", "subject_id", "purpose", "unit_id", "thread_id", "approver", "granted_at",
    "expires_at", "revoked_at",
)  # fmt: skip
_TITLES: Final = ("id", "subject", "purpose", "unit or thread", "approver", "until", "revoked")
_GRANT: Final = """
insert into gate.consent (subject_id, purpose, unit_id, thread_id, approver, expires_at)
values (%s, %s, %s, %s, %s, now() + %s) returning id, expires_at
"""
_REVOKE: Final = """
update gate.consent set revoked_at = now() where id = %s and revoked_at is null returning id
"""
_LIST: Final = f"""
select {", ".join(_COLUMNS)} from gate.consent
where %(all)s or (revoked_at is null and expires_at > now()) order by granted_at desc, id
"""

SubjectOption = Annotated[
    str | None, typer.Option("--subject", metavar="ID", help="The opaque id (`s.…`).")
]
IssuerOption = Annotated[
    str | None, typer.Option("--issuer", metavar="ALIAS", help="With --sub: the id is derived.")
]
SubOption = Annotated[str | None, typer.Option("--sub", help="The subject at that issuer.")]


@app.command("grant")
def grant(
    purpose: Annotated[str, typer.Option("--purpose", help="What for.")],
    audience: Annotated[
        str, typer.Option("--audience", help="The subject's audience or agent profile.")
    ],
    approver: Annotated[str, typer.Option("--approver", help="Who gives it.")],
    approver_role: Annotated[
        str, typer.Option("--approver-role", help="In which role (`role:risk_officer`).")
    ],
    ttl: Annotated[str, typer.Option("--ttl", help="For how long: 15m, 1h, 8h.")],
    subject: SubjectOption = None,
    issuer: IssuerOption = None,
    sub: SubOption = None,
    unit: Annotated[str | None, typer.Option("--unit", help="A unit's id or address.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="A thread's, instead.")] = None,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Give a consent, if the policy in force lets this role give it."""
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    if (unit is None) == (thread is None):
        raise _usage("name one of --unit and --thread")
    lasting = _lasting(ttl)
    receiver = _subject(snapshot, subject, issuer, sub)
    decision = snapshot.decide_consent(audience, purpose, approver_role, ttl)
    if not decision.allowed:
        reason = f"the policy lets no `{approver_role}` give `{audience}` this for {ttl}"
        remedy = "see rules/consent.csv for purposes, roles and times"
        raise Failure(Exit.REFUSED, "consent_refused", reason, remedy)
    table = "brain.unit" if unit is not None else "brain.thread"
    with station(settings, "gw_ingest") as registry:
        object_id = _object(registry, table, unit or thread or "")
    target = (object_id, None) if unit is not None else (None, object_id)
    with station(settings, "gw_policy") as connection:
        in_force(connection, snapshot)
        row = connection.execute(_GRANT, [receiver, purpose, *target, approver, lasting]).fetchone()
    if row is None:
        raise of_database(RuntimeError("no row came back"))
    print(f"granted {row[0]} to {receiver} until {row[1].astimezone(UTC).isoformat()}")
    print(f"decided by {', '.join(decision.rules)} of policy {snapshot.digest[:12]}")


@app.command("revoke")
def revoke(
    consent: Annotated[str, typer.Argument(metavar="ID", help="What `grant` printed.")],
    config: ConfigOption = None,
) -> None:
    """End a consent: no response that is inspected afterwards rests on it."""
    try:
        consent_id = UUID(consent)
    except ValueError as error:
        raise _usage(f"`{consent[:60]}` is not a consent's id") from error
    with station(settings_of(config), "gw_policy") as connection:
        row = connection.execute(_REVOKE, [consent_id]).fetchone()
    if row is None:
        reason = f"there is no live consent `{consent_id}`"
        raise Failure(Exit.REFUSED, "unknown_consent", reason, "see `gateway consent list`")
    print(f"revoked {consent_id}")


@app.command("list")
def list_consents(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    config: ConfigOption = None,
) -> None:
    """List consents, the newest first."""
    with station(settings_of(config), "gw_policy") as connection:
        rows = connection.execute(_LIST, {"all": everything}).fetchall()
    if as_json:
        for row in rows:
            fields = {name: _word(value) for name, value in zip(_COLUMNS, row, strict=True)}
            sys.stdout.write(json.dumps(fields) + "\n")
        return
    if not rows:
        print("no consents")
        return
    for text in columns([_TITLES, *map(_listed, rows)]):
        print(text)


def _listed(row: tuple[Any, ...]) -> tuple[str, ...]:
    ident, receiver, purpose, unit_id, thread_id, approver, _, until, ended = row
    values = (ident, receiver, purpose, unit_id or thread_id, approver, until, ended)
    return tuple(_word(value) or "-" for value in values)


def _word(value: object) -> str | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return None if value is None else str(value)


def _usage(reason: str) -> Failure:
    return Failure(Exit.USAGE, "usage", reason, "see `gateway consent grant --help`")


def _lasting(ttl: str) -> timedelta:
    match = _TTL.fullmatch(ttl)
    if match is None:
        raise _usage(f"`{ttl[:20]}` is not a time such as 15m, 1h or 2d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _subject(snapshot: Snapshot, given: str | None, issuer: str | None, sub: str | None) -> str:
    """The opaque id of who receives the consent."""
    if given is not None and issuer is None and sub is None:
        return given
    if given is not None or issuer is None or sub is None:
        raise _usage("name the subject by --subject, or by --issuer and --sub")
    urls = {binding.alias: binding.url for binding in snapshot.issuers}
    if issuer not in urls:
        names = ", ".join(f"`{alias}`" for alias in sorted(urls)) or "none"
        raise _usage(f"the policy has no issuer `{issuer}`; it has {names}")
    return subject_id(urls[issuer], sub)


def _object(connection: Connection, table: str, reference: str) -> UUID:
    """The id behind an id or an address. Operators may know what exists.

    An address may read like the id of something else: then which one is meant is not guessed.
    """
    rows = connection.execute(
        f"select id from {table} where (id::text = %(ref)s or canonical_address = %(ref)s)"
        " and deleted_at is null".encode(),
        {"ref": reference},
    ).fetchall()
    what = table.removeprefix("brain.")
    if len(rows) > 1:
        reason = f"`{reference[:120]}` is the id of one {what} and the address of another"
        raise Failure(Exit.REFUSED, f"ambiguous_{what}", reason, "name it by the other of its two")
    if not rows:
        reason = f"there is no {what} `{reference[:120]}`"
        raise Failure(Exit.REFUSED, f"unknown_{what}", reason, "name its id or address")
    found: UUID = rows[0][0]
    return found
