"""SIGTERM: not ready, wait, accept no more, end streams, flush, exit; in this order.

Provenance: issue 4, point 7; attack log section 4, "Drain". That a socket gets 1012 is
``tests/gateway/streams``'s.
"""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from retrieval.embedded import Embedded
from tests.services import Database
from tests.system.faults.asking import BROKEN, Seen, read, until
from tests.system.faults.portal import EVENT
from tests.system.faults.stand import standing
from tests.system.faults.test_upstream import begun

pytestmark = pytest.mark.timeout(300)
HELLO = Seen(200, "", b"hello", whole=True)
DEADLINE_SECONDS = 30
LIMITS = "drain_ms = 2500\ngraceful_ms = 8000\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_ends_everything_in_order_and_loses_nothing(
    services: Embedded, database: Database, tmp_path: Path, workers: int
) -> None:
    """While it waits it is unready and still answers; then nobody gets in, events end whole, the
    answer under way comes in full, one that never ends is cut; every request is in the logs."""
    decisions, spans = tmp_path / "decisions.jsonl", tmp_path / "spans.jsonl"
    logs = f'[decision_log]\nfile = "{decisions}"\n'
    arguments = ("--workers", str(workers)) if workers > 1 else ()
    with standing(
        services, tmp_path, *arguments, settings=logs, limits=LIMITS, database=database,
        telemetry=f'trace_file = "{spans}"\nsample_ratio = 1.0',
    ) as stand:  # fmt: skip
        assert stand.get("/portal/customer/home") == HELLO
        listener, events = begun(stand, "events")
        reader, endless = begun(stand, "sized")
        stand.process.send_signal(signal.SIGTERM)
        until(lambda: stand.ready() == (503, "not_ready"), "the end of readiness")
        assert stand.get("/portal/customer/home") == HELLO
        late: list[Seen] = []
        asking = threading.Thread(target=lambda: late.append(stand.get("/portal/customer/late")))
        asking.start()
        until(lambda: stand.get("/portal/customer/home") == BROKEN, "the end of accepting")
        assert stand.alive
        assert late == []
        stream = read(events)
        assert stream.whole
        assert stream.body == EVENT * stream.body.count(EVENT) != b""
        asking.join(DEADLINE_SECONDS)
        assert late == [HELLO]
        assert stand.process.wait(DEADLINE_SECONDS) == 0
        assert not read(endless).whole
        listener.close()
        reader.close()
    for file in (decisions, spans):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(lines) >= 5, file
    routes = [json.loads(line)["route"] for line in decisions.read_text().splitlines()]
    assert routes == ["portal-customer"] * len(routes)


def test_a_second_signal_skips_the_waits(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Minutes of waiting that nobody wants any more."""
    limits = "drain_ms = 600000\ngraceful_ms = 600000\n"
    with standing(services, tmp_path, limits=limits, database=database) as stand:
        reader, endless = begun(stand, "sized")
        stand.process.send_signal(signal.SIGTERM)
        until(lambda: stand.ready()[0] == 503, "the end of readiness")
        stand.process.send_signal(signal.SIGTERM)
        assert stand.process.wait(DEADLINE_SECONDS) == 0
        assert not read(endless).whole
        reader.close()
