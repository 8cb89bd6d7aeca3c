"""Asking a running gateway as an operator: who, where, why, and what a refusal means.

The second listener must be on loopback or behind https: the token is the operator's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from pydantic import ValidationError

from gateway.cli.check import settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.identity import FILE_NAME, token_for
from gateway.cli.web import Reply, secure, send
from gateway.compose.state import running_admin, state_folder
from gateway.surfaces.admin.wire import Question, Wire

ReasonOption = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Why a running gateway is asked; journaled."),
]
WhoOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="An identity of the file.")
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="F", readable=False, help="A bearer token of your own."),
]
IdentitiesOption = Annotated[
    Path | None, typer.Option("--identities", metavar="F", help="Where the names are.")
]
AdminOption = Annotated[
    str | None,
    typer.Option("--admin", metavar="URL", help="The second listener. GATEWAY_ADMIN_URL."),
]

_REMEDY: Final = {
    "admin_disabled": "write rules/admin.csv and activate it",
    "bad_body": "mend the options",
    "forbidden": "ask for a role that rules/admin.csv allows this to",
    "journal_unavailable": "mend the database; nothing is told that cannot be journaled",
    "no_audience": "ids are told to readers only: use --live counts",
    "not_found": "name a live unit by its id or its canonical address",
    "policy_changed": "ask again",
    "unauthenticated": "use a token that was issued for this gateway and has not run out",
}
Answer = TypeVar("Answer", bound=Wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about who asks where, and why."""

    reason: str | None
    who: str | None
    token_file: Path | None
    identities: Path | None
    admin: str | None
    config: Path | None
    command: str


def in_ci(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a pipeline: its log is read by more people than its token is for."""
    return environment.get("CI", "").lower() not in {"", "0", "false", "no"}


def reason_of(options: Options) -> str:
    """The reason. Raises: Failure when there is none."""
    if options.reason is None or not options.reason.strip():
        reason = "a running gateway is asked for a reason only"
        raise Failure(Exit.USAGE, "no_reason", reason, "say why with --reason TEXT")
    return options.reason


def made(model: type[Answer], fields: Mapping[str, object]) -> Answer:
    """A question. Raises: Failure for a value that the gateway would refuse."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"`{where}`: {flat(first['msg']).lower()}"
        raise Failure(Exit.USAGE, "usage", reason, "mend that option") from error


def ask(options: Options, path: str, question: Question, model: type[Answer]) -> Answer:
    """The running gateway's answer. Raises: Failure."""
    settings = settings_of(options.config)
    url = options.admin or os.environ.get("GATEWAY_ADMIN_URL") or running_admin(settings)
    address = secure(url, "second listener's address")
    identities = options.identities or state_folder(settings) / FILE_NAME
    token = token_for(options.who, options.token_file, identities, command=options.command)
    headers = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "accept": "application/json",
    }
    try:
        reply = send(f"{address.rstrip('/')}{path}", question.model_dump_json().encode(), headers)
    except OSError as error:
        reason = f"no gateway answers at `{address}` ({flat(getattr(error, 'reason', error))})"
        remedy = "start one with `gateway serve`, or pass --admin"
        raise Failure(Exit.UNAVAILABLE, "gateway_unreachable", reason, remedy) from error
    if reply.status != 200:
        raise _refused(reply)
    try:
        return model.model_validate(reply.json)
    except ValidationError as error:
        reason = f"`{address}` did not answer as a gateway's second listener does"
        raise Failure(Exit.UNAVAILABLE, "not_a_gateway", reason, "mend --admin") from error


def _refused(reply: Reply) -> Failure:
    problem = reply.json if isinstance(reply.json, dict) else {}
    code = str(problem.get("code", "refused"))
    detail = problem.get("detail") or problem.get("title") or "no reason given"
    reason = f"status {reply.status}: {flat(detail)}"
    request = f"request `{flat(problem.get('request_id', 'unknown'))}`"
    own = _REMEDY.get(code)
    remedy = f"{own} ({request})" if own else f"look up {request} in the log"
    return Failure(Exit.REFUSED, flat(code), reason, remedy)
