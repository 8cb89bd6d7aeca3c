"""llhttp's own strict fixtures, sent raw: what must not parse never reaches the upstream.

Provenance: shared data `http/llhttp_requests_strict.jsonl` (nodejs/llhttp, MIT).
"""

from __future__ import annotations

import base64
import json
import re
import socket
from pathlib import Path

from tests.gateway.stage import Stage, parse


def send(stage: Stage, data: bytes) -> bytes:
    """Everything the gateway answers until it closes; the header time bounds the wait."""
    received = b""
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as sock:
        try:
            sock.sendall(data)
            while piece := sock.recv(65536):
                received += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    return received


def authorised(raw: bytes, target: bytes) -> bytes:
    """The fixture aimed at an open route, with a Host, and an end to its header block."""
    raw = re.sub(rb"^([A-Z-]+) [^ \r\n]+ (HTTP/[0-9.]+)", rb"\1 " + target + rb" \2", raw)
    for name, line in ((b"host", b"Host: a"), (b"connection", b"Connection: close")):
        if b"\n" + name + b":" not in raw.lower():
            raw = raw.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)
    return raw if b"\r\n\r\n" in raw else raw + b"\r\n"


def test_request_that_must_fail_reaches_no_upstream(shared_data: Path, stage: Stage) -> None:
    """All fixtures marked `error`, as they are and aimed at an open route: nothing arrives whole.

    An upstream may have seen the beginning of a chunked body whose later chunk is broken; it
    never sees that body's end.
    """
    lines = (shared_data / "http" / "llhttp_requests_strict.jsonl").read_text().splitlines()
    failing = [one for one in map(json.loads, lines) if one["expected"]["outcome"] == "error"]
    assert len(failing) == 53
    for fixture in failing:
        raw = base64.b64decode(fixture["input_b64"])
        forms = [raw]
        if "uri.md" not in fixture["id"]:  # there the target is the fault
            forms.append(authorised(raw, b"/portal/customer/x"))
        for data in forms:
            stage.upstream.requests.clear()
            replies = parse(send(stage, data).replace(b"<reset>", b""))
            whole = fixture["expected"]["messages_completed"]
            assert len(stage.upstream.requests) <= whole, fixture["id"]
            assert all(reply.status >= 400 for reply in replies[whole:]), fixture["id"]


def test_request_that_parses_is_answered_or_refused_by_rule(
    shared_data: Path, stage: Stage
) -> None:
    """Fixtures that parse: never a hang, never a 500; the upstream sees a method as sent."""
    lines = (shared_data / "http" / "llhttp_requests_strict.jsonl").read_text().splitlines()
    sound = [one for one in map(json.loads, lines) if one["expected"]["outcome"] != "error"]
    assert len(sound) == 64
    passed = 0
    token = f"\r\nAuthorization: Bearer {stage.issuers.token('customer')}\r\n".encode()
    for fixture in sound:
        raw = base64.b64decode(fixture["input_b64"])
        stage.upstream.requests.clear()
        raw = authorised(raw, b"/portal/customer/x").replace(b"\r\n", token, 1)
        replies = parse(send(stage, raw))
        assert all(reply.status < 500 or reply.status in {501, 505} for reply in replies), fixture[
            "id"
        ]
        for request in stage.upstream.requests:
            method = request.partition(b" ")[0].decode()
            assert method + " " in raw.decode("latin-1")
            passed += 1
    assert passed >= 10
