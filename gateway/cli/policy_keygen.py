"""``gateway policy keygen``: a signer's key pair."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.failure import Exit, Failure
from gateway.cli.policy_release import refusing
from policies.release import SigningKey


def keygen(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: the `kid`.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the private key goes.")],
) -> None:
    """Make a signer's Ed25519 pair: the private key as a file, the public one printed.

    What is printed is one entry of `keys` in the keys file of `[release]`.
    """
    with refusing():
        key = SigningKey.generate(name)
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key.to_pem())
    except OSError as error:
        reason = f"`{out}` cannot be made ({error.strerror})"
        raise Failure(Exit.USAGE, "unwritable", reason, "name a file that is not there") from error
    print(json.dumps(key.public()))
