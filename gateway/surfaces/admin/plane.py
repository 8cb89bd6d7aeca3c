"""The operators' surface as one ASGI application: who asks, may it, journal, answer.

Laws
    * A caller is an operator when the policy in force allows one of its verified roles an
      action of the door; everybody else learns ``forbidden`` and is answered nothing.
    * The body is read after that, strictly, and within its own bound.
    * A use is a durable row before its answer leaves, also when its very action is denied.
    * Whatever is raised becomes a refusal of the closed list, never an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from gateway import stations
from gateway.authn.bearer import Authenticator, bearer_of
from gateway.errors import (
    PROBLEM_JSON,
    Code,
    Headers,
    Refusal,
    no_credential,
    problem_body,
    status_of,
)
from gateway.holder import SnapshotHolder
from gateway.ingress.body import Body
from gateway.ingress.limits import Limits
from gateway.ingress.normalise import ends_in_slash
from gateway.ingress.strict_json import NotStrictJson, parse_object
from gateway.journal.access import AccessJournal, AdminAccess
from gateway.journal.event import JournalUnavailable
from gateway.placement import denied
from gateway.reasons import Why
from gateway.relay.headers import PRIVATE
from gateway.routes.wishes import first_fault, refuse_query, require_json
from gateway.surfaces.admin.asked import Answered, Asked, Door
from gateway.surfaces.admin.wire import Question, Wire
from gateway.telemetry.recorder import Recorder
from gateway.visit import Visit, recorded, reset, visit_of
from policies.decision import Decision
from policies.kinds import AdminAction, Kind

PREFIX: Final = b"/admin/"
SURFACE: Final = "admin"
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Every class of 8 profiles as text is under half a megabyte."""
_AT_ONCE_BYTES: Final = 16 * 1024
"""A longer question is read on a thread: the largest would hold every request up for a second."""

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlane:
    """Answers everything under ``/admin/`` of the second listener. ``doors`` by path."""

    snapshots: SnapshotHolder
    authenticator: Authenticator
    journal: AccessJournal
    doors: Mapping[bytes, Door]
    sink: Recorder
    limits: Limits

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        # Copied before the first await: a server may append trailers to its own list.
        headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
        scope["headers"] = headers
        visit = visit_of(scope, headers, self.sink, self.snapshots, surface=SURFACE)
        body = Body(receive, headers, replace(self.limits, body_bytes=BODY_BYTES_MAX))
        writer = _Writer(scope, send, visit, body)
        await recorded(self._work(scope, visit, body, writer), self.sink, visit, body, writer)

    async def _work(
        self, scope: MutableMapping[str, Any], visit: Visit, body: Body, writer: _Writer
    ) -> None:
        try:
            async with asyncio.timeout(self.limits.request_s):
                answer = await self._answer(scope, visit, body)
        except TimeoutError:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "deadline") from None
        await writer.answer(answer)

    async def _answer(self, scope: MutableMapping[str, Any], visit: Visit, body: Body) -> Wire:
        admitted = stations.admit(
            scope, request_id=visit.request_id, trace=visit.trace, ends_at=0.0
        )
        visit.passed("admit")
        if ends_in_slash(admitted.segments):
            raise Refusal(Code.BAD_PATH, "a slash at the end")
        door = self.doors.get(admitted.raw_path)
        if door is None:
            raise Refusal(Code.NOT_FOUND, "no such door")
        visit.route = door.route
        if admitted.method != "POST":
            raise Refusal(Code.METHOD_NOT_ALLOWED, "POST", headers=((b"allow", b"POST"),))
        refuse_query(admitted.query)
        visit.passed("match")
        asked = await self._asked(admitted.headers, visit)
        visit.passed("identify")
        visit.passed("place")  # an operator is in no audience here
        decisions = [asked.snapshot.decide_admin(asked.roles, one) for one in door.actions]
        if not any(decision.allowed for decision in decisions):
            raise denied(Code.FORBIDDEN, decisions[0])  # of every action of the door
        request = await _read(door, admitted.headers, body)
        action, decision = self._decided(asked, door.actions_of(request))
        if decision.allowed:
            visit.passed("decide")
            answered = await door.answer(asked, request)
        else:
            answered = Answered(denied(Code.FORBIDDEN, decision), {})
        visit.trace = replace(visit.trace, sampled=True)  # a use is always traced
        await self._journal(asked, action, decision, request.reason, answered)
        visit.decision = decision.effect.value
        if isinstance(answered.reply, Refusal):
            raise answered.reply
        return answered.reply

    async def _asked(self, headers: Headers, visit: Visit) -> Asked:
        """Who asks. Raises: Refusal ``unauthenticated``, ``admin_disabled``."""
        snapshot = self.snapshots.current
        visit.digest = snapshot.digest
        token = bearer_of(headers)
        if token is None:
            raise no_credential()
        principal = await self.authenticator.principal(
            token, issuers=snapshot.issuers, digest=snapshot.digest
        )
        visit.facts.principal = principal
        rules = snapshot.table.relations[Kind.ADMIN].entries.values()
        if not any(verdict.allowed for verdict in rules):
            raise Refusal(
                Code.ADMIN_DISABLED,
                "rules/admin.csv allows nobody anything",
                why=Why.ADMIN_DISABLED,
            )
        return Asked(
            principal=principal,
            snapshot=snapshot,
            request_id=visit.request_id,
            trace_id=visit.trace.trace_hex,
        )

    def _decided(
        self, asked: Asked, actions: tuple[AdminAction, ...]
    ) -> tuple[AdminAction, Decision]:
        """The action that names the use, and the decision that counts: the first denial if any."""
        decisions = [asked.snapshot.decide_admin(asked.roles, one) for one in actions]
        denied = [decision for decision in decisions if not decision.allowed]
        return actions[0], (denied or decisions)[0]

    async def _journal(
        self,
        asked: Asked,
        action: AdminAction,
        decision: Decision,
        reason: str,
        answered: Answered,
    ) -> None:
        access = AdminAccess.of(
            asked.principal.subject_id,
            request_id=asked.request_id,
            trace_id=asked.trace_id,
            issuer=asked.principal.issuer,
            roles=sorted(asked.roles),
            action=action,
            allowed=decision.allowed,
            rules=decision.rules,
            reason=reason,
            policy_digest=asked.snapshot.digest,
            about_digest=answered.about,
            told=answered.told,
        )
        try:
            await self.journal.record_access(access)
        except JournalUnavailable as error:
            raise Refusal(Code.JOURNAL_UNAVAILABLE, str(error)) from error


async def _read(door: Door, headers: Headers, body: Body) -> Question:
    """The question. Raises: Refusal ``unsupported_media_type``, ``bad_body``, or of the body."""
    require_json(headers)
    text = await body.whole()
    try:
        if len(text) <= _AT_ONCE_BYTES:
            return _parsed(door, text)
        return await asyncio.to_thread(_parsed, door, text)
    except NotStrictJson as error:
        raise Refusal(Code.BAD_BODY, str(error)) from error
    except ValidationError as error:
        raise Refusal(Code.BAD_BODY, first_fault(error)) from error


def _parsed(door: Door, text: bytes) -> Question:
    parse_object(text)  # what has two readings is refused before it is read
    return door.model.model_validate_json(text, strict=True)


class _Writer:
    """Writes the one answer to an operator."""

    def __init__(
        self, scope: MutableMapping[str, Any], send: Send, visit: Visit, body: Body
    ) -> None:
        self._scope = scope
        self._send = send
        self._visit = visit
        self._body = body

    async def answer(self, reply: Wire) -> None:
        headers = [(b"content-type", b"application/json")]
        await self._whole(200, headers, reply.model_dump_json().encode())

    async def refuse(self, refusal: Refusal) -> None:
        """The problem document. An operator is told which part of its own body was not accepted."""
        visit = self._visit
        visit.code = str(refusal.code)
        if refusal.code is not Code.NOT_FOUND:
            visit.decision = "deny"
        if visit.sent:
            await self.abort()
            return
        document = problem_body(refusal.code, visit.request_id, refusal.reason)
        headers = [(b"content-type", PROBLEM_JSON), *refusal.headers]
        await self._whole(status_of(refusal.code), headers, document)

    async def abort(self) -> None:
        reset(self._scope, self._visit)

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        visit = self._visit
        visit.status, visit.sent, visit.bytes_out = status, True, len(body)
        headers += [
            *PRIVATE,
            (b"content-length", b"%d" % len(body)),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", visit.request_id.encode("ascii")),
        ]
        if visit.digest:
            headers.append((b"x-policy-digest", visit.digest.encode("ascii")))
        if not self._body.ended:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
