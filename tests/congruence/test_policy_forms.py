"""One verdict in every compiled form: scope, SQL text, masks, Qdrant filter, for every state.

Here the emitted texts are evaluated by two tiny interpreters written from the documented
meaning of the languages; the real engines are asked by the other modules of this folder.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decision import Grant, PolicyDigest, Scope
from policies.emit.postgres import masks, predicate, role_name
from policies.emit.qdrant import filter as qdrant_filter
from policies.snapshot import Snapshot, load

MINE, OTHER = UUID(int=1), UUID(int=2)
UNITS = (MINE, OTHER)
TENANTS = ("acme", "other", "*", "", "ACME")
JURISDICTIONS = ("vn", "de", "*", "")


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return load()


@dataclass(frozen=True, slots=True)
class Point:
    """One unit as the stores hold it."""

    id: UUID
    class_id: int
    tenant: str
    jurisdiction: str


def sql_allows(text: str, params: Mapping[str, object], point: Point) -> bool:
    """The emitted WHERE text over one row: parentheses, `and` before `or`, `= any(array)`."""
    tokens = re.findall(r"u\.(\w+) = any\(%\((\w+)\)s::\w+\[\]\)|(\(|\)|\band\b|\bor\b)|(\S)", text)
    assert not any(rest for *_, rest in tokens), text
    position = 0

    def atom() -> bool:
        nonlocal position
        column, name, symbol, _ = tokens[position]
        position += 1
        if symbol == "(":
            value = either()
            assert tokens[position][2] == ")"
            position += 1
            return value
        array = params[name]
        assert column
        assert isinstance(array, list)
        return getattr(point, column) in array

    def both() -> bool:
        nonlocal position
        value = atom()
        while position < len(tokens) and tokens[position][2] == "and":
            position += 1
            right = atom()
            value = value and right
        return value

    def either() -> bool:
        nonlocal position
        value = both()
        while position < len(tokens) and tokens[position][2] == "or":
            position += 1
            right = both()
            value = value or right
        return value

    verdict = either()
    assert position == len(tokens)
    return verdict


def qdrant_allows(condition: Mapping[str, Any], payload: Mapping[str, object]) -> bool:
    """Qdrant's documented meaning: an empty filter, `should` or `any` would admit everything,
    so the emitter must never write one; `must_not` admits points without the field."""
    if "key" in condition:
        assert set(condition) == {"key", "match"}
        wanted = condition["match"]["any"]
        assert set(condition["match"]) == {"any"}
        assert wanted
        return payload.get(condition["key"]) in wanted
    assert len(condition) == 1
    ((clause, parts),) = condition.items()
    assert clause in ("must", "should")
    assert parts
    verdicts = [qdrant_allows(part, payload) for part in parts]
    return all(verdicts) if clause == "must" else any(verdicts)


def scopes(snapshot: Snapshot) -> Iterator[tuple[str, Scope]]:
    """Every profile and pair of profiles, with and without compartments and consents."""
    profiles = list(snapshot.vocabulary.profiles)
    chosen = [[p] for p in profiles] + [["employee", "partner"], ["agent:drafter", "customer"]]
    for names, tenants, consents in itertools.product(chosen, ((), ("acme",)), ((), (MINE,))):
        yield (
            "+".join(names),
            Scope(snapshot.grant(names), tenants, ("vn",) if tenants else (), consents),
        )


def test_every_form_gives_the_scopes_verdict_on_every_state(snapshot: Snapshot) -> None:
    """All 10,800 classes and -1, for every profile and consent; own compartment."""
    classes = [-1, *range(snapshot.vocabulary.class_count)]
    for name, scope in scopes(snapshot):
        consents = scope.consented_units
        emitted, points = predicate(scope, "u"), qdrant_filter(scope)
        allowed = 0
        members = {key: frozenset(map(str, v)) for key, v in emitted.params.items()}  # type: ignore[call-overload]
        for class_id in classes:
            verdict = scope.permits(
                unit_id=MINE, class_id=class_id, tenant="acme", jurisdiction="vn"
            )
            allowed += verdict
            by_class = scope.grant.permits_class(class_id, consent=bool(consents))
            assert verdict is (by_class and bool(scope.tenants)), (name, class_id)
            in_sql = (
                "acme" in members["scope_tenants"]
                and "vn" in members["scope_jurisdictions"]
                and (
                    str(class_id) in members["scope_plain"]
                    or (
                        str(class_id) in members["scope_consented"]
                        and str(MINE) in members["scope_units"]
                    )
                )
            )
            assert in_sql is verdict, (name, class_id)
        expected = scope.grant.consented if scope.consented_units else scope.grant.plain
        assert allowed == (len(expected) if scope.tenants else 0)
        assert points is not None


CORNERS = st.tuples(
    st.sampled_from(UNITS),
    st.integers(-2, 10_800),
    st.sampled_from(TENANTS),
    st.sampled_from(JURISDICTIONS),
)


@given(st.data())
def test_sql_text_and_filter_are_read_as_they_are_written(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """The whole text through the interpreters, over random scopes and points of every corner."""
    profiles = st.sampled_from(list(snapshot.vocabulary.profiles))
    grant = snapshot.grant(data.draw(st.lists(profiles, min_size=1, max_size=2)))
    scope = Scope(
        grant,
        tuple(data.draw(st.sets(st.sampled_from(["acme", "other", ""])))),
        tuple(data.draw(st.sets(st.sampled_from(["vn", "de", ""])))),
        tuple(sorted(data.draw(st.sets(st.sampled_from(UNITS))))),
    )
    emitted, points = predicate(scope, "u"), qdrant_filter(scope)
    drawn = data.draw(st.lists(CORNERS, max_size=20))
    readable = [grant.plain[:1], grant.consented[-1:]]
    drawn += [
        (unit, class_id, tenant, jurisdiction)
        for ids in readable
        for class_id in ids
        for unit, tenant, jurisdiction in itertools.product(UNITS, TENANTS, JURISDICTIONS)
    ]
    for unit, class_id, tenant, jurisdiction in drawn:
        verdict = scope.permits(
            unit_id=unit, class_id=class_id, tenant=tenant, jurisdiction=jurisdiction
        )
        point = Point(unit, class_id, tenant, jurisdiction)
        payload = {
            "class_id": class_id,
            "tenant": tenant,
            "jurisdiction": jurisdiction,
            "unit_id": str(unit),
        }
        assert sql_allows(emitted.sql, emitted.params, point) is verdict
        assert (points is not None and qdrant_allows(points, payload)) is verdict


def test_masks_hold_one_bit_per_class(snapshot: Snapshot) -> None:
    """Row-level security reads `get_bit(mask, class_id)`; the first character is class 0."""
    found = {mask.profile: mask for mask in masks(snapshot.table)}
    assert list(found) == list(snapshot.vocabulary.profiles)
    for profile, mask in found.items():
        grant = snapshot.grant([profile])
        assert mask.role == role_name(profile)
        assert mask.audience == snapshot.vocabulary.profiles[profile]
        for text, ids in ((mask.plain, grant.plain), (mask.consented, grant.consented)):
            assert len(text) == snapshot.vocabulary.class_count
            assert tuple(i for i, bit in enumerate(text) if bit == "1") == ids
    assert role_name("agent:reader") == "gw_p_agent_reader"
    assert len({mask.role for mask in found.values()}) == len(found)


def grant_of(plain: Sequence[int], consented: Sequence[int]) -> Grant:
    return Grant(PolicyDigest("0"), ("customer",), tuple(plain), tuple(consented))


@pytest.mark.parametrize(("tenant", "jurisdiction"), [("", "*"), ("*", ""), ("", "")])
def test_an_empty_compartment_is_nobodys(tenant: str, jurisdiction: str) -> None:
    """Not even that of a caller to whom an empty name was given."""
    scope = Scope(grant_of((5,), (5,)), ("",), ("",), (MINE,))
    point = Point(MINE, 5, tenant, jurisdiction)
    payload = {"class_id": 5, "tenant": tenant, "jurisdiction": jurisdiction, "unit_id": str(MINE)}
    emitted, points = predicate(scope, "u"), qdrant_filter(scope)
    assert not scope.permits(unit_id=MINE, class_id=5, tenant=tenant, jurisdiction=jurisdiction)
    assert not sql_allows(emitted.sql, emitted.params, point)
    assert points is not None
    assert not qdrant_allows(points, payload)


def test_the_first_class_can_be_granted_and_the_unlabelled_cannot() -> None:
    scope = Scope(grant_of((0,), (0, 1)), (), (), ())
    assert scope.permits(unit_id=MINE, class_id=0, tenant="*", jurisdiction="*")
    for plain, consented in (((), (-1,)), ((-1,), (-1,)), ((-2,), (-2, 0))):
        with pytest.raises(ValueError, match="unlabelled"):
            grant_of(plain, consented)


@pytest.mark.parametrize(
    ("plain", "consented", "units"), [((), (), ()), ((), (), (MINE,)), ((), (5,), ())]
)
def test_trap_47_nothing_permitted_is_never_an_empty_filter(
    plain: tuple[int, ...], consented: tuple[int, ...], units: tuple[UUID, ...]
) -> None:
    """An empty filter admits every point; None says that there is nothing to ask for."""
    scope = Scope(grant_of(plain, consented), ("acme",), ("vn",), units)
    assert qdrant_filter(scope) is None
    emitted = predicate(scope, "u")
    for class_id in (-1, 0, 5):
        assert not sql_allows(emitted.sql, emitted.params, Point(MINE, class_id, "acme", "vn"))


@pytest.mark.parametrize("bad", [None, "", "LOW", ["5"], [5], {"a": 5}, 6, "5"])
def test_trap_47_a_payload_that_is_no_permitted_scalar_is_not_admitted(bad: object) -> None:
    points = qdrant_filter(Scope(grant_of((5,), (5,)), (), (), ()))
    assert points is not None
    payload: dict[str, object] = {"class_id": 5, "tenant": "*", "jurisdiction": "*"}
    assert qdrant_allows(points, payload)
    assert not qdrant_allows(points, {**payload, "class_id": bad})
    assert not qdrant_allows(points, {k: v for k, v in payload.items() if k != "class_id"})
    assert not qdrant_allows(points, {k: v for k, v in payload.items() if k != "tenant"})


@pytest.mark.parametrize("alias", ["u; drop table x", "u.*", "", 'u"', "U", "a.b.c", "1u"])
def test_no_text_but_a_plain_name_reaches_the_sql(alias: str, snapshot: Snapshot) -> None:
    scope = Scope(snapshot.grant(["customer"]), (), (), ())
    with pytest.raises(ValueError, match="plain identifier"):
        predicate(scope, alias)


def test_the_sql_text_depends_on_the_names_alone(snapshot: Snapshot) -> None:
    """Values are bound: the text of two scopes is the same, whatever their tenants are called."""
    wide = Scope(snapshot.grant(["employee"]), ("x') or true --",), ("vn",), (MINE,))
    narrow = Scope(snapshot.grant(["customer"]), (), (), ())
    assert predicate(wide, "u").sql == predicate(narrow, "u").sql
    assert "unit_id" in predicate(narrow, "m", "unit_id").sql
