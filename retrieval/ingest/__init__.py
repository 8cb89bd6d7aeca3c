"""Bringing sources into the record of truth: ``run(source, mapping, dsn=...)``.

``sources`` (bytes to records) -> ``convert`` (records to items, by ``native`` or ``documents``
and the mapping) -> ``engine`` (batches, checkpoint) -> ``writer`` and ``links`` (SQL).
"""

from retrieval.ingest.engine import OnProgress, run
from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.report import Exit, Note, Outcome, Reason, Report, Sort

__all__ = [
    "Exit",
    "IngestRefused",
    "Note",
    "OnProgress",
    "Outcome",
    "Reason",
    "Report",
    "Sort",
    "run",
]
