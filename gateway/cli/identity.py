"""Who asks, on the command line: a token from a file, or one obtained for a named identity.

The identities file maps a name to a client of an identity provider::

    {"partner": {"token_url": "...", "client_id": "...", "client_secret": "...", "scope": "..."}}

The demo writes one for its development identity provider. Source: RFC 6749 section 4.4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.web import secure, send

FILE_NAME: Final = "identities.json"

Text = Annotated[str, StringConstraints(min_length=1)]


class Identity(BaseModel):
    """One client of an identity provider."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_url: Text
    client_id: Text
    client_secret: Text
    scope: Text | None = None


_FILE: Final = TypeAdapter(dict[str, Identity])


def token_from_file(path: Path) -> str:
    """The token in a file. Raises: Failure when there is none."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"`{path}` holds no readable token"
        raise Failure(Exit.USAGE, "token_unreadable", reason, "name another file") from error
    if not token or any(character.isspace() for character in token):
        reason = f"`{path}` does not hold exactly one token"
        raise Failure(Exit.USAGE, "token_unreadable", reason, "write the token and nothing else")
    return token


def token_for(who: str | None, token_file: Path | None, identities: Path, *, command: str) -> str:
    """The token of whoever was named, one way or the other. Raises: Failure."""
    if (who is None) == (token_file is None):
        reason = "say who asks: --as NAME or --token-file F, not both"
        raise Failure(Exit.USAGE, "usage", reason, f"see `gateway {command} --help`")
    return (
        token_from_file(token_file) if token_file is not None else token_of(who or "", identities)
    )


def token_of(name: str, file: Path) -> str:
    """A fresh token for the identity ``name`` of ``file``.

    Raises: Failure when the file or the name is missing, or the provider refuses.
    """
    identity = _identity(name, file)
    fields = {
        "grant_type": "client_credentials",
        "client_id": identity.client_id,
        "client_secret": identity.client_secret,
    } | ({"scope": identity.scope} if identity.scope else {})
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    url = secure(identity.token_url, "token address")
    try:
        reply = send(url, urlencode(fields).encode(), headers)
    except OSError as error:
        why = flat(getattr(error, "reason", error))
        reason = f"the identity provider at `{url}` does not answer ({why})"
        remedy = "start it (`make demo` runs the development one)"
        raise Failure(Exit.UNAVAILABLE, "identity_unavailable", reason, remedy) from error
    token = reply.json.get("access_token") if isinstance(reply.json, dict) else None
    if reply.status != 200 or not isinstance(token, str):
        reason = f"the identity provider refused `{name}` with status {reply.status}"
        raise Failure(Exit.REFUSED, "identity_refused", reason, f"mend its entry in `{file}`")
    return token


def _identity(name: str, file: Path) -> Identity:
    try:
        known = _FILE.validate_python(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        remedy = "run `make demo`, which writes one, or pass --identities or --token-file"
        reason = f"there is no identities file `{file}`"
        raise Failure(Exit.USAGE, "no_identities", reason, remedy) from error
    except (OSError, ValueError, ValidationError) as error:
        reason = f"`{file}` is not an identities file"
        remedy = "give each name token_url, client_id and client_secret"
        raise Failure(Exit.USAGE, "identities_invalid", reason, remedy) from error
    if name not in known:
        names = ", ".join(f"`{one}`" for one in sorted(known)) or "none"
        reason = f"`{file}` has no identity `{name}`"
        raise Failure(Exit.USAGE, "unknown_identity", reason, f"use one of {names}")
    return known[name]
