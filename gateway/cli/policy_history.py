"""``gateway policy history``: what was served when, who signed it, and who serves what now."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.cli.check import ConfigOption, settings_of
from gateway.cli.terminal import columns
from policies.release import ReleaseRefused, signers_of

if TYPE_CHECKING:  # it loads every house, a second or two
    from gateway.compose.activating import StoredRelease


class HistoryFormat(StrEnum):
    """For people, or one document."""

    TEXT = "text"
    JSON = "json"


_TITLES: Final = ("generation", "digest", "state", "change", "signers", "when", "by", "reason")
_REPLICAS: Final = ("replica", "started", "digest", "generation", "seen", "staged")


def history(
    form: Annotated[
        HistoryFormat, typer.Option("--format", help="How to write it.")
    ] = HistoryFormat.TEXT,
    config: ConfigOption = None,
) -> None:
    """List every release, the newest first, and the living replicas with their digests."""
    # late: they load every house, a second or two
    from gateway.compose.activating import release_history
    from gateway.compose.stores import attached

    with attached(settings_of(config)) as stores:
        releases, replicas = release_history(stores)
    if form is HistoryFormat.JSON:
        told = {
            "releases": [_fields(one) for one in releases],
            "replicas": [asdict(one) for one in replicas],
        }
        sys.stdout.write(json.dumps(told, default=_word, indent=1) + "\n")
        return
    if not releases:
        print("no releases")
    else:
        print("\n".join(columns([_TITLES, *map(_row, releases)])))
    living = [
        (
            one.host,
            _word(one.started_at),
            one.digest[:12],
            str(one.generation),
            _word(one.seen_at),
            f"{one.staged_generation} {one.staged_state}" if one.staged_state else "-",
        )
        for one in replicas
    ]
    if living:
        print("\n".join(columns([_REPLICAS, *living])))


def _row(one: StoredRelease) -> tuple[str, ...]:
    return (
        str(one.generation),
        one.digest[:12],
        one.state,
        one.change,
        ", ".join(_signers(one)) or "-",
        _word(one.activated_at or one.staged_at),
        one.activated_by or "-",
        one.reason or "-",
    )


def _fields(one: StoredRelease) -> dict[str, Any]:
    return {
        "generation": one.generation,
        "environment": one.environment,
        "digest": one.digest,
        "state": one.state,
        "change": one.change,
        "base_generation": one.base_generation,
        "base_digest": one.base_digest,
        "signed": one.jws is not None,
        "signers": _signers(one),
        "staged_at": one.staged_at,
        "activated_at": one.activated_at,
        "activated_by": one.activated_by,
        "reason": one.reason,
    }


def _signers(one: StoredRelease) -> tuple[str, ...]:
    """Who is named; activation verified them, and every gateway does again."""
    if one.jws is None:
        return ()
    try:
        return signers_of(one.jws)
    except ReleaseRefused:
        return ("malformed",)


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    raise TypeError(f"`{type(value).__name__}` has no JSON form")
