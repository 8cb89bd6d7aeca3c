"""Words that say of what kind the wanted document is: a law, a design, code, a report.

They prefer threads that hold such a unit (seed 4.2, authority hint). Closed list, in the languages
that questions come in; a word means a kind only here, never elsewhere. Compared as terms, so that
inflected forms are found. This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from retrieval.lexical import query_terms

_WORDS: Final = {
    "law": "law statute act gesetz loi ley luật",
    "policy": "policy rule richtlinie regel politique política",
    "sop": "procedure sop verfahren ablauf procédure procedimiento",
    "runbook": "runbook playbook",
    "faq": "faq",
    "guide": "guide manual tutorial anleitung handbuch guía",
    "api_doc": "api reference endpoint schnittstelle",
    "integration_spec": "specification spec integration format",
    "design": "design architecture proposal entwurf conception diseño",
    "code": "code source implementation quellcode",
    "test": "test benchmark prüfung essai prueba",
    "report": "report review audit minutes bericht rapport informe",
    "incident": "incident outage postmortem störung vorfall incidente",
}

KINDS_OF_TERM: Final[Mapping[int, frozenset[str]]] = {
    term: frozenset(
        kind
        for kind, words in _WORDS.items()
        if term in {t for word in words.split() for t in query_terms(word)}
    )
    for words in _WORDS.values()
    for word in words.split()
    for term in query_terms(word)
}
"""Term id to the kinds that it asks for."""
