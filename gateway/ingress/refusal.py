"""What the protocol itself answers to bytes that never become a request."""

from __future__ import annotations

from gateway.errors import PROBLEM_JSON, Code, problem_body, status_of
from gateway.ingress.parser import STATUS_LINE


def refusal_of(code: Code, request_id: str) -> bytes:
    """The whole answer, which says that the connection ends with it."""
    body = problem_body(code, request_id)
    head = [
        STATUS_LINE[status_of(code)],
        b"content-type: ",
        PROBLEM_JSON,
        b"\r\ncontent-length: %d\r\n" % len(body),
        b"x-request-id: ",
        request_id.encode("ascii"),
        b"\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
    ]
    return b"".join((*head, body))
