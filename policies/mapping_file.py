"""Reads one ingest mapping from its YAML tree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from policies.bindings import COMPARTMENT
from policies.decision import SHARED
from policies.faults import Faults, shown
from policies.mapping import (
    TARGETS,
    CompartmentRule,
    Condition,
    FieldSort,
    IngestMapping,
    LabelRule,
    Relabel,
    SourceField,
    Test,
    ThreadRule,
    known_targets,
)
from policies.vocabulary import FACETS, Vocabulary
from policies.yamltree import Node, Reader

NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
WORD: Final = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_TESTS: Final[Mapping[FieldSort, tuple[Test, ...]]] = {
    FieldSort.WORD: (Test.IS, Test.ANY_OF, Test.PREFIX),
    FieldSort.WORDS: (Test.FIRST, Test.CONTAINS),
    FieldSort.INTEGER: (Test.MULTIPLE_OF,),
    FieldSort.TEXT: (Test.IS, Test.PREFIX),
}


def read_mapping(tree: Node, vocabulary: Vocabulary, faults: Faults) -> IngestMapping:
    """The mapping; a thing half-read when faults were recorded."""
    read = Reader(faults)
    top = read.fields(
        tree,
        required=("name", "fields", "tenant", "jurisdiction"),
        optional=("rules", "same_words", "inherited", "thread", "relabel"),
    )
    fields = {
        name: _field(read, node)
        for name, node in read.entries(top["fields"], "field", FIELD).items()
    }
    known = known_targets(vocabulary)
    rules = (
        tuple(_rule(read, node, fields, known) for node in read.items(top["rules"]))
        if ("rules" in top)
        else ()
    )
    same_words = {
        target: read.word(node, "declared field", tuple(fields))
        for target, node in (
            read.fields(top["same_words"], optional=TARGETS).items() if "same_words" in top else ()
        )
    }
    if tree.sort != "broken":  # else nobody knows what it would have set
        _check_targets(rules, same_words, top["fields"], faults)
    return IngestMapping(
        name=read.text(top["name"], "mapping name", NAME),
        fields=fields,
        rules=rules,
        same_words=same_words,
        inherited=(
            frozenset(read.words(top["inherited"], "facet", FACETS))
            if "inherited" in top
            else frozenset()
        ),
        tenant=_compartment(read, top["tenant"], fields),
        jurisdiction=_compartment(read, top["jurisdiction"], fields),
        thread=_thread(read, top["thread"], known) if "thread" in top else None,
        known=known,
        relabel=_relabel(read, top["relabel"]) if "relabel" in top else Relabel.APPROVAL,
    )


def _relabel(read: Reader, node: Node) -> Relabel:
    word = read.word(node, "way to relabel", tuple(Relabel))
    return Relabel(word or Relabel.APPROVAL)


def _field(read: Reader, node: Node) -> SourceField:
    fields = read.fields(node, required=("sort",), optional=("words", "optional"))
    word = read.word(fields["sort"], "sort of field", tuple(FieldSort))
    sort = FieldSort(word or FieldSort.TEXT)
    closed = sort in (FieldSort.WORD, FieldSort.WORDS)
    if closed is not ("words" in fields) and word:
        read.faults.add(
            node.place,
            "field_words",
            f"a field of sort `{sort}` {'needs its' if closed else 'takes no'} list of words",
            "write `words: [...]`" if closed else "remove `words`",
        )
    return SourceField(
        sort,
        frozenset(read.texts(fields["words"], "word", WORD)) if "words" in fields else frozenset(),
        read.truth(fields["optional"], "optional") if "optional" in fields else False,
    )


def _rule(
    read: Reader,
    node: Node,
    fields: Mapping[str, SourceField],
    known: Mapping[str, frozenset[str]],
) -> LabelRule:
    parts = read.fields(node, required=("when", "set"))
    if parts["when"].sort == "text":  # a catch-all is written out, never implied by `{}`
        read.word(parts["when"], "condition", ("always",))
        when: tuple[Condition, ...] = ()
    else:
        when = tuple(
            _condition(read, name, test, fields[name])
            for name, test in read.fields(parts["when"], optional=tuple(fields)).items()
        )
        if not when and parts["when"].sort == "map":
            read.faults.add(
                parts["when"].place, "empty_condition", "the condition is empty", "write `always`"
            )
    return LabelRule(when, _sets(read, parts["set"], known))


def _sets(read: Reader, node: Node, known: Mapping[str, frozenset[str]]) -> Mapping[str, str]:
    return {
        target: read.word(value, f"value of {target}", known[target])
        for target, value in read.fields(node, optional=TARGETS).items()
    }


def _condition(read: Reader, name: str, node: Node, source: SourceField) -> Condition:
    plain = node.sort == "text"
    tests = {"is": node} if plain else dict(read.fields(node, optional=tuple(Test)))
    if len(tests) != 1:
        if node.sort == "map":
            read.faults.add(node.place, "one_test", "one test per field", "split the rule")
        return Condition(name, Test.IS, (), 1)
    ((word, value),) = tests.items()
    test = Test(word)
    if test not in _TESTS[source.sort]:
        read.faults.add(
            node.place,
            "wrong_test",
            f"a field of sort `{source.sort}` cannot be tested with `{test}`",
            "use " + " or ".join(f"`{t}`" for t in _TESTS[source.sort]),
        )
    if test is Test.MULTIPLE_OF:
        return Condition(name, test, (), read.integer(value, "divisor", low=1, high=1_000_000))
    words = (
        read.texts(value, "word", WORD)
        if value.sort == "list"
        else (read.text(value, "word", WORD),)
    )
    if test is not Test.PREFIX and source.words:
        for text in words:
            if text and text not in source.words:
                read.faults.unknown(value.place, f"word of field {name}", text, source.words)
    if not words:
        read.faults.add(value.place, "empty_list", "no word is listed", "name one")
    return Condition(name, test, words, 1)


def _compartment(read: Reader, node: Node, fields: Mapping[str, SourceField]) -> CompartmentRule:
    parts = read.fields(node, optional=("value", "field"))
    if len(parts) != 1:
        if node.sort == "map":
            read.faults.add(
                node.place, "compartment", "one source is needed", "write `value` or `field`"
            )
        return CompartmentRule("", "")
    if "field" in parts:
        return CompartmentRule("", read.word(parts["field"], "declared field", tuple(fields)))
    value = parts["value"]
    if value.text != SHARED and not COMPARTMENT.fullmatch(value.text):
        read.faults.add(
            value.place,
            "malformed",
            f"{shown(value.text)} is no compartment",
            "write `'*'` or a name",
        )
    return CompartmentRule(value.text, "")


def _thread(read: Reader, node: Node, known: Mapping[str, frozenset[str]]) -> ThreadRule:
    parts = read.fields(node, required=("id", "title", "set"), optional=("aliases", "absorbs"))

    def name(key: str) -> str:
        return read.text(parts[key], "field name", FIELD) if key in parts else ""

    sets = _sets(read, parts["set"], known)
    if sets.get("kind") != "thread" and parts["set"].sort == "map":
        read.faults.add(
            parts["set"].place, "thread_kind", "a thread's kind is `thread`", "set `kind: thread`"
        )
    return ThreadRule(name("id"), name("title"), name("aliases"), name("absorbs"), sets)


def _check_targets(
    rules: tuple[LabelRule, ...], same_words: Mapping[str, str], node: Node, faults: Faults
) -> None:
    covered = set(same_words).union(*(rule.sets for rule in rules))
    for target in TARGETS:
        if target not in covered:
            faults.add(
                node.place,
                "target_unset",
                f"nothing sets {target}, so every record would be quarantined",
                "add a rule or name its field under `same_words`",
            )
