"""Another model for the unit decision: compiled by asking Casbin about every request.

The shipped shape is compiled by set algebra and proven on a quotient; that proof is good for
this one shape only. A model that somebody brings is therefore enumerated: every combination of
the closed words is put to Casbin, and the answers are the table. What cannot be enumerated
exactly, or could be read otherwise tomorrow, is refused (``policies.foreign_text``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies import foreign_text
from policies.faults import Faults, Place, advice, shown
from policies.foreign_text import MODEL, POLICY, ForeignModel, ForeignRow
from policies.oracle import ForeignOracle
from policies.table import UnitTable
from policies.vocabulary import CONSENTS, FACETS, Vocabulary

QUESTIONS_MAX: Final = 400_000
"""Some 40 s of Casbin."""


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """Every allowed request of a model, as words in the order of ``axes``."""

    axes: tuple[str, ...]
    allowed: frozenset[tuple[str, ...]]

    def allows(self, *request: str) -> bool:
        """The verdict on one request; a word that was not enumerated is denied."""
        return request in self.allowed


def compile_model(
    model_text: str, policy_text: str, domains: Mapping[str, Sequence[str]]
) -> ForeignTable:
    """The table of a model over closed words per name of its request.

    Raises InvalidPolicy with the reasons when the model or the policy cannot be compiled, and
    IncongruentPolicy when Casbin fails on a question. Cost: about 0.1 ms per combination.
    """
    model = foreign_text.read_model(model_text)
    rows = foreign_text.read_policy(policy_text, model)
    _check_domains(model, rows, domains)
    oracle = ForeignOracle(model.text, [(row.sort, row.words) for row in rows])
    combinations = itertools.product(*(domains[name] for name in model.request))
    return ForeignTable(
        model.request,
        frozenset(request for request in combinations if oracle.allows(*request)),
    )


def compile_units(
    model_text: str, policy_text: str, vocabulary: Vocabulary, names: Mapping[str, str]
) -> UnitTable:
    """The unit decision of a model as the table that every emitted form is made from.

    ``names`` says which axis each name of its request is: ``profile``, a facet or ``consent``.
    A facet that the model does not ask about tells nothing apart. The result has no rows: what
    explains, lints or blames rules needs the shipped shape.

    Raises as ``compile_model`` does, and InvalidPolicy when a consent would close something.
    """
    words: dict[str, Sequence[str]] = {
        "profile": tuple(vocabulary.profiles),
        "consent": CONSENTS,
        **{facet: vocabulary.live(facet) for facet in FACETS},
    }
    table = compile_model(
        model_text, policy_text, {name: words[axis] for name, axis in names.items()}
    )
    axes = ("profile", *FACETS, "consent")
    positions = [axes.index(names[name]) for name in table.axes]
    if 0 not in positions or len(set(positions)) != len(positions):
        _fail(MODEL, "bad_request", "the request must name the profile, and each axis once")
    readable: dict[tuple[str, str], int] = {}
    for profile, consent in itertools.product(vocabulary.profiles, CONSENTS):
        bits = bytearray((vocabulary.class_count + 7) // 8)
        for class_id, values in vocabulary.classes:
            request = (profile, *values, consent)
            if not vocabulary.is_retired(class_id) and table.allows(
                *(request[position] for position in positions)
            ):
                bits[class_id >> 3] |= 1 << (class_id & 7)
        readable[profile, consent] = int.from_bytes(bits, "little")
    for profile in vocabulary.profiles:
        if readable[profile, "none"] & ~readable[profile, "granted"]:
            _fail(POLICY, "consent_closes", f"{shown(profile)} reads less with a consent")
    return UnitTable(vocabulary.class_count, vocabulary.profiles, (), {}, readable)


def _check_domains(
    model: ForeignModel, rows: Sequence[ForeignRow], domains: Mapping[str, Sequence[str]]
) -> None:
    """Every name has its words, no word is empty, and every word of a row can occur."""
    faults = Faults()
    for name in model.request:
        if not domains.get(name) or "" in domains[name]:
            reason = f"there is no closed list of words for {shown(name)}"
            faults.add(Place(MODEL), "open_domain", reason, "name it as the vocabulary does")
    faults.check()
    count = math.prod(len(set(domains[name])) for name in model.request)
    if count > QUESTIONS_MAX:
        _fail(MODEL, "too_many_states", f"{count} requests are more than can be enumerated")
    known = {word for words in domains.values() for word in words}
    known |= {word for row in rows if row.sort != "p" for word in row.words}
    for row in rows:
        columns = row.words[:-1] if row.sort == "p" and model.columns[-1] == "eft" else row.words
        for word in columns if row.sort == "p" else ():
            if word not in known:
                reason = f"{shown(word)} is no word of any list; the rule would never match it"
                faults.add(Place(POLICY), "unknown_word", reason, advice(word, known))
    faults.check()


def _fail(file: str, code: str, reason: str) -> None:
    faults = Faults()
    faults.add(Place(file), code, reason, "use the shipped model, or narrow this one")
    faults.check()
