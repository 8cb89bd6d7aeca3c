"""``gateway token``: a bearer token of a named identity, for other HTTP clients.

For trying things out by hand. It is printed and kept nowhere; how long it is good is the
provider's affair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.identity import FILE_NAME, token_of
from gateway.compose.state import state_folder


def token(
    who: Annotated[str, typer.Option("--as", metavar="NAME", help="An identity of the file.")],
    identities: Annotated[
        Path | None, typer.Option("--identities", metavar="F", help="Where the names are.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Print a fresh bearer token, for curl and the like."""
    print(token_of(who, identities or state_folder(settings_of(config)) / FILE_NAME))
