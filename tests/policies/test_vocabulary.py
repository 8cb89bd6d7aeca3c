"""Class ids: given once, never moved; and nothing but six exact words has one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import vocabulary_file
from policies.__main__ import main
from policies.errors import Fault, InvalidPolicy, UnknownClass, UnorderedFacet
from policies.faults import Faults
from policies.snapshot import Snapshot, load
from policies.vocabulary import FACETS, enumerate_classes

Edit = Callable[[str, str, str], None]
Refused = Callable[[], tuple[Fault, ...]]
GOOD = {
    "visibility": "public",
    "readiness": "published",
    "publication_state": "published",
    "risk_class": "low",
    "authority": "enacted",
    "kind": "faq",
}
CORRUPTIONS: dict[str, Callable[[str], object]] = {
    "null": lambda _: None,
    "empty": lambda _: "",
    "mis-cased": str.upper,
    "padded": lambda value: f" {value}",
    "list": lambda value: [value],
    "object": lambda value: {"value": value},
    "unknown": lambda value: f"{value}_x",
    "several": lambda value: f"{value}|{value}",
    "number": lambda _: 0,
}


def test_there_are_10800_classes_in_mixed_radix_order(default: Snapshot) -> None:
    vocabulary = default.vocabulary
    assert vocabulary.class_count == 5 * 5 * 3 * 3 * 3 * 16 == 10_800
    radices = [len(vocabulary.facets[facet]) for facet in FACETS]
    for class_id, values in vocabulary.classes:
        number = 0
        for radix, facet, value in zip(radices, FACETS, values, strict=True):
            number = number * radix + vocabulary.facets[facet].index(value)
        assert number == class_id
        assert vocabulary.class_id(dict(zip(FACETS, values, strict=True))) == class_id
        assert tuple(vocabulary.facets_of(class_id).values()) == values


@pytest.mark.parametrize("facet", FACETS)
@pytest.mark.parametrize("how", [*CORRUPTIONS, "missing"])
def test_a_corrupted_facet_has_no_class(facet: str, how: str, default: Snapshot) -> None:
    """Mandated: every facet corrupted eight ways (and one more) never grows what is visible."""
    label: dict[str, object] = dict(GOOD)
    if how == "missing":
        del label[facet]
    else:
        label[facet] = CORRUPTIONS[how](GOOD[facet])
    assert default.vocabulary.class_id(GOOD) >= 0
    assert default.vocabulary.class_id(label) == -1


@given(st.dictionaries(st.sampled_from(FACETS), st.text(max_size=12) | st.none() | st.integers()))
def test_no_class_is_ever_guessed(default: Snapshot, label: dict[str, object]) -> None:
    class_id = default.vocabulary.class_id(label)
    assert class_id == -1 or default.vocabulary.facets_of(class_id) == label


@pytest.mark.parametrize("class_id", [-1, 10_800, -10_800])
def test_an_id_that_was_never_given_has_no_facets(class_id: int, default: Snapshot) -> None:
    with pytest.raises(UnknownClass):
        default.vocabulary.facets_of(class_id)


@pytest.mark.parametrize(
    ("facet", "loose", "strict"),
    [
        ("visibility", "public", "partner"),
        ("visibility", "internal", "restricted"),
        ("publication_state", "published", "unpublished"),
        ("publication_state", "unpublished", "withdrawn"),
        ("risk_class", "low", "high"),
    ],
)
def test_the_stricter_of_two_inherited_values_wins(
    facet: str, loose: str, strict: str, default: Snapshot
) -> None:
    assert default.vocabulary.stricter(facet, loose, strict) == strict
    assert default.vocabulary.stricter(facet, strict, loose) == strict
    assert default.vocabulary.stricter(facet, loose, loose) == loose


@pytest.mark.parametrize("facet", ["readiness", "authority", "kind", "colour"])
def test_facets_without_a_declared_order_are_never_compared(facet: str, default: Snapshot) -> None:
    with pytest.raises(UnorderedFacet):
        default.vocabulary.stricter(facet, "draft", "published")


generations = st.lists(st.tuples(st.sampled_from(FACETS), st.integers(1, 2)), max_size=4)


@given(generations)
def test_appending_never_moves_an_id(steps: list[tuple[str, int]]) -> None:
    """Whatever is appended, generation after generation, older tuples keep their numbers."""
    sizes = dict.fromkeys(FACETS, 1)
    history = [{facet: tuple(f"v{i}" for i in range(sizes[facet])) for facet in FACETS}]
    for facet, more in steps:
        sizes[facet] += more
        history.append({f: tuple(f"v{i}" for i in range(sizes[f])) for f in FACETS})
    older: tuple[tuple[str, ...], ...] = ()
    for count in range(1, len(history) + 1):
        newer = enumerate_classes(history[:count])
        assert newer[: len(older)] == older
        assert set(newer) == set(itertools.product(*history[count - 1].values()))
        older = newer


def test_an_appended_value_changes_no_id_and_no_verdict(folder: Path, edit: Edit) -> None:
    """Mandated. The new value is readable by nobody, since allow rows never say `all`."""
    before = load(folder)
    edit("rules/vocabulary.yaml", "incident, thread, other]", "incident, thread, other, memo]")
    with pytest.raises(InvalidPolicy, match=r"lock_behind.*policies lock"):
        load(folder)
    assert main(["--folder", str(folder), "lock"]) == 0
    after = load(folder)
    assert after.vocabulary.class_count == before.vocabulary.class_count + 5 * 5 * 3 * 3 * 3
    assert after.vocabulary.classes[: before.vocabulary.class_count] == before.vocabulary.classes
    for profile in before.vocabulary.profiles:
        old, new = before.grant([profile]), after.grant([profile])
        assert (old.plain, old.consented) == (new.plain, new.consented)
    assert before.digest != after.digest


def test_locking_twice_appends_once(folder: Path, edit: Edit) -> None:
    edit(
        "rules/vocabulary.yaml",
        "risk_class: [low, standard, high]",
        "risk_class: [low, standard, high, extreme]",
    )
    edit(
        "rules/vocabulary.yaml",
        "risk_class: [low, standard, high]",
        "risk_class: [low, standard, high, extreme]",
    )
    assert "appended" in vocabulary_file.append_generation(folder)
    lock = (folder / vocabulary_file.LOCK).read_bytes()
    assert "already" in vocabulary_file.append_generation(folder)
    assert (folder / vocabulary_file.LOCK).read_bytes() == lock
    assert load(folder).vocabulary.stricter("risk_class", "high", "extreme") == "extreme"


def test_a_retired_value_keeps_its_ids_and_loses_its_readers(folder: Path, edit: Edit) -> None:
    before = load(folder)
    edit("rules/vocabulary.yaml", "retired: {}", "retired: {kind: [other]}")
    with pytest.raises(InvalidPolicy, match="`other` is not a known kind"):
        load(folder)
    for path in (folder / "rules").glob("units.csv"):
        path.write_text(path.read_text().replace("|other", ""))
    after = load(folder)
    assert after.vocabulary.classes == before.vocabulary.classes
    label = {**GOOD, "kind": "other"}
    assert before.vocabulary.class_id(label) >= 0
    assert after.vocabulary.class_id(label) == -1
    for profile in after.vocabulary.profiles:
        kinds = {after.vocabulary.facets_of(i)["kind"] for i in after.grant([profile]).consented}
        assert "other" not in kinds


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("[low, standard, high]", "[standard, low, high]", "lock_mismatch"),
        ("[low, standard, high]", "[low, standard]", "lock_mismatch"),
        ("[low, standard, high]", "[low, standard, high, Extreme]", "malformed"),
        ("[low, standard, high]", "[low, standard, high, all]", "reserved_word"),
        ("[low, standard, high]", "[low, standard, high, low]", "duplicate_word"),
        ("retired: {}", "retired: {kind: [faqs]}", "unknown_word"),
        ("agent:reader: agent", "agent:reader: agents", "unknown_word"),
        ("  readiness: [draft", "  rediness: [draft", "missing_key"),
        ("tools: [retrieve,", "tools: [all, retrieve,", "reserved_word"),
        ("  agent:reader: agent", "  agent_reader: agent\n  agent:reader: agent", "role_collision"),
        ("ttls: [15m", "ttls: [15 minutes", "malformed"),
        ("orders:\n  visibility: [public, ", "orders:\n  visibility: [", "order_incomplete"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_moves_ids_or_misspells_is_refused(
    old: str, new: str, code: str, edit: Edit, faults: Refused
) -> None:
    edit("rules/vocabulary.yaml", old, new)
    assert code in {f.code for f in faults() if f.file == "rules/vocabulary.yaml"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("generation 1", "generation 2"),
        ("low|standard|high", "low|high|standard"),
        ("low|standard|high", "low|standard|high|high"),
        ("authority enacted|draft|runtime\n", ""),
        ("readiness", "visibility"),
    ],
)
def test_an_edited_lock_is_refused(old: str, new: str, edit: Edit, faults: Refused) -> None:
    edit("rules/classes.lock", old, new)
    assert {f.code for f in faults()} & {"bad_lock", "lock_mismatch"}


@pytest.mark.parametrize(
    ("second", "accepted"),
    [
        ("low|standard|high|extreme", True),
        ("extreme|low|standard|high", False),
        ("low|high|standard", False),
        ("low|standard", False),
    ],
)
def test_a_later_generation_only_appends(second: str, accepted: bool, folder: Path) -> None:
    """Otherwise the vocabulary could follow a lock that had moved the ids itself."""
    text = (folder / vocabulary_file.LOCK).read_text()
    first = text[text.index("generation 1") :]
    faults = Faults()
    later = first.replace("generation 1", "generation 2").replace("low|standard|high", second)
    found = vocabulary_file.read_lock(text + later, faults)
    assert len(found) == 2
    assert (not faults.found) is accepted


def test_a_vocabulary_of_more_classes_than_smallint_holds_is_refused(
    folder: Path, edit: Edit
) -> None:
    many = ", ".join(f"k{i}" for i in range(40))
    edit("rules/vocabulary.yaml", "incident, thread, other]", f"incident, thread, other, {many}]")
    assert main(["--folder", str(folder), "lock"]) == 3
