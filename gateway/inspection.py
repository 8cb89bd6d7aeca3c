"""The station *inspect*: what may leave of an answer, and the only maker of what is written.

Three ways, by the mode of the route: retrieval's answer, asked for and inspected in one; the
stream of an opaque route, whose headers are checked; an upstream's JSON, filtered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from gateway.egress.findings import Occasion
from gateway.egress.guard import Guard
from gateway.egress.publication import PARTS
from gateway.egress.scope import ScopeDocuments
from gateway.egress.tally import Tally
from gateway.errors import Code, Headers, Refusal
from gateway.ingress.strict_json import Json
from gateway.journal.event import SecurityEvent
from gateway.relay.headers import PRIVATE, of_upstream
from gateway.relay.stream import Truncated, document_of
from gateway.relay.upstream import UpstreamError, UpstreamResponse
from gateway.stations import Granted, Matched, Relayed
from retrieval.contract import (
    Answer,
    Ask,
    CheckRequest,
    FeedbackRequest,
    RetrieveRequest,
    SubjectWire,
)
from retrieval.wire import Address

DEADLINE_MARGIN_MS: Final = 500
_ADDRESS: Final[TypeAdapter[str]] = TypeAdapter(Address)
_HEADERS: Final[Headers] = ((b"content-type", b"application/json"), *PRIVATE)


@dataclass(frozen=True, slots=True)
class Inspected:
    """What may leave: headers, and either a body or a stream of an opaque route."""

    status: int
    headers: Headers
    body: bytes
    stream: UpstreamResponse | None
    event: SecurityEvent | None


async def guarded(
    granted: Granted,
    guard: Guard,
    documents: ScopeDocuments,
    relayed: Callable[[Answer], None],
    tally: Tally,
) -> Inspected:
    """Relay and inspect in one for retrieval, which may have to be asked a second time.

    ``relayed`` is told of each answer before it is inspected, ``tally`` of its units.

    Raises: Refusal; PolicyMoved when the request must be placed anew.
    """
    placed = granted.placed
    matched = placed.identified.matched
    if matched.route.operation == "scope":
        await guard.in_force(placed.subject)
        document = await documents.document(
            matched.snapshot, placed.identified.principal, placed.subject
        )
        return Inspected(200, _HEADERS, document, None, None)
    passed = await guard.answer(
        ask_of(granted), placed.subject, _occasion(matched, tally), relayed, placed.wish.cursor
    )
    return Inspected(200, _HEADERS, passed.body, None, passed.event)


async def opaque(relayed: Relayed) -> Inspected:
    """The answer of a route that carries no governed units: its headers are checked."""
    response = relayed.response
    admitted = relayed.granted.placed.identified.matched.admitted
    try:
        headers = of_upstream(response.headers, status=response.status, method=admitted.method)
    except UpstreamError as error:
        await response.aclose()
        raise Refusal(error.code, str(error)) from error
    return Inspected(response.status, tuple(headers), b"", response, None)


async def json_of(relayed: Relayed) -> Json:
    """The JSON of an upstream, read in full.

    Raises: Refusal ``upstream_invalid`` for anything that is not strict JSON in a 200.
    """
    try:
        return await document_of(relayed.response)
    except (UpstreamError, Truncated) as error:
        raise Refusal(Code.UPSTREAM_INVALID, str(error)) from error


async def filtered(granted: Granted, document: Json, guard: Guard, tally: Tally) -> Inspected:
    """The JSON of an upstream, less what this subject may not see.

    Nothing of the upstream's headers leaves, and nothing of its error bodies.

    Raises: Refusal; PolicyMoved when the request must be placed anew.
    """
    placed = granted.placed
    matched = placed.identified.matched
    upstream = matched.snapshot.upstreams[matched.route.upstream]
    if upstream.facets is None:
        raise Refusal(Code.UPSTREAM_INVALID, "no facet map for a guarded upstream")
    passed = await guard.filtered(
        document,
        labels=upstream.facets,
        upstream=upstream.name,
        vocabulary=matched.snapshot.vocabulary,
        subject=placed.subject,
        occasion=_occasion(matched, tally),
    )
    return Inspected(200, _HEADERS, passed.body, None, passed.event)


def _occasion(matched: Matched, tally: Tally) -> Occasion:
    return Occasion(
        request_id=matched.admitted.request_id,
        trace_id=matched.admitted.trace.trace_hex,
        route=matched.route.id,
        tally=tally,
    )


def ask_of(granted: Granted) -> Ask:
    """The question that retrieval is asked for a granted request."""
    placed = granted.placed
    matched, subject = placed.identified.matched, placed.subject
    operation, asked = matched.route.operation, placed.wish.request
    if operation not in PARTS:
        raise Refusal(Code.INTERNAL, f"operation `{operation}` has no question")
    left_ms = int((matched.admitted.ends_at - time.monotonic()) * 1000) - DEADLINE_MARGIN_MS
    return Ask(
        operation=operation,  # type: ignore[arg-type]  # checked above
        subject=SubjectWire(
            subject_id=subject.subject_id,
            audience=subject.audience,
            profiles=subject.grant.profiles,
            tenants=subject.tenants,
            jurisdictions=subject.jurisdictions,
            task_scope=subject.task_scope,
            purpose=subject.purpose,
            policy_digest=subject.grant.digest,
        ),
        request=asked if isinstance(asked, RetrieveRequest) else None,
        check=asked if isinstance(asked, CheckRequest) else None,
        feedback=asked if isinstance(asked, FeedbackRequest) else None,
        units=placed.wish.page,
        reference=_reference(matched),
        request_id=matched.admitted.request_id,
        deadline_ms=max(1, left_ms),
    )


def _reference(matched: Matched) -> str | None:
    """The id or address in the path. Raises: Refusal ``not_found`` for what cannot be one."""
    for text in matched.names.values():
        try:
            return _ADDRESS.validate_python(text)
        except ValidationError:
            raise Refusal(Code.NOT_FOUND, "no address has this form") from None
    return None
