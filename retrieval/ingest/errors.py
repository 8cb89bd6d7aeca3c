"""Why an ingest could not run at all. A record that cannot be taken is no error: see report."""

from __future__ import annotations


class IngestRefused(Exception):
    """Nothing was written, or what was written so far is committed and a new run goes on there.

    ``code`` is stable, ``remedy`` says what helps.
    """

    def __init__(self, code: str, reason: str, remedy: str) -> None:
        self.code = code
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{code}: {reason}; {remedy}")
