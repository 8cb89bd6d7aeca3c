"""``gateway openapi``: the public contract, for generators and validators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.surfaces import openapi as contract


def openapi(
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there, not to the terminal.")
    ] = None,
) -> None:
    """Print the OpenAPI 3.1 document of `/v1`; a gateway serves it at /v1/openapi.json."""
    if into is not None:
        into.write_bytes(contract.document())
        return
    sys.stdout.buffer.write(contract.document())
