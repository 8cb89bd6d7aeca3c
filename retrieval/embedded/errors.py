"""Why an embedded service could not start: one line, with what to do about it."""

from __future__ import annotations

from pathlib import Path


class EmbeddedError(Exception):
    """An embedded service cannot be had. ``code`` is stable, ``remedy`` says what helps."""

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")


def state_unwritable(folder: Path, cause: OSError) -> EmbeddedError:
    return EmbeddedError(
        "state_unwritable",
        f"the state folder `{folder}` cannot be written ({cause.strerror or cause})",
        "make it writable or set GATEWAY_STATE to a folder that is",
    )


def disk_full(folder: Path, detail: str) -> EmbeddedError:
    return EmbeddedError(
        "disk_full",
        f"no space left for `{folder}` ({detail})",
        "free some space there or set GATEWAY_STATE to a folder on another disk",
    )
