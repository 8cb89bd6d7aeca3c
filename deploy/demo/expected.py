"""Who may read what in the demo, worked out from the corpus files by the written rules alone.

Independent on purpose: nothing here imports policies, retrieval or the gateway. It reads the
front matter by itself and states the default audience policy a second time, in plain
comparisons of Ferrowick's own words, so that the tour compares two separate computations.

Source: seed 4.10 and 4.11, narrowed as architecture section 5 says ("Default audience policy").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """One file of the corpus: a unit, or (``type: topic``) a thread."""

    address: str
    title: str
    words: Mapping[str, str]
    tenant: str
    jurisdiction: str
    front: Mapping[str, Any]
    text: str

    @property
    def labelled(self) -> bool:
        return all(self.words[field] in known for field, known in WORDS.items())

    @property
    def is_thread(self) -> bool:
        return self.words["type"] == "topic"


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
    """Everything in the corpus folder, by address. Cost: reads about 240 small files."""
    return tuple(sorted(map(_document, folder.rglob("*.md")), key=lambda one: one.address))


def allowed(name: str, corpus: tuple[Document, ...], *, threads: bool = False) -> frozenset[str]:
    """The addresses of all units (or threads) that this reader may see, without any consent."""
    reader = READERS[name]
    return frozenset(
        one.address for one in corpus if one.is_thread is threads and reader.may_read(one)
    )


def _document(file: Path) -> Document:
    _, head, text = file.read_text("utf-8").split("---\n", 2)
    front = yaml.safe_load(head)
    return Document(
        address=front["address"],
        title=front["title"],
        words={field: str(front.get(field, "")) for field in WORDS},
        tenant=str(front.get("tenant", "")),
        jurisdiction=str(front.get("jurisdiction", "")),
        front=front,
        text=text.strip(),
    )
