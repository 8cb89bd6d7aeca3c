"""``gateway policy explain``: why may a profile read one state or one live unit, or why not?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.check import ConfigOption
from gateway.cli.failure import Exit, Failure, flat
from gateway.cli.operator import (
    AdminOption,
    IdentitiesOption,
    Options,
    ReasonOption,
    TokenOption,
    WhoOption,
)
from gateway.cli.policy_live import explanation
from gateway.cli.policy_live import page as page_of_unit
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
from policies.vocabulary import FACETS


class Consent(StrEnum):
    """Whether the caller has one for the unit."""

    NONE = "none"
    GRANTED = "granted"


def explain(
    state: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROFILE VISIBILITY READINESS PUBLICATION_STATE RISK_CLASS AUTHORITY KIND]",
            help="A state that a policy folder speaks about, such as customer public published ...",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option("--unit", metavar="REF", help="A live unit instead: its id or address."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="P", help="With --unit: for whom.")
    ] = None,
    tenants: Annotated[
        list[str] | None, typer.Option("--tenant", metavar="T", help="With --unit: one of its.")
    ] = None,
    jurisdictions: Annotated[
        list[str] | None,
        typer.Option("--jurisdiction", metavar="J", help="With --unit: one of its."),
    ] = None,
    consent: Annotated[Consent, typer.Option("--consent", help="Is there a consent?")] = (
        Consent.NONE
    ),
    form: FormatOption = Format.TEXT,
    folder: Folder = DEFAULT,
    overlay: Overlay = None,
    reason: ReasonOption = None,
    who: WhoOption = None,
    token_file: TokenOption = None,
    identities: IdentitiesOption = None,
    admin: AdminOption = None,
    config: ConfigOption = None,
) -> int:
    """Name the rules that decide, or the nearest ones and where each fails.

    A state is explained from the policy folder. With --unit a running gateway explains one of
    its units for a caller, under the policy in force; it wants a reason, and journals it.
    """
    if unit is not None:
        if profile is None or state:
            reason = "a live unit is explained for a --profile, without a state"
            raise Failure(Exit.USAGE, "usage", reason, "see `gateway policy explain --help`")
        options = Options(
            reason=reason, who=who, token_file=token_file, identities=identities, admin=admin,
            config=config, command="policy explain",
        )  # fmt: skip
        told = explanation(
            unit,
            profile,
            tenants=tenants or [],
            jurisdictions=jurisdictions or [],
            consent=consent.value,
            options=options,
        )
        put(form, page_of_unit(told), told.model_dump(mode="json"))
        return Verdict.OK
    return _state(state or [], consent, form, folder, overlay)


def _state(
    given: list[str], consent: Consent, form: Format, folder: Path, overlay: Path | None
) -> int:
    if len(given) != len(FACETS) + 1:
        reason = f"a profile and the {len(FACETS)} values of a state are needed, not {len(given)}"
        raise Failure(Exit.USAGE, "usage", reason, f"name {' '.join(FACETS)}, or --unit")
    profile, *values = given
    reading = opened(read, folder, overlay)
    try:
        report = explain_state(
            reading, profile, dict(zip(FACETS, values, strict=True)), consent.value
        )
    except UnknownState as error:
        reason, _, remedy = flat(error).partition("; ")
        raise Failure(Exit.USAGE, "unknown_word", reason, remedy) from error
    put(form, page(report), report)
    return Verdict.OK
