"""Threads as their owners edit them, one source at a time.

``wire`` (edits and what comes back) -> ``service`` (one transaction an edit, under ``gw_curate``)
-> ``applying`` (each change, by ingest's own writers) and ``reading`` (threads and history).
``checks`` judges health, ``overrides`` loosens a label for a time.
"""
