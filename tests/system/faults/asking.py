"""What a caller sees of one request, read from the wire; and callers who do not stop asking."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.system.steady import steady

WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """``whole``: the answer ended as its framing said. ``code`` is of a refusal, else empty."""

    status: int
    code: str
    body: bytes
    whole: bool

    @property
    def right(self) -> tuple[int, bytes]:
        """What may not depend on the weather."""
        return self.status, self.body


BROKEN = Seen(0, "", b"", whole=False)
"""No answer at all: the connection was refused, reset or closed."""


def ask(
    url: str, target: str, token: str = "", *, method: str = "GET", body: bytes | None = None
) -> Seen:
    """One request on a connection of its own."""
    address = urlsplit(url)
    caller = http.client.HTTPConnection(address.hostname or "", address.port, timeout=WAIT_SECONDS)
    headers = {"content-type": "application/json"} if body is not None else {}
    if token:
        headers["authorization"] = f"Bearer {token}"
    try:
        caller.request(method, target, body, headers)
        return read(caller.getresponse())
    except (OSError, http.client.HTTPException):
        return BROKEN
    finally:
        caller.close()


def read(answer: http.client.HTTPResponse) -> Seen:
    """The rest of an answer, and whether it ended as it should."""
    try:
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return Seen(answer.status, "", b"", whole=False)
    finally:
        answer.close()
    body = steady(body, answer.headers.get("x-request-id", ""))
    refused = answer.headers.get("content-type", "") == "application/problem+json"
    return Seen(answer.status, str(json.loads(body)["code"]) if refused else "", body, whole=True)


@dataclass
class Crowd:
    """Callers at work: all that each of their questions was answered with."""

    wanted: dict[str, Seen]
    seen: list[tuple[str, Seen]] = field(default_factory=list)

    @property
    def wrong(self) -> list[tuple[str, Seen]]:
        """Answers that a caller takes for whole and that are not what they should be."""
        return [
            (name, one)
            for name, one in self.seen
            if one.whole and not one.code and one.right != self.wanted[name].right
        ]

    @property
    def codes(self) -> set[tuple[int, str]]:
        """How questions were refused."""
        return {(one.status, one.code) for _, one in self.seen if one.code}

    @property
    def broken(self) -> int:
        return sum(not one.whole for _, one in self.seen)

    def right_since(self, count: int) -> set[str]:
        """The questions that were answered rightly after the first ``count`` ones."""
        return {name for name, one in self.seen[count:] if one.whole and one == self.wanted[name]}

    def __str__(self) -> str:
        return str(Counter((name, one.status, one.code, one.whole) for name, one in self.seen))


@contextmanager
def crowd(questions: dict[str, Callable[[], Seen]], *, callers: int = 3) -> Iterator[Crowd]:
    """Callers that ask all questions again and again, until the block ends."""
    found = Crowd({name: question() for name, question in questions.items()})
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for name, question in questions.items():
                found.seen.append((name, question()))

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)


def until(true: Callable[[], object], what: object) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)
