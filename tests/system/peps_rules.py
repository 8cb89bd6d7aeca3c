"""Who may read what of the PEP corpus, worked out from the source's files by the written rules.

Independent on purpose: no policy table, no ingest, no mapping file of ours. The facets come from
``status_map.json`` (``tests.peps.expected_facets``), the rules are those of seed 4.10 and 4.11,
narrowed as architecture section 5 says, stated here a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.peps import address, documents, expected_facets, status_map

Facets = Mapping[str, str]

TO_PARTNER: Final = {"public", "partner"}
TO_EMPLOYEE: Final = TO_PARTNER | {"employee"}
TO_INTERNAL: Final = TO_EMPLOYEE | {"internal"}
IN_FORCE: Final = {"approved", "published"}


def customer(of: Facets) -> bool:
    return of["visibility"] == "public" and _in_print(of)


def partner(of: Facets) -> bool:
    return of["visibility"] in TO_PARTNER and _in_print(of)


def employee(of: Facets) -> bool:
    return (
        of["visibility"] in TO_EMPLOYEE
        and of["readiness"] in IN_FORCE
        and of["publication_state"] != "withdrawn"
        and not (of["kind"] == "design" and of["authority"] == "draft")
    )


def drafter(of: Facets) -> bool:
    """Whoever helps to write reads drafts too, but nothing old, secret or withdrawn."""
    return (
        of["visibility"] in TO_EMPLOYEE
        and of["readiness"] in IN_FORCE | {"draft", "under_review"}
        and of["publication_state"] != "withdrawn"
    )


def auditor(of: Facets) -> bool:
    """Compares what was superseded with what replaced it."""
    return (
        of["visibility"] in TO_INTERNAL
        and of["readiness"] in IN_FORCE | {"superseded"}
        and of["publication_state"] != "withdrawn"
        and of["authority"] == "enacted"
    )


def _in_print(of: Facets) -> bool:
    return (
        of["readiness"] == of["publication_state"] == "published" and of["authority"] == "enacted"
    )


READERS: Final[Mapping[str, Callable[[Facets], bool]]] = {
    "customer": customer,
    "partner": partner,
    "employee": employee,
    "agent:drafter": drafter,
    "agent:auditor": auditor,
}


@dataclass(frozen=True, slots=True)
class Section:
    address: str
    text: str
    facets: Facets


@dataclass(frozen=True, slots=True)
class Document:
    """``replaces`` and ``superseded_by`` are addresses of documents of the corpus;
    ``names_successor`` also counts pointers that lead outside."""

    address: str
    title: str
    status: str
    facets: Facets
    sections: tuple[Section, ...]
    replaces: tuple[str, ...]
    superseded_by: tuple[str, ...]
    names_successor: bool


@dataclass(frozen=True, slots=True)
class Library:
    """The corpus as its source tells it, by address."""

    documents: Mapping[str, Document]
    sections: Mapping[str, Section]

    def units_of(self, reader: str) -> set[str]:
        """The sections that this reader may read, without any consent."""
        return {one.address for one in self.sections.values() if may_read(reader, one.facets)}

    def threads_of(self, reader: str) -> set[str]:
        return {one.address for one in self.documents.values() if may_read(reader, one.facets)}

    def absorbed(self, document: Document) -> list[Section]:
        """The sections of what this document replaces."""
        return [s for other in document.replaces for s in self.documents[other].sections]


def may_read(reader: str, of: Facets) -> bool:
    """High risk asks for a consent, whoever asks; nobody here has one."""
    return of["risk_class"] != "high" and READERS[reader](of)


def library(shared_data: Path) -> Library:
    source, raw = status_map(shared_data), list(documents(shared_data))
    known = {one["id"] for one in raw}

    def there(ids: list[str]) -> tuple[str, ...]:
        return tuple(address(one) for one in ids if one in known)

    made = [
        Document(
            address=address(one["id"]),
            title=one["title"],
            status=one["status"],
            facets=expected_facets(one, "", source),
            sections=tuple(
                Section(address(s["id"]), s["text"], expected_facets(one, s["heading"], source))
                for s in one["sections"]
            ),
            replaces=there(one["links"]["replaces"]),
            superseded_by=there(one["links"]["superseded_by"]),
            names_successor=bool(one["links"]["superseded_by"]),
        )
        for one in raw
    ]
    return Library(
        {one.address: one for one in made}, {s.address: s for one in made for s in one.sections}
    )
