"""``gateway policy explain``: why may a profile read one state, or why not?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.policy_report import (
    DEFAULT,
    Folder,
    Format,
    FormatOption,
    Overlay,
    Verdict,
    opened,
    put,
)
from policies.review.explain import UnknownState, page
from policies.review.explain import explain as explain_state
from policies.review.reading import read


class Consent(StrEnum):
    NONE = "none"
    GRANTED = "granted"


def explain(
    profile: Annotated[str, typer.Argument(help="Such as customer or agent:reader.")],
    visibility: Annotated[str, typer.Argument()],
    readiness: Annotated[str, typer.Argument()],
    publication_state: Annotated[str, typer.Argument()],
    risk_class: Annotated[str, typer.Argument()],
    authority: Annotated[str, typer.Argument()],
    kind: Annotated[str, typer.Argument()],
    consent: Annotated[Consent, typer.Option("--consent", help="Is there a consent?")] = (
        Consent.NONE
    ),
    form: FormatOption = Format.TEXT,
    folder: Folder = DEFAULT,
    overlay: Overlay = None,
) -> int:
    """Name the rules that decide on one state, or the nearest ones and where each fails."""
    state = {
        "visibility": visibility, "readiness": readiness, "publication_state": publication_state,
        "risk_class": risk_class, "authority": authority, "kind": kind,
    }  # fmt: skip
    reading = opened(read, folder, overlay)
    try:
        report = explain_state(reading, profile, state, consent.value)
    except UnknownState as error:
        reason, _, remedy = flat(error).partition("; ")
        raise Failure(Exit.USAGE, "unknown_word", reason, remedy) from error
    put(form, page(report), report)
    return Verdict.OK
