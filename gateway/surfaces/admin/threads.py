"""Threads of the sources that an operator owns: listed, shown, told and edited.

Laws
    * A role opens the door (``rules/admin.csv``), a verified claim opens the source
      (``sources`` of ``rules/issuers.yaml``); both or nothing.
    * Of another source's thread an operator learns what it learns of none.
    * What is written carries the operator's opaque id and reason as one revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pydantic import Field

from gateway.errors import Code, Refusal
from gateway.reasons import Why
from gateway.surfaces.admin.asked import Answered, Asked, Door
from gateway.surfaces.admin.wire import Question, Wire
from policies.kinds import AdminAction
from policies.snapshot import Snapshot
from retrieval.owners.wire import (
    PAGE_MAX,
    Address,
    Edited,
    History,
    Page,
    Shown,
    Source,
    ThreadEdit,
)

LIST_PATH: Final = "/admin/v1/threads/list"
SHOW_PATH: Final = "/admin/v1/threads/show"
HISTORY_PATH: Final = "/admin/v1/threads/history"
EDIT_PATH: Final = "/admin/v1/threads/edit"

Told = Mapping[str, str | int]


class OfSource(Question):
    """A question about one source of the operator's own."""

    source: Source


class ListRequest(OfSource):
    after: Annotated[str, Field(max_length=300)] = ""
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE_MAX


class ShowRequest(OfSource):
    thread: Address


class HistoryRequest(OfSource):
    thread: Address
    before: Annotated[int, Field(ge=1, lt=2**31)] = 2**31 - 1
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE_MAX


class EditRequest(OfSource):
    edit: ThreadEdit


class ListReply(Wire):
    request_id: str
    page: Page


class ShowReply(Wire):
    request_id: str
    shown: Shown


class HistoryReply(Wire):
    request_id: str
    history: History


class EditReply(Wire):
    request_id: str
    edited: Edited


class Threads(Protocol):
    """The threads of one source, under one policy. Blocking.

    Each raises: Refusal ``not_found``, ``bad_body``, ``revision_conflict``, ``policy_changed`` or
    ``retrieval_unavailable``.
    """

    def threads(self, source: str, *, after: str, limit: int) -> Page: ...

    def show(self, source: str, address: str) -> Shown: ...

    def history(self, source: str, address: str, *, before: int, limit: int) -> History: ...

    def edit(self, source: str, edit: ThreadEdit, *, author: str, reason: str) -> Edited: ...


ThreadsOf = Callable[[Snapshot], Threads]


def thread_doors(threads: ThreadsOf) -> dict[bytes, Door]:
    """The four doors by path. ``threads``: what answers under a policy."""
    doors: tuple[tuple[str, Door], ...] = (
        (LIST_PATH, ListDoor(threads)),
        (SHOW_PATH, ShowDoor(threads)),
        (HISTORY_PATH, HistoryDoor(threads)),
        (EDIT_PATH, EditDoor(threads)),
    )
    return {path.encode(): door for path, door in doors}


@dataclass(frozen=True, slots=True)
class ListDoor:
    """Answers ``POST /admin/v1/threads/list``."""

    threads: ThreadsOf
    route: str = "admin-threads-list"
    model: type[ListRequest] = ListRequest
    actions: tuple[AdminAction, ...] = (AdminAction.READ_THREADS,)

    def actions_of(self, _: ListRequest) -> tuple[AdminAction, ...]:
        return self.actions

    async def answer(self, asked: Asked, request: ListRequest) -> Answered:
        def read() -> tuple[Wire, Told]:
            page = self.threads(asked.snapshot).threads(
                request.source, after=request.after, limit=request.limit
            )
            return ListReply(request_id=asked.request_id, page=page), {"threads": len(page.threads)}

        return await _of_own_source(asked, request, read)


@dataclass(frozen=True, slots=True)
class ShowDoor:
    """Answers ``POST /admin/v1/threads/show``."""

    threads: ThreadsOf
    route: str = "admin-threads-show"
    model: type[ShowRequest] = ShowRequest
    actions: tuple[AdminAction, ...] = (AdminAction.READ_THREADS,)

    def actions_of(self, _: ShowRequest) -> tuple[AdminAction, ...]:
        return self.actions

    async def answer(self, asked: Asked, request: ShowRequest) -> Answered:
        def read() -> tuple[Wire, Told]:
            shown = self.threads(asked.snapshot).show(request.source, request.thread)
            told: Told = {"thread": str(shown.thread_id), "revision": shown.revision}
            return ShowReply(request_id=asked.request_id, shown=shown), told

        return await _of_own_source(asked, request, read)


@dataclass(frozen=True, slots=True)
class HistoryDoor:
    """Answers ``POST /admin/v1/threads/history``."""

    threads: ThreadsOf
    route: str = "admin-threads-history"
    model: type[HistoryRequest] = HistoryRequest
    actions: tuple[AdminAction, ...] = (AdminAction.READ_THREADS,)

    def actions_of(self, _: HistoryRequest) -> tuple[AdminAction, ...]:
        return self.actions

    async def answer(self, asked: Asked, request: HistoryRequest) -> Answered:
        def read() -> tuple[Wire, Told]:
            history = self.threads(asked.snapshot).history(
                request.source, request.thread, before=request.before, limit=request.limit
            )
            told: Told = {"thread": str(history.thread_id), "revisions": len(history.revisions)}
            return HistoryReply(request_id=asked.request_id, history=history), told

        return await _of_own_source(asked, request, read)


@dataclass(frozen=True, slots=True)
class EditDoor:
    """Answers ``POST /admin/v1/threads/edit``."""

    threads: ThreadsOf
    route: str = "admin-threads-edit"
    model: type[EditRequest] = EditRequest
    actions: tuple[AdminAction, ...] = (AdminAction.EDIT_THREADS,)

    def actions_of(self, _: EditRequest) -> tuple[AdminAction, ...]:
        return self.actions

    async def answer(self, asked: Asked, request: EditRequest) -> Answered:
        def write() -> tuple[Wire, Told]:
            edited = self.threads(asked.snapshot).edit(
                request.source,
                request.edit,
                author=asked.principal.subject_id,
                reason=request.reason,
            )
            told: Told = {
                "thread": str(edited.thread_id),
                "revision": edited.revision,
                "changes": len(request.edit.changes),
                "waiting": len(edited.waiting),
            }
            return EditReply(request_id=asked.request_id, edited=edited), told

        return await _of_own_source(asked, request, write)


_ANSWERS: Final = frozenset({Code.NOT_FOUND, Code.BAD_BODY, Code.REVISION_CONFLICT})
"""Refusals that are answers to what was asked: they are journaled, then sent."""


async def _of_own_source(
    asked: Asked, request: OfSource, work: Callable[[], tuple[Wire, Told]]
) -> Answered:
    """What ``work`` gives, off the event loop, if the source is the operator's own."""
    told: dict[str, str | int] = {"source": request.source}
    if request.source not in asked.principal.claims.get("sources", frozenset()):
        refusal = Refusal(
            Code.FORBIDDEN, "the source is none of this operator's", why=Why.FOREIGN_SOURCE
        )
        return Answered(refusal, told | {"refused": str(refusal.code)})
    try:
        reply, more = await asyncio.to_thread(work)
    except Refusal as refusal:
        if refusal.code not in _ANSWERS:
            raise
        return Answered(refusal, told | {"refused": str(refusal.code)})
    return Answered(reply, told | dict(more))
