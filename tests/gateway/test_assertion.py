"""The verifier for teams behind the gateway, over a real gateway and against forgers.

Provenance: issue 4, point 5; attack log rows J1-J15 for what a token may not be.
"""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPMessage, parse_headers
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joserfc.jwk import ECKey

from gateway import assertion
from gateway.assertion import ANONYMOUS, Fault, Keys, NotAsserted, verify
from gateway.authn.key_ring import RingKey
from gateway.authn.own_keys import OwnKeys
from tests.gateway.stage import GATEWAY_ID, Stage
from tests.gateway.tokens import encode, signature

PATH = "/portal/customer/home"
AUDIENCE = "urn:portal:customer"
README = Path(__file__).parents[2] / "gateway" / "README.md"
RING = OwnKeys.generate()
PUBLISHED = Keys(document=RING.jwks())


def relayed(
    stage: Stage, target: str = PATH, who: str | None = "customer"
) -> list[tuple[str, str]]:
    """The header pairs that the upstream got."""
    token = stage.issuers.token(who) if who else None
    assert stage.ask("GET", target, token=token).status == 200
    lines = stage.upstream.requests[-1].decode("latin-1").split("\r\n")[1:]
    return [(k, v.strip()) for k, _, v in (one.partition(":") for one in lines if one)]


def published(stage: Stage) -> Keys:
    return Keys(f"http://127.0.0.1:{stage.port}/.well-known/jwks.json")


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    sound = {
        "iss": GATEWAY_ID,
        "aud": AUDIENCE,
        "sub": "s-1",
        "iat": now,
        "exp": now + 60,
        "audience": "customer",
        "profile": "customer",
        "digest": "d",
        "rid": "r-1",
        "htm": "GET",
        "htu": PATH,
        **changes,
    }
    return {name: value for name, value in sound.items() if value is not ...}


def parsed(*lines: str) -> HTTPMessage:
    """Header lines as `http.server` gives them to its handlers: neither a mapping nor pairs."""
    return parse_headers(io.BytesIO("\r\n".join((*lines, "", "")).encode("latin-1")))


def fault(
    token: str | bytes, *, keys: Keys = PUBLISHED, method: str = "GET", path: str = PATH
) -> Fault | None:
    """Why this token is refused, or None."""
    try:
        verify(
            [(assertion.HEADER, token)], method, path, audience=AUDIENCE, keys=keys,
            issuer=GATEWAY_ID,
        )  # fmt: skip
    except NotAsserted as error:
        return error.fault
    return None


def signed(header: dict[str, Any], payload: dict[str, Any] | bytes, key: ECKey) -> str:
    text = f"{encode(header)}.{encode(payload)}"
    return f"{text}.{encode(signature(text.encode(), key))}"


def test_what_the_gateway_sends_is_believed_for_this_request_alone(stage: Stage) -> None:
    """Caller, audience and request as the gateway knows them; another path, method, upstream or
    time and it is nobody's."""
    headers, keys = relayed(stage, f"{PATH}?a=b"), published(stage)
    found = verify(headers, "GET", f"{PATH}?a=b", audience=AUDIENCE, keys=keys, issuer=GATEWAY_ID)
    told = dict(headers)
    assert (found.audience, found.profile) == ("customer", "customer")
    assert found.subject_id == told["x-gateway-subject"]
    assert found.request_id == told["x-request-id"]
    assert found.policy_digest == stage.snapshot.digest
    again: dict[str, Any] = {"audience": AUDIENCE, "keys": keys, "issuer": GATEWAY_ID}
    for method, path, changes, wanted in (
        ("POST", PATH, {}, Fault.WRONG_REQUEST),
        ("GET", f"{PATH}/x", {}, Fault.WRONG_REQUEST),
        ("GET", PATH, {"audience": "urn:portal:employee"}, Fault.WRONG_AUDIENCE),
        ("GET", PATH, {"issuer": "audience-gateway"}, Fault.WRONG_ISSUER),
        ("GET", PATH, {"now": time.time() + 66}, Fault.EXPIRED),
        ("GET", PATH, {"now": time.time() - 10}, Fault.NOT_YET),
    ):
        with pytest.raises(NotAsserted) as refused:
            verify(headers, method, path, **again | changes)
        assert refused.value.fault is wanted


@pytest.mark.parametrize("rid", ["r-1", "", None, ...], ids=["named", "empty", "null", "absent"])
def test_no_id_is_the_id_of_no_request(rid: object) -> None:
    """A portal that asks for the header's value may find none; it is refused all the same."""
    token = RING.sign(claims(rid=rid), typ=assertion.TYP).decode()
    for wanted in (None, ""):
        with pytest.raises(NotAsserted) as refused:
            verify(
                {assertion.HEADER: token}, "GET", PATH, audience=AUDIENCE, keys=PUBLISHED,
                issuer=GATEWAY_ID, request_id=wanted,
            )  # fmt: skip
        assert refused.value.fault is Fault.WRONG_REQUEST


def test_a_visitor_without_a_token_is_told_as_nobody(stage: Stage) -> None:
    """The gateway's own word for an anonymous visitor, which no hash of a subject can be."""
    found = verify(
        relayed(stage, who=None), "GET", PATH, audience=AUDIENCE, keys=published(stage),
        issuer=GATEWAY_ID,
    )  # fmt: skip
    assert found.subject_id == ANONYMOUS


def test_a_callers_own_assertion_never_reaches_the_upstream(stage: Stage) -> None:
    """A spoofing caller: the one header that arrives is the gateway's."""
    forged = RING.sign(claims(audience="employee"), typ=assertion.TYP).decode()
    token = stage.issuers.token("customer")
    spoof = [("X-Gateway-Assertion", forged), ("X_Gateway_Assertion", forged)]
    assert stage.ask("GET", PATH, token=token, headers=spoof).status == 200
    lines = stage.upstream.requests[-1].decode("latin-1").split("\r\n")[1:]
    pairs = [(k, v.strip()) for k, _, v in (one.partition(":") for one in lines if one)]
    found = verify(pairs, "GET", PATH, audience=AUDIENCE, keys=published(stage), issuer=GATEWAY_ID)
    assert found.audience == "customer"


def test_headers_of_the_standard_librarys_server_are_read(stage: Stage) -> None:
    """``self.headers`` of its handlers: iterated over it gives names, so it is asked for pairs."""
    headers = parsed(*(f"{name}: {value}" for name, value in relayed(stage)))
    found = verify(
        headers, "GET", PATH, audience=AUDIENCE, keys=published(stage), issuer=GATEWAY_ID
    )
    assert found.audience == "customer"


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([], Fault.ABSENT),
        ([("x-gateway-assertion", "")], Fault.ABSENT),
        ([("x-gateway-assertion", "a.b.c"), ("X-Gateway-Assertion", "a.b.c")], Fault.REPEATED),
        ([("x-gateway-assertion", "a.b.c"), ("X_GATEWAY_ASSERTION", "a.b.c")], Fault.REPEATED),
        ({"x-gateway-assertion": "a.b.c, a.b.c"}, Fault.MALFORMED),
        ([(b"x-gateway-assertion", b"\xff.b.c")], Fault.MALFORMED),
        ({"x-gateway-assertion": "not.a"}, Fault.MALFORMED),
        (parsed(), Fault.ABSENT),
        (parsed("X-Gateway-Assertion: a.b.c"), Fault.MALFORMED),
        (parsed("X-Gateway-Assertion: a.b.c", "x-gateway-assertion: a.b.c"), Fault.REPEATED),
        (parsed("X-Gateway-Assertion: a.b.c", "X_Gateway_Assertion: a.b.c"), Fault.REPEATED),
    ],
)
def test_anything_but_one_header_is_refused(headers: Any, wanted: Fault) -> None:
    """Absent, empty, doubled, joined by a server, not ASCII."""
    with pytest.raises(NotAsserted) as refused:
        verify(headers, "GET", PATH, audience=AUDIENCE, keys=PUBLISHED)
    assert refused.value.fault is wanted


def test_every_forgery_has_its_fault() -> None:
    """One thing wrong at a time; the sound one is believed, so each fault is the change's."""
    key = RING.keys[0]
    head = {"alg": "ES256", "kid": key.kid, "typ": assertion.TYP}
    other = ECKey.generate_key("P-256")
    now = int(time.time())
    assert fault(signed(head, claims(), key.key)) is None
    assert fault(signed(head, claims(), other)) is Fault.BAD_SIGNATURE
    assert fault(signed({**head, "kid": other.thumbprint()}, claims(), other)) is Fault.UNKNOWN_KEY
    nameless = {name: value for name, value in head.items() if name != "kid"}
    assert fault(signed(nameless, claims(), key.key)) is Fault.UNKNOWN_KEY
    changes: dict[str, Any]
    for changes in ({"typ": "JWT"}, {"typ": "gateway-delegation+jwt"}, {"typ": ""}):
        assert fault(signed({**head, **changes}, claims(), key.key)) is Fault.WRONG_TYPE
    for changes in ({"alg": "none"}, {"alg": "HS256"}, {"alg": "RS256"}, {"jwk": {}}, {"crit": []}):
        assert fault(signed({**head, **changes}, claims(), key.key)) is Fault.MALFORMED
    for wrong, wanted in (
        (claims(iat=now, exp=now + 61), Fault.TOO_LONG),
        (claims(iat=now, exp=now), Fault.TOO_LONG),
        (claims(iat=now - 100, exp=now - 40), Fault.EXPIRED),
        (claims(iat=now + 60, exp=now + 90), Fault.NOT_YET),
        (claims(exp=...), Fault.BAD_CLAIMS),
        (claims(exp="soon"), Fault.BAD_CLAIMS),
        (claims(iat=True), Fault.BAD_CLAIMS),
        (claims(aud=[AUDIENCE]), Fault.WRONG_AUDIENCE),
        (claims(aud=...), Fault.WRONG_AUDIENCE),
        (claims(iss="urn:other"), Fault.WRONG_ISSUER),
        (claims(htm="get"), Fault.WRONG_REQUEST),
        (claims(htu=...), Fault.WRONG_REQUEST),
        (claims(audience=""), Fault.BAD_CLAIMS),
        (claims(profile=7), Fault.BAD_CLAIMS),
        (b'{"aud": 1, "aud": 2}', Fault.BAD_CLAIMS),
    ):
        assert fault(signed(head, wrong, key.key)) is wanted, wrong
    sound = signed(head, claims(), key.key)
    assert fault(sound + "=") is Fault.MALFORMED
    assert fault(sound[:-4]) in {Fault.BAD_SIGNATURE, Fault.MALFORMED}


def test_a_key_set_is_believed_for_its_own_thumbprints_only() -> None:
    """A `kid` of one's choice selects nothing, and a set without a usable key is no set."""
    words = json.loads(RING.jwks())["keys"][0]
    renamed = json.dumps({"keys": [{**words, "kid": "chosen"}]}).encode()
    for document in (renamed, b"{}", b'{"keys": []}', b"<html>"):
        with pytest.raises(Exception, match="key"):
            Keys(document=document)
    for url in ("http://gateway.example/jwks", "ftp://127.0.0.1/x"):
        with pytest.raises(ValueError, match="https"):
            Keys(url)


class Publisher:
    """A server of key sets that says what it is told to, and counts."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/keys"
        self.answer = b""
        self.asked = 0
        self._listener = listener

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                self.asked += 1
                connection.sendall(self.answer)

    def publish(self, document: bytes, status: bytes = b"200 OK", more: bytes = b"") -> None:
        length = b"content-length: %d\r\n" % len(document)
        self.answer = b"HTTP/1.1 " + status + b"\r\n" + more + length + b"\r\n" + document


@contextmanager
def publishing() -> Iterator[Publisher]:
    listener = socket.create_server(("127.0.0.1", 0))
    publisher = Publisher(listener)
    serving = threading.Thread(target=publisher.serve)
    serving.start()
    try:
        yield publisher
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        serving.join(10)


def test_keys_are_kept_renewed_and_outlive_an_outage_for_a_while() -> None:
    """Cache, one fetch for an unknown id, stale after an error, nothing believed in the end."""
    now = [1000.0]
    first, second = RingKey.fresh(), RingKey.fresh()
    old, new = OwnKeys([first]), OwnKeys([second, first])

    def made(ring: OwnKeys) -> bytes:
        return ring.sign(claims(), typ=assertion.TYP)

    with publishing() as publisher:
        keys = Keys(publisher.url, clock=lambda: now[0])
        publisher.publish(old.jwks(), b"503 Down")
        assert fault(made(old), keys=keys) is Fault.KEYS_UNAVAILABLE
        publisher.publish(old.jwks())
        now[0] += 6
        assert [fault(made(old), keys=keys) for _ in range(3)] == [None] * 3
        assert publisher.asked == 2
        now[0] += 6
        publisher.publish(new.jwks())
        assert fault(made(new), keys=keys) is None  # an unknown id asks once
        flood = [fault(made(OwnKeys.generate()), keys=keys) for _ in range(5)]
        assert flood == [Fault.UNKNOWN_KEY] * 5
        assert publisher.asked == 3
        for broken in (
            (b"<html>", b"200 OK", b""),
            (b'{"keys": []}', b"200 OK", b""),
            (b"", b"302 Found", b"location: http://127.0.0.1:1/\r\n"),
            (b"x" * 70_000, b"200 OK", b""),
        ):
            publisher.publish(*broken)
            now[0] += 100
            assert fault(made(new), keys=keys) is None  # the last good ones
        publisher.answer = b"nonsense\r\n\r\n"
        now[0] += 100
        assert fault(made(new), keys=keys) is None
        now[0] += 3600
        assert fault(made(new), keys=keys) is Fault.KEYS_UNAVAILABLE
        now[0] += 6
        publisher.publish(OwnKeys([second]).jwks())
        assert fault(made(new), keys=keys) is None
        assert fault(made(old), keys=keys) is Fault.UNKNOWN_KEY  # retired


def example(number: int) -> str:
    """A block of Python of the README's passage on verifying, without its fence."""
    passage = README.read_text().partition("**Verify who sent a request**")[2]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", passage, re.DOTALL)
    return blocks[number]


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_readme_run(stage: Stage, number: int) -> None:
    """As they stand there, with the gateway's address and name; some ten lines each."""
    text = example(number)
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
    text = text.replace("https://gateway.example", f"http://127.0.0.1:{stage.port}")
    text = text.replace('"audience-gateway"', f'"{GATEWAY_ID}"')
    names: dict[str, Any] = {}
    exec(compile(text, f"README example {number}", "exec"), names)  # noqa: S102 - what is tested
    sound = SimpleNamespace(headers=dict(relayed(stage)), method="GET", path=PATH)
    assert names["caller_of"](sound) is not None
    forged = RING.sign(claims(), typ=assertion.TYP).decode()
    for wrong in (
        SimpleNamespace(headers=sound.headers, method="POST", path=PATH),
        SimpleNamespace(headers=sound.headers, method="GET", path="/portal/customer/other"),
        SimpleNamespace(headers={}, method="GET", path=PATH),
        SimpleNamespace(headers={assertion.HEADER: forged}, method="GET", path=PATH),
    ):
        assert names["caller_of"](wrong) is None
