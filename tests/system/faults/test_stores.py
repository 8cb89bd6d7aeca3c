"""A store is killed while callers ask: refusals with a code, right answers, nothing in between.

Provenance: issue 4, "Must hold", the fault matrix; the stores are of the embedded kind, started
again by whoever runs them, at the same port. What each route answers while a store is away and
nobody hurries is ``tests/system/test_outages.py``.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retrieval.embedded import Embedded
from retrieval.embedded.places import arrange
from retrieval.embedded.postgres import start_postgres
from retrieval.embedded.state import Kept
from retrieval.embedded.watch import launch_sidecar, sidecar_port, stop_sidecar
from tests.system.faults.asking import crowd, until
from tests.system.faults.stand import standing

pytestmark = pytest.mark.timeout(400)
KINDS = ("postgres", "qdrant")


@contextmanager
def back(service: str, state: Path) -> Iterator[None]:
    """The service again, on the data and the port that it had."""
    places = arrange(state)
    kept = Kept(**json.loads(places.services_file.read_bytes()))
    if service == "postgres":
        again = start_postgres(places, password=kept.postgres_password, port=kept.postgres_port)
        try:
            yield
        finally:
            again.stop()
        return
    sidecar = launch_sidecar(places, kept)
    try:
        assert sidecar_port(sidecar, places) == kept.qdrant_port
        yield
    finally:
        stop_sidecar(sidecar)
        assert sidecar.stdout is not None
        sidecar.stdout.close()


REFUSALS = {
    "postgres": {(503, "retrieval_unavailable"), (404, "not_found")},
    "qdrant": {(503, "index_unavailable"), (503, "retrieval_unavailable"), (404, "not_found")},
}
"""404 is the right answer of the unit that nobody may see."""


@pytest.mark.parametrize("service", KINDS)
def test_a_store_killed_under_load_costs_refusals_and_comes_back(
    durable: Embedded, state: Path, tmp_path: Path, service: str
) -> None:
    """No answer is wrong, no connection breaks, the codes are the expected ones; after the return
    every question is answered as before, by the same process."""
    with standing(durable, tmp_path, world=True) as stand:
        # without the index, a pack is whole and says so: that is another answer, not a wrong one
        questions = stand.guarded()
        if service == "qdrant":
            questions = {name: questions[name] for name in ("scope", "unit", "hidden", "raw")}
        with crowd(questions) as found:
            until(lambda: len(found.seen) > 30, "some answers")
            assert not found.codes - {(404, "not_found")}, found
            os.kill(durable.pids[service], signal.SIGKILL)
            until(lambda: found.codes - {(404, "not_found")}, found)
            with back(service, state):
                count = len(found.seen)
                until(lambda: found.right_since(count) == set(questions), found)
                until(lambda: stand.ready() == (200, "ready"), "readiness")
                count = len(found.seen)
                until(lambda: len(found.seen) > count + 30, "some answers more")
                settled = found.seen[count + 10 :]
                assert all(one == found.wanted[name] for name, one in settled), found
        assert found.wrong == [], found
        assert found.broken == 0, found
        assert found.codes <= REFUSALS[service], found
        assert stand.alive
