"""Telemetry and decision log as the settings want them, or the reason why they cannot be."""

from __future__ import annotations

import os

from gateway.compose.failure import CannotStart
from gateway.settings import Settings
from gateway.telemetry.providers import Telemetry, open_telemetry


def opened_telemetry(settings: Settings) -> Telemetry:
    """Telemetry of this process. Raises: CannotStart for a file that cannot be written."""
    try:
        return open_telemetry(
            settings.telemetry, instance=f"{os.getpid()}", decision_log=settings.decision_log
        )
    except OSError as error:
        reason = f"`{error.filename}` cannot be written ({(error.strerror or 'no file').lower()})"
        remedy = "mend `decision_log.file` or `telemetry.trace_file`"
        raise CannotStart("log_unusable", reason, remedy) from error
