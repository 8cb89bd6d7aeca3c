"""Every refusal a caller can get: a closed list, and the one mapping to HTTP.

Laws
    * A caller learns a stable ``code`` and a request id. Reasons, names of stores, rules and
      units are for operators and never stand in a body. Which part of its own body was not
      accepted it is told: that is the caller's own text, and nobody's secret.
    * *Hidden* and *absent* are one code, so that no branch can tell them apart.
    * A code that is not in this list cannot be sent.

Source: RFC 9457 (problem details), RFC 6750 section 3 (bearer challenges).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import orjson

from gateway.reasons import Why

Headers = tuple[tuple[bytes, bytes], ...]


class Code(StrEnum):
    """The stable word that a client may branch on."""

    BAD_REQUEST = "bad_request"
    BAD_PATH = "bad_path"
    BAD_HOST = "bad_host"
    BAD_FRAMING = "bad_framing"
    BAD_BODY = "bad_body"
    BAD_QUERY = "bad_query"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NO_AUDIENCE = "no_audience"
    AMBIGUOUS_AUDIENCE = "ambiguous_audience"
    ADMIN_DISABLED = "admin_disabled"
    TASK_SCOPE_REFUSED = "task_scope_refused"
    TASK_SCOPE_REQUIRED = "task_scope_required"
    AUDIENCE_REFUSED = "audience_refused"
    DELEGATION_REQUIRED = "delegation_required"
    GUARD_REQUIRED = "guard_required"
    NOT_FOUND = "not_found"
    NOT_DELIVERED = "not_delivered"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    REQUEST_TIMEOUT = "request_timeout"
    REVISION_CONFLICT = "revision_conflict"
    BODY_TOO_LARGE = "body_too_large"
    TARGET_TOO_LONG = "target_too_long"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    CURSOR_OUTDATED = "cursor_outdated"
    EXPECTATION_FAILED = "expectation_failed"
    RATE_LIMITED = "rate_limited"
    HEADERS_TOO_LARGE = "headers_too_large"
    INTERNAL = "internal"
    UPGRADE_UNSUPPORTED = "upgrade_unsupported"
    VERSION_UNSUPPORTED = "version_unsupported"
    UPSTREAM_INVALID = "upstream_invalid"
    UPSTREAM_UNAVAILABLE = "upstream_unavailable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_UNAUTHENTICATED = "upstream_unauthenticated"
    UPSTREAM_FORBIDDEN = "upstream_forbidden"
    UPSTREAM_NOT_FOUND = "upstream_not_found"
    UPSTREAM_RATE_LIMITED = "upstream_rate_limited"
    UPSTREAM_OVERLOADED = "upstream_overloaded"
    OVERLOADED = "overloaded"
    RETRIEVAL_UNAVAILABLE = "retrieval_unavailable"
    INDEX_UNAVAILABLE = "index_unavailable"
    IDENTITY_UNAVAILABLE = "identity_unavailable"
    POLICY_CHANGED = "policy_changed"
    POLICY_UNAVAILABLE = "policy_unavailable"
    JOURNAL_UNAVAILABLE = "journal_unavailable"


_WORDING: Final[Mapping[Code, tuple[int, str]]] = {
    Code.BAD_REQUEST: (400, "The request is malformed"),
    Code.BAD_PATH: (400, "The path is not in canonical form"),
    Code.BAD_HOST: (400, "The request needs exactly one valid Host"),
    Code.BAD_FRAMING: (400, "The framing of the request is ambiguous"),
    Code.BAD_BODY: (400, "The body is not what this route accepts"),
    Code.BAD_QUERY: (400, "The query string is not what this route accepts"),
    Code.UNAUTHENTICATED: (401, "A valid credential is required"),
    Code.FORBIDDEN: (403, "The policy does not allow this"),
    Code.NO_AUDIENCE: (403, "The policy places this caller in no audience"),
    Code.AMBIGUOUS_AUDIENCE: (403, "The policy places this caller in more than one audience"),
    Code.ADMIN_DISABLED: (403, "The policy has no rule that lets an operator do anything"),
    Code.TASK_SCOPE_REFUSED: (403, "This task scope is not among the caller's verified ones"),
    Code.TASK_SCOPE_REQUIRED: (403, "The caller has several task scopes and must name one"),
    Code.AUDIENCE_REFUSED: (403, "The named audience cannot be used to narrow"),
    Code.DELEGATION_REQUIRED: (403, "An upstream retrieves for its caller only"),
    Code.GUARD_REQUIRED: (403, "This route is answered by the gateway itself, never beside it"),
    Code.NOT_FOUND: (404, "There is nothing here for this caller"),
    Code.NOT_DELIVERED: (404, "There is no such delivery to this caller"),
    Code.METHOD_NOT_ALLOWED: (405, "The method is not allowed here"),
    Code.REQUEST_TIMEOUT: (408, "The request did not arrive in time"),
    Code.CURSOR_OUTDATED: (409, "The cursor belongs to another listing: begin anew"),
    Code.REVISION_CONFLICT: (409, "It was changed since it was read: look at it again"),
    Code.BODY_TOO_LARGE: (413, "The body is larger than this route accepts"),
    Code.TARGET_TOO_LONG: (414, "The request target is too long"),
    Code.UNSUPPORTED_MEDIA_TYPE: (415, "The media type is not accepted here"),
    Code.EXPECTATION_FAILED: (417, "The expectation cannot be met"),
    Code.RATE_LIMITED: (429, "Too many requests: try again later"),
    Code.HEADERS_TOO_LARGE: (431, "The header block is too large"),
    Code.INTERNAL: (500, "The request could not be handled"),
    Code.UPGRADE_UNSUPPORTED: (501, "This upgrade is not supported"),
    Code.VERSION_UNSUPPORTED: (505, "This version of HTTP is not supported"),
    Code.UPSTREAM_INVALID: (502, "The upstream answered with something that cannot be passed on"),
    Code.UPSTREAM_UNAVAILABLE: (502, "The upstream cannot be reached"),
    Code.UPSTREAM_TIMEOUT: (504, "The upstream did not answer in time"),
    Code.UPSTREAM_UNAUTHENTICATED: (401, "The upstream wants a credential of its own"),
    Code.UPSTREAM_FORBIDDEN: (403, "The upstream does not allow this"),
    Code.UPSTREAM_NOT_FOUND: (404, "The upstream has nothing here"),
    Code.UPSTREAM_RATE_LIMITED: (429, "The upstream has had too many requests: try again later"),
    Code.UPSTREAM_OVERLOADED: (503, "The upstream cannot take this at present"),
    Code.OVERLOADED: (503, "Too many requests are under way at present"),
    Code.RETRIEVAL_UNAVAILABLE: (503, "Retrieval cannot answer at present"),
    Code.INDEX_UNAVAILABLE: (503, "Retrieval cannot search at present"),
    Code.IDENTITY_UNAVAILABLE: (503, "The caller's identity cannot be verified at present"),
    Code.POLICY_CHANGED: (503, "The policy changed while the request was answered"),
    Code.POLICY_UNAVAILABLE: (503, "No policy is active"),
    Code.JOURNAL_UNAVAILABLE: (503, "The request cannot be recorded at present"),
}
PROBLEM_JSON: Final = b"application/problem+json"
_DETAILED: Final = frozenset({Code.BAD_BODY, Code.BAD_QUERY})
DECLINES: Final[Mapping[int, Code]] = {
    401: Code.UPSTREAM_UNAUTHENTICATED,
    403: Code.UPSTREAM_FORBIDDEN,
    404: Code.UPSTREAM_NOT_FOUND,
    429: Code.UPSTREAM_RATE_LIMITED,
    503: Code.UPSTREAM_OVERLOADED,
}
"""What a caller is told of an upstream that declines a socket with this status; else nothing."""


class GatewayError(Exception):
    """Base of everything this house raises. A caller that sees one must refuse the request."""


class PartMissing(GatewayError):
    """A package that safety rests on is not installed: there is no way to go on without it."""


class Refusal(GatewayError):
    """The request ends here, with ``code``.

    ``reason`` is for whoever meets the exception and never leaves, but for ``bad_body`` and
    ``bad_query``, where it names the place in the caller's own body or query. ``why`` is the word
    that every log tells, and ``issuer`` the alias of the issuer that a refused credential names,
    where policy has it: said by the credential, not proven. ``headers`` are added to the answer.
    """

    def __init__(
        self,
        code: Code,
        reason: str = "",
        *,
        why: Why | None = None,
        issuer: str = "",
        headers: Headers = (),
    ) -> None:
        self.code = code
        self.reason = reason
        self.why = why
        self.issuer = issuer
        self.headers = headers
        super().__init__(f"{code}: {reason}" if reason else str(code))


def status_of(code: Code) -> int:
    """The HTTP status that goes with a code."""
    return _WORDING[code][0]


def problem_body(code: Code, request_id: str, reason: str = "") -> bytes:
    """The RFC 9457 document of a refusal. It depends on the code and the request id only; with
    ``bad_body`` and ``bad_query`` also on ``reason``, the place in the caller's own body or query
    that was not accepted."""
    status, title = _WORDING[code]
    document = {
        "type": f"urn:audience-gateway:problem:{code}",
        "title": title,
        "status": status,
        "code": str(code),
        "request_id": request_id,
    }
    if code in _DETAILED and reason:
        document["detail"] = reason[:300]
    return orjson.dumps(document)


def challenge(error: str = "") -> Headers:
    """The WWW-Authenticate header of a 401.

    ``error`` is an RFC 6750 code (``invalid_token``); none when no credential was sent.
    """
    value = 'Bearer realm="audience-gateway"' + (f', error="{error}"' if error else "")
    return ((b"www-authenticate", value.encode("ascii")),)


def no_credential() -> Refusal:
    """The refusal of a caller that sent no credential where one is needed."""
    return Refusal(
        Code.UNAUTHENTICATED, "no credential", why=Why.NO_CREDENTIAL, headers=challenge()
    )
