"""Casbin itself, asked about every state (promise G1).

At load the table is proven on the quotient; here nothing is left to a theory.
"""

from __future__ import annotations

import pytest

from policies.congruence import check_units_exhaustively
from policies.snapshot import Snapshot


@pytest.mark.timeout(600)  # half a minute of pure computation, more on a crowded machine
def test_casbin_agrees_with_the_table_on_every_state(snapshot: Snapshot) -> None:
    """10,800 classes x 8 profiles x 2 consent values, one enforce each; raises on a difference."""
    asked = check_units_exhaustively(snapshot.vocabulary, snapshot.table.units, lambda _: None)
    assert asked == snapshot.vocabulary.class_count * len(snapshot.vocabulary.profiles) * 2
