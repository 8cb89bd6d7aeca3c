"""A release waits until every replica has prepared it: the command, on a real database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest

from retrieval.stores.activation import CHANNEL
from retrieval.stores.roles import WATCH, dsn_for
from tests.gateway.cli.test_policy_release import Desk, desk, drawer, first, policy, released

__all__ = ["desk", "drawer", "first", "released"]


@contextmanager
def replica(desk: Desk, answer: Callable[[int], tuple[str, str | None]]) -> Iterator[None]:
    """A gateway as far as activation sees one: it answers what is staged, and swaps."""
    me = uuid4()
    base = desk.ask("select digest, generation from gate.active_revision")[0]
    watch = dsn_for(WATCH, desk.database.url, desk.database.secret)
    stop = threading.Event()
    connection = psycopg.connect(watch, autocommit=True)
    connection.execute(f"listen {CHANNEL}")
    connection.execute(
        "insert into gate.replica (id, host, digest, generation) values (%s, 'here', %s, %s)",
        [me, *base],
    )

    def follow() -> None:
        while not stop.is_set():
            for heard in list(connection.notifies(timeout=0.2, stop_after=1)):
                what, *words = heard.payload.split()
                if what == "staged":
                    state, code = answer(int(words[0]))
                    connection.execute(
                        "update gate.replica set staged_generation = %s, staged_state = %s,"
                        " staged_code = %s, seen_at = now() where id = %s",
                        [int(words[0]), state, code, me],
                    )
                else:
                    connection.execute(
                        "update gate.replica set digest = %s, generation = %s, seen_at = now()"
                        " where id = %s",
                        [words[0], int(words[1]), me],
                    )

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        connection.close()


def test_replicas_prepare_before_anything_changes(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def prepare(generation: int) -> tuple[str, None]:
        seen.append((generation, released.active))
        return "prepared", None

    released.drop("p, U-CUS-1,")
    assert policy("approve", released.folder, *released.key("ann")) == 0
    with replica(released, prepare):
        assert policy("activate", released.folder) == 0
    assert seen == [(2, 1)]
    assert "replicas: 1 of 1 serve it" in capsys.readouterr().out


def test_a_replica_that_refuses_keeps_the_release_from_all(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same number is not used again; forcing is possible and deliberate."""
    released.drop("p, U-CUS-1,")
    assert policy("approve", released.folder, *released.key("ann")) == 0
    with replica(released, lambda _: ("refused", "policy_invalid")):
        assert policy("activate", released.folder) == 3
        assert "1 replicas refuse generation 2 (policy_invalid)" in capsys.readouterr().err
        assert released.active == 1
        assert policy("approve", released.folder, *released.key("ann"), "--new") == 0
        assert policy("activate", released.folder, "--force") == 0
    assert released.ask("select generation, state from gate.policy_release order by 1") == [
        (1, "past"),
        (2, "abandoned"),
        (3, "active"),
    ]


def test_a_replica_that_does_not_answer_ends_the_wait(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    released.drop("p, U-CUS-1,")
    assert policy("approve", released.folder, *released.key("ann")) == 0
    with replica(released, lambda _: ("preparing", None)):
        assert policy("activate", released.folder, "--wait", "0.3") == 4
    assert "replicas_unready" in capsys.readouterr().err
    assert released.active == 1
