"""Who may read what in the demo, worked out from the corpus files by the written rules alone.

Independent on purpose: nothing here imports policies, retrieval or the gateway. It reads the
corpus files by itself and states the default audience policy a second time, in plain
comparisons of Ferrowick's own words, so that the tour compares two separate computations.

Source: seed 4.10 and 4.11, narrowed as architecture section 5 says ("Default audience policy").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

CORPUS: Final = Path(__file__).parent / "corpus"
WORDS: Final[Mapping[str, frozenset[str]]] = {
    "audience": frozenset({"everyone", "partners", "staff", "team", "need to know"}),
    "state": frozenset({"sketch", "in review", "signed off", "live", "replaced"}),
    "release": frozenset({"held", "released", "pulled"}),
    "risk": frozenset({"green", "amber", "red"}),
    "standing": frozenset({"in force", "proposed", "operational"}),
    "type": frozenset(
        {"statute", "policy", "procedure", "runbook", "faq", "guide", "api reference"}
        | {"integration spec", "product page", "design note", "source note", "test record"}
        | {"report", "incident", "topic", "note"}
    ),
}
"""Ferrowick's vocabulary, field by field. A document with any other word is nobody's."""

EVERYTHING: Final = WORDS["type"]
PLAIN: Final = EVERYTHING - {"source note", "incident"}
INCIDENT_WORK: Final = frozenset(
    {"procedure", "runbook", "guide", "api reference", "design note", "source note"}
    | {"test record", "report", "topic", "note"}
)


@dataclass(frozen=True, slots=True)
class Document:
    """One governed object of the corpus: a unit (with its text), a thread, or an artifact
    that a thread is expected to hold (its ``address`` is the thread's)."""

    sort: str
    address: str
    title: str
    words: Mapping[str, str]
    tenant: str
    jurisdiction: str
    text: str

    @property
    def labelled(self) -> bool:
        return all(self.words[field] in known for field, known in WORDS.items())


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who asks: an audience rule, and compartments of its own."""

    rule: Callable[[Mapping[str, str]], bool]
    tenants: frozenset[str]
    jurisdictions: frozenset[str]

    def may_read(self, document: Document, consented: frozenset[str] = frozenset()) -> bool:
        """``consented`` are the addresses of high-risk units with a consent for this reader."""
        return (
            document.labelled
            and document.tenant in self.tenants | {"*"}
            and document.jurisdiction in self.jurisdictions | {"*"}
            and (document.words["risk"] != "red" or document.address in consented)
            and self.rule(document.words)
        )


def customer(words: Mapping[str, str]) -> bool:
    return (
        words["audience"] == "everyone"
        and words["state"] == "live"
        and words["release"] == "released"
        and words["standing"] != "proposed"
        and words["type"] in PLAIN
    )


def partner(words: Mapping[str, str]) -> bool:
    return (
        words["audience"] in {"everyone", "partners"}
        and words["state"] == "live"
        and words["release"] == "released"
        and words["standing"] != "proposed"
        and words["type"] in PLAIN
    )


def employee(words: Mapping[str, str]) -> bool:
    return (
        words["audience"] in {"everyone", "partners", "staff"}
        and words["state"] in {"signed off", "live"}
        and words["release"] != "pulled"
        and words["type"] in PLAIN
        and not (words["type"] == "design note" and words["standing"] == "proposed")
    )


def agent_reader(words: Mapping[str, str]) -> bool:
    return (
        words["audience"] in {"everyone", "partners", "staff"}
        and words["state"] in {"signed off", "live"}
        and words["release"] == "released"
        and words["standing"] != "proposed"
        and words["type"] in PLAIN
    )


def agent_analyst(words: Mapping[str, str]) -> bool:
    return (
        words["audience"] != "need to know"
        and words["state"] in {"signed off", "live"}
        and words["release"] != "pulled"
        and words["standing"] != "proposed"
        and words["type"] in EVERYTHING - {"incident"}
    )


def agent_incident(words: Mapping[str, str]) -> bool:
    if words["audience"] == "need to know" or words["release"] == "pulled":
        return False
    if words["type"] == "incident":
        return words["state"] != "replaced"
    return (
        words["state"] in {"signed off", "live"}
        and words["standing"] != "proposed"
        and words["type"] in INCIDENT_WORK
    )


_BOTH: Final = frozenset({"eu", "vn"})
_SERVED: Final = frozenset({"acme", "globex"})
READERS: Final[Mapping[str, Reader]] = {
    "customer": Reader(customer, frozenset({"acme"}), frozenset({"eu"})),
    "globex-customer": Reader(customer, frozenset({"globex"}), frozenset({"vn"})),
    "partner": Reader(partner, frozenset(), _BOTH),
    "employee": Reader(employee, _SERVED, _BOTH),
    "agent-assistant": Reader(agent_reader, frozenset(), _BOTH),
    "agent-analyst": Reader(agent_analyst, _SERVED, _BOTH),
    "agent-incident": Reader(agent_incident, _SERVED, _BOTH),
}
"""By the names of ``people.CLIENTS``."""


def documents(folder: Path = CORPUS) -> tuple[Document, ...]:
    """Every governed object of the corpus, by address. Cost: reads about 240 small files."""
    units = (_of_markdown(file) for file in folder.rglob("*.md"))
    others = (
        _document(record["sort"], record, "")
        for record in records(folder)
        if record["sort"] in {"thread", "artifact"}
    )
    return tuple(sorted((*units, *others), key=lambda one: (one.address, one.title)))


def records(folder: Path = CORPUS) -> Iterator[dict[str, Any]]:
    """The JSON lines of the corpus: threads, expected artifacts, memberships, edges, labels."""
    for file in sorted(folder.rglob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            yield json.loads(line)


def allowed(name: str, corpus: tuple[Document, ...], *, sort: str = "unit") -> frozenset[str]:
    """The addresses of all units (or threads) that this reader may see, without any consent."""
    reader = READERS[name]
    return frozenset(one.address for one in corpus if one.sort == sort and reader.may_read(one))


def titles(name: str, corpus: tuple[Document, ...], *, sort: str) -> frozenset[str]:
    """As ``allowed``, but the titles: gaps and packs name threads and artifacts by them."""
    reader = READERS[name]
    return frozenset(one.title for one in corpus if one.sort == sort and reader.may_read(one))


def _of_markdown(file: Path) -> Document:
    _, head, text = file.read_text("utf-8").split("---\n", 2)
    return _document("unit", yaml.safe_load(head), text.strip("\n"))


def _document(sort: str, fields: Mapping[str, Any], text: str) -> Document:
    return Document(
        sort=sort,
        address=fields["thread"] if sort == "artifact" else fields["address"],
        title=fields["title"],
        words={field: str(fields.get(field, "")) for field in WORDS},
        tenant=str(fields.get("tenant", "")),
        jurisdiction=str(fields.get("jurisdiction", "")),
        text=text,
    )
