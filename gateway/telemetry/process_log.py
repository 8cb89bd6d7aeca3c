"""The log of the process: what operators are told beside the access log, as JSON lines.

Written to standard error, so that standard output stays one line per request.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One ASCII JSON object per record, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "pid": record.process,  # several workers write to one stream
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=True).replace("\x7f", "\\u007f")


def configure(level: int = logging.WARNING) -> None:
    """Send every logger of this process to standard error, from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # what an operator asked for, by a signal or by an activation, is answered here
    logging.getLogger("gateway.settings").setLevel(logging.INFO)
    logging.getLogger("gateway.reload").setLevel(logging.INFO)
    # a dead collector must not fill the log: its state is a metric of the collector's side
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
