"""Settings are read again at SIGHUP: taken over whole, or not at all, by every worker.

Provenance: issue 4, point 7.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from retrieval.embedded import Embedded
from tests.gateway.tokens import URLS
from tests.services import Database
from tests.system.faults.asking import Seen, ask, read, until
from tests.system.faults.portal import EVENT
from tests.system.faults.stand import Portal, Stand, standing
from tests.system.faults.test_upstream import begun
from tests.system.faults.test_workers import workers_of

pytestmark = pytest.mark.timeout(300)
HELLO = Seen(200, "", b"hello", whole=True)
LONG = "/portal/customer/" + "a" * 200


def told(stand: Stand, words: str, times: int = 1) -> None:
    """Return when the process has said this as often."""
    until(lambda: sum(words in line for line in stand.log) >= times, (words, stand.log))


def reread(stand: Stand, text: str) -> None:
    stand.config.write_text(text)
    stand.process.send_signal(signal.SIGHUP)


@pytest.mark.parametrize("workers", [1, 2])
def test_revoked_callers_are_nobody_for_every_worker_and_stay_so(
    services: Embedded, database: Database, tmp_path: Path, workers: int
) -> None:
    """The list is read again at the signal: a caller whom every worker knows is refused, its stream
    ends whole. A list with a fault changes nothing and is told by its line; a list that is gone,
    too; an empty one lets the caller in again."""
    arguments = ("--workers", str(workers)) if workers > 1 else ()
    revoked = tmp_path / "revoked.jsonl"
    revoked.write_text("")
    settings = f'[tokens]\nrevoked_file = "{revoked}"\n'
    home = "/portal/customer/home"
    with standing(services, tmp_path, *arguments, settings=settings, database=database) as stand:
        token = stand.issuers.token("customer", jti="j-1")
        assert {ask(stand.url, home, token) for _ in range(6)} == {HELLO}
        caller, stream = begun(stand, "events", token)
        line = {"iss": URLS["idp:customers"], "jti": "j-1", "until": "2100-01-01T00:00:00Z"}
        revoked.write_text(json.dumps(line))
        stand.process.send_signal(signal.SIGHUP)
        told(stand, "1 tokens and 0 callers are revoked", workers)
        assert {ask(stand.url, home, token).status for _ in range(12)} == {401}
        assert stand.get(home) == HELLO  # another token of the same caller
        rest = read(stream)
        assert rest.whole
        assert rest.body == EVENT * rest.body.count(EVENT)
        caller.close()
        revoked.write_text(json.dumps(line) + "\n{}")
        stand.process.send_signal(signal.SIGHUP)
        told(stand, "revocations_unusable: ", workers)
        assert any("line 2" in line for line in stand.log)
        revoked.unlink()
        stand.process.send_signal(signal.SIGHUP)
        told(stand, "revocations_unusable: ", 2 * workers)
        assert {ask(stand.url, home, token).status for _ in range(12)} == {401}
        revoked.write_text("")
        stand.process.send_signal(signal.SIGHUP)
        told(stand, "0 tokens and 0 callers are revoked", workers)
        assert {ask(stand.url, home, token) for _ in range(12)} == {HELLO}
        assert stand.alive


@pytest.mark.parametrize("workers", [1, 2])
def test_settings_that_are_read_again_count_at_once_or_not_at_all(
    services: Embedded, database: Database, tmp_path: Path, workers: int
) -> None:
    """An address and a limit count for the next request, while streams go on where they are. A
    file with a fault changes nothing and is told by its faults; what needs a restart is named."""
    arguments = ("--workers", str(workers)) if workers > 1 else ()
    with standing(services, tmp_path, *arguments, database=database) as stand:
        before = stand.config.read_text()
        assert stand.get(LONG) == HELLO
        caller, stream = begun(stand, "events")
        other = Portal.start()
        try:
            moved = before.replace(f":{stand.portal.port}", f":{other.port}")
            moved = moved.replace("[limits]", "[limits]\ntarget_bytes_max = 150\ndrain_ms = 1")
            reread(stand, moved)
            told(stand, "taken over: limits.target_bytes_max, upstreams.customer-portal", workers)
            told(stand, "wait for a restart: limits.drain_ms", workers)
            assert {stand.get(LONG).status for _ in range(6)} == {414}
            assert EVENT in stream.read(200)  # the old process still streams
            caller.close()
            stand.portal.kill()
            assert {stand.get("/portal/customer/home") for _ in range(6)} == {HELLO}
            for broken, words in (
                ("not = [toml", "not_toml"),
                (moved.replace("target_bytes_max = 150", "target_bytes_max = 0"), "invalid_value"),
                (moved.replace("[limits]", "[limits]\nopen_all = true"), "unknown_key"),
            ):
                reread(stand, broken)
                told(stand, f": {words}: ")
                assert stand.get("/portal/customer/home") == HELLO
                assert stand.get(LONG).status == 414
            if workers > 1:
                os.kill(min(workers_of(stand)), signal.SIGKILL)
                told(stand, "ended (signal 9)")
                until(lambda: stand.ready() == (200, "ready"), "the return")
                # the one that started again got what the other took over
                assert {stand.get(LONG).status for _ in range(12)} == {414}
                assert {stand.get("/portal/customer/home") for _ in range(12)} == {HELLO}
            stand.portal.again()
            reread(stand, before)
            told(
                stand, "taken over: limits.target_bytes_max, upstreams.customer-portal", 2 * workers
            )
            other.kill()
            assert {stand.get(LONG) for _ in range(6)} == {HELLO}
        finally:
            other.kill()
        assert stand.alive
