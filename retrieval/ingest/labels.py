"""From a record's words to the label columns, by the mapping. Nothing is coerced.

A label that the mapping rejects is stored so that the database gives it class -1: words that
are not ours stay as they are, and at least one such word stands there. A record never
becomes more visible by having a worse label.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from policies.bindings import COMPARTMENT
from policies.decision import SHARED
from policies.mapping import STAGES, CompartmentRule, IngestMapping, Label
from policies.vocabulary import FACETS
from retrieval.ingest.items import StoredLabel
from retrieval.ingest.report import Reason, Sort, printable

INHERITABLE: Final = tuple(facet for facet in FACETS if facet != "kind")
NOWHERE: Final = "?"
"""A compartment that no caller can have: it is no legal name of one."""
WORD_MAX: Final = 200


def stored_label(
    mapping: IngestMapping,
    record: Mapping[str, Any],
    *,
    place: str,
    sort: Sort,
    address: str,
    inherit: Collection[str] = (),
) -> StoredLabel:
    """The label of one record, good or not (``reasons``).

    ``inherit`` names facets that are left blank on purpose, to be filled from threads. A facet
    that is merely missing is not inherited: it is a reason for quarantine.
    """
    view = dict(record)
    stage_field = mapping.same_words.get("lifecycle_stage")
    if sort in (Sort.THREAD, Sort.LABEL) and stage_field is not None:
        view[stage_field] = "other"  # only units and artifacts have a stage
    label = mapping.label_thread(view) if sort is Sort.THREAD else mapping.label(view)
    faults = [(name, reason) for name, _, reason in (r.partition(": ") for r in label.quarantine)]
    faults += _blank_faults(mapping, record, label, inherit)
    if not faults:
        facets = {facet: label.facets.get(facet) for facet in FACETS}
        return StoredLabel(facets, label.lifecycle_stage, label.tenant, label.jurisdiction, ())
    reasons = [
        Reason(place, sort, address, name, shown(_value(mapping, record, name)), reason)
        for name, reason in dict(reversed(faults)).items()  # one reason a field: the first
    ]
    return _rejected(mapping, record, tuple(sorted(reasons)))


def closed_label(mapping: IngestMapping) -> StoredLabel:
    """The label of something of which it cannot be read who may see it: nobody may."""
    return _rejected(mapping, {}, ())


def _blank_faults(
    mapping: IngestMapping, record: Mapping[str, Any], label: Label, inherit: Collection[str]
) -> list[tuple[str, str]]:
    """What is wrong with the blanks of a record: the mapping allows them, the record asks.

    A facet that the mapping never sets is blank by the mapping's own word, for all records.
    """
    faults = []
    for facet in inherit:
        if facet not in INHERITABLE or facet not in mapping.inherited:
            faults.append(("inherit", f"`{shown(facet)}` cannot be inherited here"))
        elif record.get(mapping.same_words.get(facet, "")) is not None:
            faults.append((facet, "both given and inherited"))
    if label.accepted:
        settable = set(mapping.same_words).union(*(rule.sets for rule in mapping.rules))
        faults += [
            (facet, "absent")
            for facet in FACETS
            if facet not in label.facets and facet in settable and facet not in inherit
        ]
    return faults


def _rejected(
    mapping: IngestMapping, record: Mapping[str, Any], reasons: tuple[Reason, ...]
) -> StoredLabel:
    facets: dict[str, str | None] = dict.fromkeys(FACETS)
    for facet in FACETS:
        if facet in mapping.same_words:
            word = record.get(mapping.same_words[facet])
            facets[facet] = word if isinstance(word, str) and storable(word) else ""
    if not any(word is not None and word not in mapping.known[f] for f, word in facets.items()):
        facets["visibility"] = ""
    stage = record.get(mapping.same_words.get("lifecycle_stage", ""))
    return StoredLabel(
        facets=facets,
        lifecycle_stage=stage if isinstance(stage, str) and stage in STAGES else "other",
        tenant=_compartment(mapping.tenant, record),
        jurisdiction=_compartment(mapping.jurisdiction, record),
        reasons=reasons,
    )


def _compartment(rule: CompartmentRule, record: Mapping[str, Any]) -> str:
    value = rule.value or record.get(rule.field)
    legal = isinstance(value, str) and (value == SHARED or COMPARTMENT.fullmatch(value))
    return str(value) if legal else NOWHERE


def _value(mapping: IngestMapping, record: Mapping[str, Any], name: str) -> object:
    return record.get(name, record.get(mapping.same_words.get(name, "")))


def storable(word: str) -> bool:
    """Whether a word may stand in a column as it is: short, and every character printable."""
    return len(word) <= WORD_MAX and word.isprintable()


def shown(value: object) -> str:
    """A short, printable form of a source's word; the type's name for anything else."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value[:WORD_MAX])
    return str(value)[:WORD_MAX] if type(value) in (int, bool) else type(value).__name__
