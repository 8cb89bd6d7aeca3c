"""Callers who are known: their requests go on without a task, and meet the same ends.

Provenance: issue 4, "Must hold", the fault matrix; `tests/gateway/fastpath` has each moment.
"""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import pytest

from retrieval.embedded import Embedded
from tests.services import Database
from tests.system.faults.asking import BROKEN, WAIT_SECONDS, Seen, read, until
from tests.system.faults.portal import EVENT, SIZED_BYTES
from tests.system.faults.stand import Stand, standing

pytestmark = pytest.mark.timeout(300)
HELLO = Seen(200, "", b"hello", whole=True)
DEADLINE_SECONDS = 30
LIMITS = "drain_ms = 2500\ngraceful_ms = 8000\n"
KNOWN_STATIONS = ("station.match", "station.identify", "station.place", "station.decide")


class Warm:
    """A caller on one kept connection whose header block is known: it was asked with twice."""

    def __init__(self, stand: Stand) -> None:
        address = urlsplit(stand.url)
        self._caller = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=WAIT_SECONDS
        )
        self._headers = {"authorization": f"Bearer {stand.issuers.token('customer')}"}

    def __enter__(self) -> Self:
        assert [self.get("home"), self.get("home")] == [HELLO, HELLO]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._caller.close()

    def ask(self, what: str) -> None:
        self._caller.request("GET", f"/portal/customer/{what}", headers=self._headers)

    def answer(self) -> http.client.HTTPResponse:
        """The head of the answer; its body is still to be read."""
        return self._caller.getresponse()

    def rest(self, answer: http.client.HTTPResponse) -> Seen:
        """The rest of an answer; after one that broke the next question needs a connection."""
        seen = read(answer)
        if not seen.whole:
            self._caller.close()
        return seen

    def get(self, what: str) -> Seen:
        """The same bytes as ever but for the target."""
        try:
            self.ask(what)
            return self.rest(self.answer())
        except (OSError, http.client.HTTPException):
            self._caller.close()
            return BROKEN

    def told_nothing(self) -> bool:
        """Whether the gateway has closed the connection without a word; waits for it."""
        return self._caller.sock.recv(1) == b""


def answered_beside(spans: Path) -> int:
    """Requests of which the trace says that nothing between look-up and relay took any time."""
    found = 0
    for line in spans.read_text().splitlines():
        spent = {
            one["name"]: one["attributes"]["duration_us"] for one in json.loads(line)["events"]
        }
        found += [spent.get(station) for station in KNOWN_STATIONS] == [0, 0, 0, 0]
    return found


def test_upstream_killed_in_the_middle_of_an_answer_leaves_none_that_looks_whole(
    services: Embedded, tmp_path: Path
) -> None:
    """One that would have been whole at once (the upstream dies with half of ten bytes written), a
    length, chunks, events: the caller is refused or its connection breaks. With the same bytes it
    is a 502 next, and an answer once the upstream is back."""
    spans = tmp_path / "spans.jsonl"
    traced = f'trace_file = "{spans}"\nsample_ratio = 1.0'
    with standing(services, tmp_path, telemetry=traced) as stand:
        for what in ("dying", "sized", "chunked", "events"):
            with Warm(stand) as caller:
                if what == "dying":
                    seen = caller.get(what)
                    assert not seen.whole or (seen.status, seen.code) == (502, "upstream_invalid")
                    stand.portal.process.wait(DEADLINE_SECONDS)
                    stand.portal.kill()  # and let go of it
                else:
                    caller.ask(what)
                    answer = caller.answer()
                    assert answer.status == 200
                    assert len(answer.read(len(EVENT))) == len(EVENT) < SIZED_BYTES
                    stand.portal.kill()
                    assert not caller.rest(answer).whole, what
                down = caller.get("home")
                assert (down.status, down.code) == (502, "upstream_unavailable"), what
                stand.portal.again()
                until(lambda caller=caller: caller.get("home") == HELLO, "the portal's return")  # type: ignore[misc]  # bound now
        assert stand.alive
        assert stand.get("/v1/scope").status == 200
    assert answered_beside(spans) >= 4


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_answers_known_callers_and_ends_their_connections(
    services: Embedded, database: Database, tmp_path: Path, workers: int
) -> None:
    """While the gateway waits, both are answered as ever; then the one between two requests is
    closed without a word, and the one whose upstream takes its time gets all of its answer, the
    last of its connection. Every request is in the log."""
    decisions, spans = tmp_path / "decisions.jsonl", tmp_path / "spans.jsonl"
    arguments = ("--workers", str(workers)) if workers > 1 else ()
    with (
        standing(
            services,
            tmp_path,
            *arguments,
            settings=f'[decision_log]\nfile = "{decisions}"\n',
            limits=LIMITS,
            telemetry=f'trace_file = "{spans}"\nsample_ratio = 1.0',
            database=database,
        ) as stand,
        Warm(stand) as idle,
        Warm(stand) as busy,
    ):
        busy.ask("late")
        stand.process.send_signal(signal.SIGTERM)
        until(lambda: stand.ready() == (503, "not_ready"), "the end of readiness")
        assert idle.get("home") == HELLO
        assert idle.told_nothing()
        assert stand.alive
        late = busy.answer()
        assert late.headers["connection"] == "close"
        assert read(late) == HELLO
        assert stand.process.wait(DEADLINE_SECONDS) == 0
    lines = [json.loads(line) for line in decisions.read_text().splitlines()]
    assert [(one["route"], one["effect"]) for one in lines] == [("portal-customer", "allow")] * 6
    assert answered_beside(spans) >= 2
