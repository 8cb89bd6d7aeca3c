"""What the login that counts live units can see."""

from __future__ import annotations

from retrieval.stores.roles import LIVE
from tests.retrieval.database.world import OPEN, SECRET, World


def test_the_counting_login_sees_classes_of_all_and_nothing_else(world: World) -> None:
    """Column grants: how many units a change of policy touches, and not which."""
    for words in (OPEN, OPEN, SECRET):
        world.unit(words)
    with world.login(LIVE) as connection:
        counted = connection.execute(
            "select class_id, count(*) from brain.unit where deleted_at is null group by class_id"
        ).fetchall()
        digest = connection.execute("select digest from gate.active_revision").fetchone()
    assert dict(counted) == {world.class_id(OPEN): 2, world.class_id(SECRET): 1}
    assert digest == (world.snapshot.digest,)
