"""``gateway query``: ask a running gateway, as one of the named identities."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.identity import FILE_NAME, token_for
from gateway.cli.show import show
from gateway.cli.terminal import console
from gateway.cli.web import Reply, secure, send
from gateway.compose.state import running_address, state_folder
from retrieval.contract import Response, RetrieveRequest


def query(
    text: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.")],
    who: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="An identity of the file.")
    ] = None,
    token_file: Annotated[
        Path | None,
        # not typer's check: what cannot be read is said in our words, with a remedy
        typer.Option(
            "--token-file", metavar="F", readable=False, help="A bearer token of your own."
        ),
    ] = None,
    identities: Annotated[
        Path | None, typer.Option("--identities", metavar="F", help="Where the names are.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="The gateway's address. GATEWAY_URL.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="REF", help="A thread's id or address.")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, max=50, help="How many units.")] = 10,
    raw: Annotated[
        bool, typer.Option("--raw", help="Search by vectors, whatever threads.")
    ] = False,
    task_scope: Annotated[
        str | None, typer.Option("--task-scope", metavar="X", help="One of the caller's.")
    ] = None,
    purpose: Annotated[
        str | None, typer.Option("--purpose", metavar="P", help="Which consents apply.")
    ] = None,
    audience: Annotated[
        str | None, typer.Option("--audience", metavar="A", help="Narrow to this audience.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the wire form.")] = False,
    config: ConfigOption = None,
) -> None:
    """Ask a running gateway and print the context pack."""
    settings = settings_of(config)
    request = _request(
        query=text, thread=thread, k=k, mode="raw" if raw else "auto", task_scope=task_scope,
        purpose=purpose, audience=audience,
    )  # fmt: skip
    address = secure(
        url or os.environ.get("GATEWAY_URL") or running_address(settings), "gateway's address"
    )
    token = token_for(
        who, token_file, identities or state_folder(settings) / FILE_NAME, command="query"
    )
    reply = ask(address, token, request)
    if as_json:
        json.dump(reply.json, sys.stdout, ensure_ascii=True)  # safe for a terminal
        sys.stdout.write("\n")
        return
    show(console(), response_of(reply, address))


def _request(**fields: Any) -> RetrieveRequest:
    try:
        return RetrieveRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"`{'.'.join(map(str, first['loc']))}` {flat(first['msg']).lower()}"
        raise Failure(Exit.USAGE, "usage", reason, "see `gateway query --help`") from error


def ask(address: str, token: str, request: RetrieveRequest) -> Reply:
    """What the gateway answers with status 200. Raises: Failure for anything else."""
    headers = {
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "accept": "application/json",
    }
    body = request.model_dump_json(exclude_none=True).encode()
    try:
        reply = send(f"{address.rstrip('/')}/v1/retrieve", body, headers)
    except OSError as error:
        reason = f"no gateway answers at `{address}` ({flat(getattr(error, 'reason', error))})"
        remedy = "start one with `gateway serve` or `make demo`, or pass --url"
        raise Failure(Exit.UNAVAILABLE, "gateway_unreachable", reason, remedy) from error
    if reply.status != 200:
        raise _refused(reply)
    return reply


def response_of(reply: Reply, address: str) -> Response:
    """The answer as the wire model. Raises: Failure ``not_a_gateway``."""
    try:
        return Response.model_validate(reply.json)
    except ValidationError as error:
        reason = f"`{address}` did not answer with a retrieval response"
        raise Failure(Exit.UNAVAILABLE, "not_a_gateway", reason, "mend --url") from error


def _refused(reply: Reply) -> Failure:
    problem = reply.json if isinstance(reply.json, dict) else {}
    code = str(problem.get("code", "refused"))
    reason = f"status {reply.status}: {flat(problem.get('title', 'no reason given'))}"
    request = f"request `{flat(problem.get('request_id', 'unknown'))}`"
    own = _OWN_REMEDY.get(code)
    remedy = f"{own} ({request})" if own else f"ask an operator about {request}"
    return Failure(Exit.REFUSED, flat(code), reason, remedy)


_OWN_REMEDY: Final = {
    "ambiguous_audience": "say which with --audience NAME",
    "audience_refused": "name an audience or agent profile of the policy, or leave --audience out",
    "bad_request": "mend the options: --purpose must be a word of the policy",
    "task_scope_refused": "name one that the caller's token carries, or leave --task-scope out",
    "task_scope_required": "say which with --task-scope NAME",
    "unauthenticated": "use a token that was issued for this gateway and has not run out",
}
"""What the one who asks can do alone. Who is refused by policy needs an operator."""
