"""The webhook, against a real server on loopback: what it says, and when it stops."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread as OsThread
from typing import Any

import pytest
from pydantic import SecretStr

from policies.snapshot import Snapshot
from retrieval.signals.settings import SignalSettings
from retrieval.signals.webhook import ATTEMPTS_MAX, Webhook, checked_address, key_of, signature
from tests.retrieval.signals.desk import QUICK, Desk, desk
from tests.retrieval.signals.test_gaps import ABOUT, SEEN
from tests.services import Database, VectorService

SECRET = SecretStr("whsec_" + base64.b64encode(bytes(range(32))).decode())
BODY_KEYS = {
    *("type", "id", "kind", "audience", "thread_id", "artifact_id"),
    *("occurrences", "subjects", "days", "returned", "first_at", "last_at"),
}


@dataclass
class Receiver:
    """What came in; ``answers`` are the statuses to give, the last one for ever."""

    port: int
    answers: list[int]
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def receiver(*answers: int, told: Queue[Any] | None = None) -> Iterator[Receiver]:
    """A server on loopback. ``told`` gets the bodies, for a test that waits for them."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            into.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = into.answers.pop(0) if len(into.answers) > 1 else into.answers[0]
            self.send_response(status)
            if status == 302:
                self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()
            if told is not None:
                told.put(json.loads(body))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing: the test looks at what came in."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    into = Receiver(server.server_address[1], list(answers))
    running = OsThread(target=server.serve_forever)
    running.start()
    try:
        yield into
    finally:
        server.shutdown()
        server.server_close()
        running.join()


def told(url: str) -> SignalSettings:
    return QUICK.model_copy(update={"webhook_url": url, "webhook_secret": SECRET})


def sending(
    database: Database, sidecar: VectorService, snapshot: Snapshot, url: str, *, rounds: int = 1
) -> list[tuple[str, int, str]]:
    """Routes one question's two gaps and sends in rounds; state, attempts and code of each."""

    async def act(ready: Desk) -> list[tuple[str, int, str]]:
        for _ in range(2):
            await ready.ask(ABOUT, "subject-of-that-name")
        for _ in range(2):
            await ready.settle()
        webhook = Webhook(url, SECRET, timeout_s=2.0)
        try:
            for _ in range(rounds):
                await webhook.send_due(ready.own)
                await ready.stage.sql("update brain.signal_outbox set due_at = now()")
            await webhook.send_due(ready.own)
        finally:
            await webhook.aclose()
        return [
            (state, attempts, code)
            for state, attempts, code in await ready.rows(
                "select state, attempts, last_code from brain.signal_outbox"
            )
        ]

    async def inside() -> list[tuple[str, int, str]]:
        async with desk(database, sidecar, snapshot, told(url)) as ready:
            await ready.stage.put(SEEN)
            return await act(ready)

    return asyncio.run(inside())


def test_each_destination_hears_of_each_gap_once_signed_and_without_callers_data(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    with receiver(204) as there:
        states = sending(database, sidecar, snapshot, there.url)
        assert states == [("sent", 1, "204")] * 6
        bodies = [json.loads(body) for _, body in there.got]
        assert sorted((body["type"], body["kind"]) for body in bodies) == sorted(
            (f"signal.{where}", kind)
            for where in ("decision_backlog", "segmentation_health", "governance_queue")
            for kind in ("missing_thread", "search_gap")
        )
        for (headers, raw), body in zip(there.got, bodies, strict=True):
            assert set(body) == BODY_KEYS
            assert b"payroll" not in raw
            assert b"subject-of-that-name" not in raw
            moment = headers["webhook-timestamp"]
            wanted = signature(key_of(SECRET), headers["webhook-id"], moment, raw)
            assert headers["webhook-signature"] == wanted


def test_a_failure_is_tried_again_under_the_same_id(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    with receiver(*[500] * 6, 200) as there:
        states = sending(database, sidecar, snapshot, there.url)
        assert states == [("sent", 2, "200")] * 6
        ids = [headers["webhook-id"] for headers, _ in there.got]
        assert sorted(ids[:6]) == sorted(ids[6:])


def test_it_stops_after_so_many_attempts_and_keeps_what_it_gave_up(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    with receiver(503) as there:
        states = sending(database, sidecar, snapshot, there.url, rounds=ATTEMPTS_MAX + 2)
        assert states == [("given_up", ATTEMPTS_MAX, "503")] * 6
        assert len(there.got) == 6 * ATTEMPTS_MAX


def test_gone_is_final_and_a_redirect_is_not_followed(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    with receiver(410) as there:
        states = sending(database, sidecar, snapshot, there.url, rounds=3)
        assert states == [("given_up", 1, "410")] * 6


def test_a_redirect_is_a_failure(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    with receiver(302) as there:
        states = sending(database, sidecar, snapshot, there.url, rounds=0)
        assert states == [("pending", 1, "302")] * 6
        assert len(there.got) == 6


def test_nobody_there_is_a_failure_with_a_name(
    database: Database, sidecar: VectorService, snapshot: Snapshot
) -> None:
    with receiver(200) as there:
        gone = there.url
    assert (
        sending(database, sidecar, snapshot, gone, rounds=0) == [("pending", 1, "ConnectError")] * 6
    )


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of standardwebhooks.com, computed with any HMAC."""
    key = key_of(SecretStr("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    message, moment = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"
    signed = signature(key, message, moment, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!!!"]
)
def test_a_weak_or_foreign_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        key_of(SecretStr(secret))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/hook", "ftp://127.0.0.1/", "https://", "hook", "http:///x",
        "https://example.org/\x01", "https://xn--/", "https://[::1/",
    ],
)  # fmt: skip
def test_an_address_that_others_could_read_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        checked_address(url)
