"""Ingest mappings: from a source's words to our facets.

Theory. A mapping declares the fields that it reads, with the closed list of words of each
that is a word; then ordered rules ``when -> set``. For every target the first rule that
matches and sets it wins. Nothing has a default: a target that no rule sets, a word that
the field does not list, a value of another type, an unlabelled compartment: each is a
reason for quarantine, and the record gets no label at all. Unknown words are never
coerced, not even when a later catch-all rule would have taken them. Only facets listed as
``inherited`` may stay blank: then the unit's threads fill them, or nobody does and the unit
has no class.

    fields:   {status: {sort: word, words: [Draft, Final]}, number: {sort: integer}}
    rules:    - {when: {number: {multiple_of: 17}}, set: {visibility: restricted}}
              - {when: {status: Final}, set: {readiness: published}}
    same_words: {authority: authority}      # a field that uses our own words already

This module does not know where records come from or where labels go.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from policies.bindings import COMPARTMENT
from policies.decision import SHARED
from policies.vocabulary import FACETS, Vocabulary

STAGES: Final = ("law", "design", "code", "test", "report", "incident", "other")
"""Where in its life a thread's artefact stands (seed 4.4)."""

TARGETS: Final = (*FACETS, "lifecycle_stage")


class Relabel(StrEnum):
    """What becomes of a later label that opens an object to somebody: it waits for an approver,
    or the mapping is trusted with it (for the objects that it labelled itself)."""

    APPROVAL = "approval"
    TRUSTED = "trusted"


class FieldSort(StrEnum):
    WORD = "word"
    WORDS = "words"
    INTEGER = "integer"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class SourceField:
    """A field of the source. ``words`` is closed for ``word`` and ``words``, else empty."""

    sort: FieldSort
    words: frozenset[str]
    optional: bool


class Test(StrEnum):
    IS = "is"
    ANY_OF = "any_of"
    FIRST = "first"
    CONTAINS = "contains"
    PREFIX = "prefix"
    MULTIPLE_OF = "multiple_of"


@dataclass(frozen=True, slots=True)
class Condition:
    """One test on one field. ``words`` for the word tests and prefix, ``number`` otherwise."""

    field: str
    test: Test
    words: tuple[str, ...]
    number: int

    def holds(self, value: object) -> bool:
        """Whether a value that passed its field's check meets the condition; absent never does."""
        match self.test:
            case Test.IS | Test.ANY_OF:
                return isinstance(value, str) and value in self.words
            case Test.PREFIX:
                return isinstance(value, str) and value.startswith(self.words)
            case Test.FIRST:
                return isinstance(value, list) and bool(value) and value[0] in self.words
            case Test.CONTAINS:
                return isinstance(value, list) and any(word in value for word in self.words)
            case Test.MULTIPLE_OF:
                return type(value) is int and value % self.number == 0


@dataclass(frozen=True, slots=True)
class LabelRule:
    """``when`` all conditions hold, ``sets`` these targets (unless an earlier rule did)."""

    when: tuple[Condition, ...]
    sets: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompartmentRule:
    """A fixed value (``*`` = shared, written out) or the field that holds it."""

    value: str
    field: str


@dataclass(frozen=True, slots=True)
class ThreadRule:
    """How records make threads; empty names where a mapping makes none.

    ``id`` and ``title`` name fields of the record; records of one id are one thread.
    ``aliases`` and ``absorbs`` name list fields: further names of the thread, and ids of other
    threads whose units support this one (such as what it replaces). ``sets`` overrides what
    the rules give to the thread's own label: threads are governed by themselves.
    """

    id: str
    title: str
    aliases: str
    absorbs: str
    sets: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Label:
    """What a mapping makes of one record: a label, or the reasons for quarantine.

    ``facets`` lacks those that the unit's threads are to fill.
    """

    facets: Mapping[str, str]
    lifecycle_stage: str
    tenant: str
    jurisdiction: str
    quarantine: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        return not self.quarantine


@dataclass(frozen=True, slots=True)
class IngestMapping:
    """One source's mapping. ``known`` are our live values per target."""

    name: str
    fields: Mapping[str, SourceField]
    rules: tuple[LabelRule, ...]
    same_words: Mapping[str, str]
    inherited: frozenset[str]
    tenant: CompartmentRule
    jurisdiction: CompartmentRule
    thread: ThreadRule | None
    known: Mapping[str, frozenset[str]]
    relabel: Relabel

    @property
    def canonical(self) -> str:
        """The whole mapping as one JSON text: equal for two mappings that say the same."""
        return json.dumps(_plain(self), sort_keys=True)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of ``canonical``, lower-case hex: by this, not by its name, it is trusted."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def label(self, record: Mapping[str, object]) -> Label:
        """The label of one unit. Cost: one pass over the rules, no I/O."""
        return self._label(record, {})

    def label_thread(self, record: Mapping[str, object]) -> Label:
        """The label of the thread that this record belongs to, from the record's own fields."""
        return self._label(record, self.thread.sets if self.thread else {})

    def _label(self, record: Mapping[str, object], fixed: Mapping[str, str]) -> Label:
        reasons = [
            reason
            for name, source in self.fields.items()
            for reason in _faults(name, source, record.get(name))
        ]
        words = self._targets(record, fixed)
        reasons += [
            f"{target}: no rule sets it"
            for target in TARGETS
            if target not in words and target not in self.inherited
        ]
        reasons += [
            f"{target}: unknown word"
            for target, word in words.items()
            if word not in self.known[target]
        ]
        tenant = _compartment(self.tenant, record)
        jurisdiction = _compartment(self.jurisdiction, record)
        reasons += ["tenant: absent or malformed"] if not tenant else []
        reasons += ["jurisdiction: absent or malformed"] if not jurisdiction else []
        if reasons:
            return Label({}, "", "", "", tuple(dict.fromkeys(reasons)))
        stage = words.pop("lifecycle_stage")
        return Label(words, stage, tenant, jurisdiction, ())

    def _targets(self, record: Mapping[str, object], fixed: Mapping[str, str]) -> dict[str, str]:
        words = dict(fixed)
        for rule in self.rules:
            if all(condition.holds(record.get(condition.field)) for condition in rule.when):
                for target, word in rule.sets.items():
                    words.setdefault(target, word)
        for target, field in self.same_words.items():
            value = record.get(field)
            if target not in words and isinstance(value, str) and value:
                words[target] = value
        return words


def _plain(value: Any) -> Any:
    """Plain data in a fixed order (sets have none)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value


def known_targets(vocabulary: Vocabulary) -> Mapping[str, frozenset[str]]:
    """The live values of everything that a rule may set."""
    return {
        **{facet: frozenset(vocabulary.live(facet)) for facet in FACETS},
        "lifecycle_stage": frozenset(STAGES),
    }


def _faults(name: str, source: SourceField, value: object) -> Sequence[str]:
    if value is None or value == [] or value == "":
        return [] if source.optional else [f"{name}: absent"]
    match source.sort:
        case FieldSort.INTEGER:
            return [] if type(value) is int else [f"{name}: not a whole number"]
        case FieldSort.TEXT:
            return [] if isinstance(value, str) else [f"{name}: not text"]
        case FieldSort.WORD:
            return (
                []
                if isinstance(value, str) and value in source.words
                else [f"{name}: unknown word"]
            )
        case FieldSort.WORDS:
            known = isinstance(value, list) and all(
                isinstance(word, str) and word in source.words for word in value
            )
            return [] if known else [f"{name}: unknown word"]


def _compartment(rule: CompartmentRule, record: Mapping[str, object]) -> str:
    if rule.value:
        return rule.value
    value = record.get(rule.field)
    if isinstance(value, str) and (value == SHARED or COMPARTMENT.fullmatch(value)):
        return value
    return ""
