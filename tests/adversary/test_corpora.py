"""Other people's collections, sent raw to a running process: what arrives is what was decided.

Provenance: shared data `http/` (llhttp's fixtures, PayloadsAllTheThings, param-miner's names,
web-platform-tests' addresses); its README says what a test should assert.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.adversary.client import Kept
from tests.adversary.process import Gateway
from tests.gateway.stage import Reply, parse
from tests.gateway.test_llhttp import authorised

BASE = b"/portal/customer/"
LISTENING_THREADS = 24
RUN_TOGETHER = {f"llhttp/request/connection.md#crlf-between-requests-{how}"
                for how in ("implicit-keep-alive", "explicit-close")}  # fmt: skip
"""Two fixtures in one record: a sound request stands before the one that must fail."""
OWN = {"host", "x-request-id", "traceparent", "transfer-encoding", "content-length"}


def lines(shared_data: Path, name: str) -> list[Any]:
    """Every record of one of the collections."""
    return [json.loads(line) for line in (shared_data / "http" / name).read_text().splitlines()]


def test_fixtures_of_llhttp_arrive_as_they_parse_or_not_at_all(
    shared_data: Path, gateway: Gateway
) -> None:
    """All 117, as they are and aimed at an open portal: what must fail ends nowhere as a whole
    request; what parses arrives with the method, headers and body that the fixture says."""
    fixtures = lines(shared_data, "llhttp_requests_strict.jsonl")
    assert len(fixtures) == 117
    bearer = f"\r\nAuthorization: Bearer {gateway.token('customer')}\r\n".encode()

    def one(place: int) -> tuple[bytes, bytes]:
        raw = base64.b64decode(fixtures[place]["input_b64"])
        if "uri.md" in fixtures[place]["id"]:  # there the target is what is tested
            return gateway.raw(raw), b""
        aimed = authorised(raw, BASE + b"f%d" % place)
        return gateway.raw(raw), gateway.raw(aimed.replace(b"\r\n", bearer, 1))

    with ThreadPoolExecutor(LISTENING_THREADS) as threads:
        answers = list(threads.map(one, range(len(fixtures))))
    by_target = {
        f"/portal/customer/f{place}": (fixture["expected"], fixture["id"])
        for place, fixture in enumerate(fixtures)
    }
    for place, fixture in enumerate(fixtures):
        sound = fixture["expected"]["messages_completed"] + (fixture["id"] in RUN_TOGETHER)
        for raw in answers[place]:
            replies = parse(
                raw.replace(b"<reset>", b"").replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
            )
            assert all(reply.status in range(200, 506) for reply in replies), fixture["id"]
            assert all(reply.status != 500 for reply in replies), fixture["id"]
            if fixture["expected"]["outcome"] == "error":
                assert all(reply.status >= 400 for reply in replies[sound:]), fixture["id"]
    arrived = 0
    for seen in gateway.arrived:
        expected, name = by_target[seen.target]
        if not seen.whole or name in RUN_TOGETHER:
            continue
        arrived += 1
        assert expected["messages_completed"] >= 1 or expected["outcome"] != "error", name
        assert seen.method == expected["methods"][0], name
        told = {(key.lower(), value.strip()) for key, value in expected["headers"]}
        for header in seen.headers:
            ours = header[0] in OWN or header[0].startswith(("x-gateway-", "x-forwarded-"))
            assert ours or header in told, (name, header)
        if expected["messages_begun"] == 1 and expected["outcome"] == "ok":
            assert seen.body.decode("latin-1") == "".join(expected["body"]), name
    assert arrived >= 8


def sent(customer: bytes, target: bytes, *more: bytes) -> bytes:
    line = b"GET " + target + b" HTTP/1.1"
    return b"\r\n".join((line, b"Host: gateway.test", customer, *more, b"", b""))


def only_what_was_answered_arrived(
    gateway: Gateway, asked: dict[bytes, Reply | None], *, portal: str = "customer-portal"
) -> None:
    """Everything that arrived is a target that was answered with 200, byte for byte."""
    # blanks around a target belong to the line (RFC 9112 section 3), and are never sent on; nor
    # is the mark of a query that is empty
    answered = Counter(
        "?".join(filter(None, target.decode("latin-1").strip(" ").split("?", 1)))
        for target, reply in asked.items()
        if reply and reply.status == 200
    )
    arrived = Counter(seen.target for seen in gateway.arrived)
    assert arrived == answered
    for seen in gateway.arrived:
        path = seen.target.partition("?")[0]
        assert (seen.portal, seen.value("x-gateway-audience")) == (portal, "customer")
        assert path.startswith(BASE.decode())
        assert not {"", ".", ".."} & set(path[1:].removesuffix("/").split("/"))
        assert not re.search(r"[%\\;#\x00-\x20\x7f-\xff]", path)


def test_payload_in_a_path_or_query_is_no_other_path(shared_data: Path, gateway: Gateway) -> None:
    """All 702, behind a portal, at the root, in a query, in a value: no route but the portal's."""
    payloads = lines(shared_data, "payloads.jsonl")
    assert len(payloads) == 702
    customer = f"Authorization: Bearer {gateway.token('customer')}".encode()
    asked: dict[bytes, Reply | None] = {}
    with Kept(gateway) as kept:
        for payload in payloads:
            text = payload["value"].replace("{FILE}", "etc/passwd").encode("utf-8", "surrogatepass")
            root = text if text.startswith(b"/") else b"/" + text
            for target in {BASE + text, root, BASE + b"q?x=" + text} - asked.keys():
                reply = asked[target] = kept.ask(sent(customer, target))
                assert reply is not None, target
                assert reply.status in {200, 400, 404, 414, 505}, target
            reply = kept.ask(sent(customer, b"/portal/employee/x", b"X-Payload: " + text))
            assert reply is not None
            assert reply.status in {400, 403}, text
    only_what_was_answered_arrived(gateway, asked)
    assert len(gateway.arrived) > 300


def test_payload_in_a_wish_or_question_is_a_word_like_any(
    shared_data: Path, gateway: Gateway
) -> None:
    """SQL and NoSQL ones as query, audience, purpose and address: nothing is found or fails."""
    payloads = [one for one in lines(shared_data, "payloads.jsonl") if "sql" in one["kind"]]
    assert len(payloads) == 172
    customer = f"Authorization: Bearer {gateway.token('customer')}".encode()
    with Kept(gateway) as kept:

        def retrieve(**question: str) -> int:
            body = json.dumps(question).encode()
            length = b"Content-Length: %d" % len(body)
            head = b"POST /v1/retrieve HTTP/1.1\r\nHost: a\r\nContent-Type: application/json"
            reply = kept.ask(b"\r\n".join((head, customer, length, b"", body)))
            assert reply is not None
            if reply.status == 200:
                assert json.loads(reply.body)["packs"] == [], question
            return reply.status

        for payload in payloads:
            text = payload["value"]
            assert retrieve(query=text) in {200, 400}, text
            assert retrieve(query="x", audience=text) in {400, 403}, text
            assert retrieve(query="x", purpose=text) in {200, 400}, text
            for target in (f"/v1/units/{text}", f"/v1/scope?audience={text}"):
                reply = kept.ask(sent(customer, target.encode("utf-8", "surrogatepass")))
                assert reply is not None
                assert reply.status in {400, 403, 404}, target
    assert gateway.arrived == []


def test_header_name_of_the_list_moves_no_decision(shared_data: Path, gateway: Gateway) -> None:
    """All 563, each by itself with three forged values: a customer and a stranger stay what they
    are, whatever a server behind us would make of the name, and once the block is known, too."""
    names = (shared_data / "http" / "header_names.txt").read_text().split()
    assert len(names) == 563
    bearer = f"Authorization: Bearer {gateway.token('customer')}".encode()
    refused: set[str] = set()
    with Kept(gateway) as kept:
        for name in names:
            for value in ("employee", "internal", "admin"):
                forged = f"{name}: {value}".encode()
                for who in (bearer, b"X-Nobody: 1"):
                    for known in (False, True):  # by then the header block was let pass
                        reply = kept.ask(sent(who, b"/portal/employee/x", forged))
                        assert reply is None or reply.status in {400, 401, 403, 417}, forged
                        if known:
                            continue
                        reply = kept.ask(sent(who, b"/portal/customer/x", forged))
                        if reply is None or reply.status != 200:
                            refused.add(name)
    assert refused <= {"host", "content-length", "transfer-encoding", "expect", "authorization",
                       "x-gateway-delegation", "x-rewrite-url~/%s"}, refused  # fmt: skip
    assert all(seen.portal == "customer-portal" for seen in gateway.arrived)
    assert all(seen.value("x-gateway-audience") == "customer" for seen in gateway.arrived)
    assert all(seen.target == "/portal/customer/x" for seen in gateway.arrived)
    assert len(gateway.arrived) > 3_000


def test_address_of_the_platform_tests_is_no_target(shared_data: Path, gateway: Gateway) -> None:
    """All 869, as a target, behind a portal, and as a Host: one reading or a refusal."""
    cases = lines(shared_data, "wpt_urltestdata.jsonl")
    assert len(cases) == 869
    customer = f"Authorization: Bearer {gateway.token('customer')}".encode()
    asked: dict[bytes, Reply | None] = {}
    hosts: set[str] = set()
    with Kept(gateway) as kept:
        for case in cases:
            text = case["input"].encode("utf-8", "surrogatepass")
            for target in (text, BASE + text):
                if target not in asked:
                    asked[target] = kept.ask(sent(customer, target))
            reply = kept.ask(
                b"GET /portal/employee/x HTTP/1.1\r\nHost: "
                + text
                + b"\r\n"
                + customer
                + b"\r\n\r\n"
            )
            assert reply is None or reply.status in {400, 403}, text
            if reply is not None and reply.status == 403:
                hosts.add(text.decode().strip(" \t"))
    assert all(reply is None or reply.status in {200, 400, 404, 505} for reply in asked.values())
    only_what_was_answered_arrived(gateway, asked)
    assert hosts
    for host in hosts:
        parts = urlsplit(f"//{host}")  # raises for a bracket without an address
        assert parts.netloc == host
        assert parts.port is None or 0 <= parts.port <= 65_535
