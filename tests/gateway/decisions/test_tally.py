"""Units counted by class and consent, whatever else the guard looked up beside them."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.registry import Key, Label, Registered
from gateway.egress.tally import Tally
from policies.snapshot import Snapshot

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["unit", "thread", "artifact"]),
        st.integers(-1, 5),
        st.booleans(),  # shown
        st.booleans(),  # consented
    ),
    max_size=12,
)


@given(ROWS, st.lists(st.tuples(st.integers(-1, 5), st.booleans()), max_size=5), st.integers(0, 3))
def test_counts_are_those_of_the_units_one_by_one(
    snapshot: Snapshot,
    looked_up: list[tuple[str, int, bool, bool]],
    kept_back: list[tuple[int, bool]],
    late: int,
) -> None:
    """Labels of units that were refused or asked again stand in the look-up and are not shown."""
    labels: dict[Key, Label] = {}
    shown: set[Key] = set()
    consented: list[UUID] = []
    expected: Counter[tuple[int, bool]] = Counter()
    for number, (sort, class_id, is_shown, has_consent) in enumerate(looked_up):
        key: Key = (sort, UUID(int=number))  # type: ignore[assignment]  # one of its words
        labels[key] = Label(class_id, "*", "*")
        if has_consent:
            consented.append(key[1])
        if is_shown:
            shown.add(key)
            expected[class_id, has_consent] += 1
    grant = snapshot.grant(["customer"])
    denied = {UUID(int=1000 + number): one for number, (one, _) in enumerate(kept_back)}
    consented += [UUID(int=1000 + number) for number, (_, given) in enumerate(kept_back) if given]
    tally = Tally()
    tally.showed(shown, Registered(snapshot.digest, labels, {}, tuple(consented)))
    tally.kept_back(denied, grant, stale=[UUID(int=2000 + number) for number in range(late)])
    counts = tally.counts()
    assert (counts.returned, counts.denied, counts.stale) == (len(shown), len(kept_back), late)
    rows = counts.classes
    assert {key: row.allowed for key, row in rows.items() if row.allowed} == expected
    assert {key: row.denied for key, row in rows.items() if row.denied} == Counter(kept_back)
    for (class_id, consent), row in rows.items():
        permitted = grant.permits_class(class_id, consent=consent)
        assert row.not_by_class == (row.denied if permitted else 0)
    assert tally.withheld == bool(kept_back or late)


def test_what_an_earlier_walk_kept_back_stays_and_what_it_showed_does_not(
    snapshot: Snapshot,
) -> None:
    grant, tally = snapshot.grant(["customer"]), Tally()
    labels: dict[Key, Label] = {("unit", UUID(int=1)): Label(3, "*", "*")}
    tally.showed(labels.keys(), Registered(snapshot.digest, labels, {}, ()))
    tally.kept_back({UUID(int=2): -1}, grant)
    tally.showed([], Registered(snapshot.digest, {}, {}, ()))
    tally.kept_back({UUID(int=2): -1}, grant)
    counts = tally.counts()
    assert (counts.returned, counts.denied) == (0, 1)
