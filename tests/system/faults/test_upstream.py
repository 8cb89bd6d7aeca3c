"""An upstream is killed: in the middle of an answer, of a request, and before it said anything.

Provenance: issue 4, "Must hold", the fault matrix.
"""

from __future__ import annotations

import http.client
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from retrieval.embedded import Embedded
from tests.system.faults.asking import WAIT_SECONDS, Seen, read, until
from tests.system.faults.portal import EVENT
from tests.system.faults.stand import Stand, standing

pytestmark = pytest.mark.timeout(300)
HELLO = Seen(200, "", b"hello", whole=True)
GONE = {(502, "upstream_unavailable"), (502, "upstream_invalid")}


def begun(
    stand: Stand, what: str, token: str = ""
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """An answer of which the first bytes have come."""
    address = urlsplit(stand.url)
    caller = http.client.HTTPConnection(address.hostname or "", address.port, timeout=WAIT_SECONDS)
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    caller.request("GET", f"/portal/customer/{what}", headers=bearer)
    answer = caller.getresponse()
    assert answer.status == 200
    assert answer.read(len(EVENT))
    return caller, answer


def test_a_killed_upstream_never_leaves_half_an_answer_that_looks_whole(
    services: Embedded, tmp_path: Path
) -> None:
    """A length, chunks, a stream of events: the caller's connection breaks. The next question is
    a 502; with the upstream back the answers are, too, and the gateway is the same process."""
    with standing(services, tmp_path) as stand:
        assert stand.get("/portal/customer/home") == HELLO
        for what in ("sized", "chunked", "events"):
            caller, answer = begun(stand, what)
            stand.portal.kill()
            assert not read(answer).whole, what
            caller.close()
            down = stand.get("/portal/customer/home")
            assert (down.status, down.code) == (502, "upstream_unavailable"), what
            stand.portal.again()
            until(lambda: stand.get("/portal/customer/home") == HELLO, "the portal's return")
        assert stand.alive
        assert stand.get("/v1/scope").status == 200


@pytest.mark.parametrize(("method", "what"), [("GET", "silent"), ("POST", "sink")])
def test_an_upstream_killed_before_its_answer_is_a_refusal_with_a_code(
    services: Embedded, tmp_path: Path, method: str, what: str
) -> None:
    """Nothing came, so the caller is told in our words; an upload is not sent twice."""
    body = b"x" * 5_000_000 if method == "POST" else None
    with standing(services, tmp_path) as stand:
        found: list[Seen] = []
        asking = threading.Thread(
            target=lambda: found.append(
                stand.get(f"/portal/customer/{what}", method=method, body=body)
            )
        )
        asking.start()
        stand.portal.asked()
        stand.portal.kill()
        asking.join(WAIT_SECONDS)
        (seen,) = found
        assert (seen.status, seen.code) in GONE or not seen.whole
        if body is None:
            assert seen.code
        stand.portal.again()
        until(lambda: stand.get("/portal/customer/home") == HELLO, "the portal's return")
        assert stand.alive
