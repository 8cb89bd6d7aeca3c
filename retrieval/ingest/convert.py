"""From a raw record to the objects that it names. Pure: no store, no clock.

Three shapes of record (``native`` and ``documents`` say which fields each takes):

    {"sort": "unit" | "thread" | ..., ...}     native: one object, addresses written in full
    {"id": ..., "title": ..., "sections": [...]}   a document of the source: one unit a section
    {"id": ..., "title": ..., "text": ...}         a document of one unit

The words of the label are read by the mapping in all three. Addresses of documents are
``<mapping>/<id>``: two sources cannot name each other's units by accident (and on purpose
neither, see ``ownership``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policies.mapping import IngestMapping
from retrieval.ingest.documents import document_items
from retrieval.ingest.items import Item, RefusedItem
from retrieval.ingest.labels import closed_label
from retrieval.ingest.native import native_items
from retrieval.ingest.report import Reason, Sort
from retrieval.ingest.sources import Raw


@dataclass(frozen=True, slots=True)
class Converter:
    """Turns the records of one source into items, by one mapping."""

    mapping: IngestMapping

    def items(self, raw: Raw) -> Iterator[Item]:
        """The objects of one record, in the order in which they can be stored."""
        if raw.fault:
            if raw.names is not None:
                yield RefusedItem(*raw.names, closed_label(self.mapping))
            yield refused(raw.place, reason=raw.fault)
            return
        fields: Mapping[str, Any] = raw.fields
        if raw.markdown is not None:
            fields = {**fields, ("text" if "id" in fields else "body"): raw.markdown}
        if "sort" in fields and "sort" not in self.mapping.fields:
            yield from native_items(self.mapping, raw.place, fields)
        elif raw.markdown is not None and "id" not in fields:
            unit = {**fields, "sort": Sort.UNIT.value}
            yield from native_items(self.mapping, raw.place, unit, lenient=True)
        else:
            yield from document_items(self.mapping, raw.place, fields)


def refused(
    place: str, *, address: str = "", field: str = "", value: str = "", reason: str
) -> Reason:
    """A record of which nothing is stored."""
    return Reason(place, Sort.RECORD, address, field, value, reason)
