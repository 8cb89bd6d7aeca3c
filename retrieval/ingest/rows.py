"""Items as rows of JSON for the statements, and the hashes that tell whether content changed."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

from policies.vocabulary import FACETS
from retrieval.embed.language import language
from retrieval.ingest.items import StoredLabel, ThreadItem, UnitItem
from retrieval.ingest.report import Reason
from retrieval.lexical import document_form

Row = dict[str, Any]


def unit_hash(item: UnitItem) -> str:
    """The digest of a unit's content: everything but its label."""
    active = item.active_at.isoformat() if item.active_at else ""
    return _digest([item.title, item.body, item.language, item.source, active])


def thread_hash(item: ThreadItem) -> str:
    return _digest([item.title, *item.aliases, "", item.description, item.purpose, item.status])


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def label_row(ident: UUID, label: StoredLabel) -> Row:
    return {
        "id": str(ident),
        **{facet: label.facets[facet] for facet in FACETS},
        "tenant": label.tenant,
        "jurisdiction": label.jurisdiction,
        "lifecycle_stage": label.lifecycle_stage,
    }


def unit_row(ident: UUID, item: UnitItem, revision: int) -> Row:
    return {
        "id": str(ident),
        "address": item.address,
        "title": item.title,
        # what a source does not say is told from the text; not part of the content's hash
        "language": item.language or language(f"{item.title}\n{item.body}"),
        "source": item.source,
        "revision": revision,
        "content_hash": unit_hash(item),
        "active_at": item.active_at.isoformat() if item.active_at else None,
    }


def revision_row(ident: UUID, item: UnitItem, revision: int) -> Row:
    terms, weights = document_form(item.title, item.body)
    return {
        "id": str(ident),
        "revision": revision,
        "title": item.title,
        "body": item.body,
        "body_sha256": hashlib.sha256(item.body.encode()).hexdigest(),
        "terms": terms,
        "weights": weights,
    }


def thread_row(ident: UUID, item: ThreadItem) -> Row:
    return {
        "id": str(ident),
        "address": item.address,
        "title": item.title,
        "aliases": list(item.aliases),
        "description": item.description,
        "purpose": item.purpose,
        "status": item.status,
        "content_hash": thread_hash(item),
    }


def quarantine_row(reason: Reason, ident: UUID | None, source: str) -> Row:
    """An open quarantine row. A record without an object is found again by its place."""
    return {
        "sort": reason.sort,
        "object_id": None if ident is None else str(ident),
        "address": (reason.place if ident is None else reason.address)[:300],
        "source": source[:300],
        "facet": reason.field[:100],
        "value": reason.value[:200],
        "reason": reason.reason[:300],
    }
