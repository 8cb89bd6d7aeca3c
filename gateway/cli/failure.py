"""How a command fails: one line with a code, a reason and a remedy, and an exit code."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import Final

from gateway.compose.failure import CannotStart
from gateway.settings import InvalidSettings
from policies.errors import InvalidPolicy, PolicyError, ReleaseRefused


class Exit(IntEnum):
    """The exit codes of ``gateway``; scripts may rely on them."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    POLICY = 3
    UNAVAILABLE = 4
    PORT_TAKEN = 5
    INTERNAL = 70
    INTERRUPTED = 130


class Failure(Exception):
    """A command cannot do what was asked. ``lines`` are printed, then the process ends."""

    def __init__(self, exit_code: Exit, code: str, reason: str, remedy: str) -> None:
        self.exit_code = exit_code
        self.lines: tuple[str, ...] = (f"{code}: {reason}; {remedy}",)
        super().__init__(self.lines[0])


def of_settings(error: InvalidSettings) -> Failure:
    """Every fault of the settings, one line each."""
    failure = Failure(Exit.USAGE, "settings_invalid", "see above", "mend them")
    failure.lines = tuple(f"settings_invalid: {fault}" for fault in error.faults)
    return failure


def of_policy(error: PolicyError, folder: Path) -> Failure:
    """Every fault of the policy folder, one line each; of a release its own words."""
    if isinstance(error, ReleaseRefused):
        return Failure(Exit.POLICY, error.code, flat(error.reason), error.remedy)
    remedy = "run `gateway policy verify`; a policy that cannot be proven is not served"
    failure = Failure(Exit.POLICY, "policy_invalid", flat(error), remedy)
    if isinstance(error, InvalidPolicy):
        failure.lines = tuple(f"policy_invalid: {folder}/{fault}" for fault in error.faults)
    return failure


def of_start(error: CannotStart) -> Failure:
    """The failure of a command that lacks something it needs."""
    exit_code = Exit.USAGE if error.code in _OF_SETTINGS else Exit.UNAVAILABLE
    return Failure(exit_code, error.code, flat(error.reason), error.remedy)


_OF_SETTINGS: Final = frozenset(
    {
        "ca_unusable",
        "client_missing",
        "embedder_unusable",
        "key_unusable",
        "keys_unusable",
        "log_unusable",
        "source_name",
        "store_missing",
        "unknown_route",
        "unknown_upstream",
        "webhook_unusable",
        "workers_unsupported",
    }
)
"""Codes of ``CannotStart`` that name a fault of settings or options, not of a store."""


def of_database(error: Exception) -> Failure:
    """The failure of a command whose database does not let it in."""
    reason = f"the database cannot be used ({flat(error)})"
    remedy = "start it, or run `gateway serve` once so that it is prepared"
    return Failure(Exit.UNAVAILABLE, "database_unavailable", reason, remedy)


def flat(text: object) -> str:
    """A foreign error's text on one line, so that an error stays one line."""
    return " ".join(str(text).split())[:400]
