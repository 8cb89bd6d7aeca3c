"""The operators' surface over the parts of a running gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final
from uuid import UUID

from gateway.compose.data_path import Parts
from gateway.compose.database import station_dsn
from gateway.compose.owning import threads_of
from gateway.errors import Code, Refusal
from gateway.surfaces.admin.explaining import UnitExplanations
from gateway.surfaces.admin.live import LiveNumbers
from gateway.surfaces.admin.plane import PREFIX, AdminPlane
from gateway.surfaces.admin.shadow import SHADOW_PATH, ShadowNumbers, ShadowStore
from gateway.surfaces.admin.stores import LiveCounts, UnitLabels
from gateway.surfaces.admin.threads import thread_doors
from gateway.surfaces.admin.wire import EXPLAIN_PATH, LIVE_PATH
from gateway.telemetry.recorder import NotingJournal
from retrieval.contract import SubjectWire
from retrieval.errors import PolicyMismatch, RetrievalError
from retrieval.owners.ending import OverrideEnder
from retrieval.service import Retrieval
from retrieval.stores.roles import GUARD, LABEL, LIVE, WATCH

Asgi = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]],
    Awaitable[None],
]


class OwnSight:
    """What an operator may read itself, asked of retrieval."""

    def __init__(self, retrieval: Retrieval) -> None:
        self._retrieval: Final = retrieval

    async def units_of_classes(
        self, subject: SubjectWire, classes: Sequence[Sequence[int]], *, limit: int
    ) -> Sequence[Sequence[UUID]]:
        """See ``admin.live.Sight``."""
        try:
            return await self._retrieval.units_of_classes(subject, classes, limit=limit)
        except PolicyMismatch as error:
            raise Refusal(Code.POLICY_CHANGED, str(error)) from error
        except RetrievalError as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, str(error)) from error


async def opened(stack: AsyncExitStack, parts: Parts) -> AdminPlane:
    """The surface, with the small pools of its own; they are closed with ``stack``."""
    counts = LiveCounts(station_dsn(parts.stores, LIVE))
    labels = UnitLabels(station_dsn(parts.stores, GUARD))
    shadow = ShadowStore(station_dsn(parts.stores, WATCH))
    for store in (counts, labels, shadow):
        await store.open()
        stack.push_async_callback(store.close)
    ender = OverrideEnder(station_dsn(parts.stores, LABEL))
    ender.start()
    stack.push_async_callback(ender.stop)
    plane = parts.data_plane
    return AdminPlane(
        snapshots=plane.snapshots,
        authenticator=plane.authenticator,
        journal=parts.journal,
        doors={
            LIVE_PATH.encode(): LiveNumbers(
                counts=counts,
                sight=OwnSight(parts.retrieval),
                registry=parts.registry,
                journal=NotingJournal(parts.journal, parts.telemetry.recorder),
            ),
            EXPLAIN_PATH.encode(): UnitExplanations(labels=labels),
            SHADOW_PATH.encode(): ShadowNumbers(store=shadow),
            **thread_doors(lambda snapshot: threads_of(parts.stores, snapshot)),
        },
        sink=parts.telemetry.recorder,
        limits=plane.limits,
    )


def beside(operators: Asgi, others: Asgi) -> Asgi:
    """The second listener: what begins with ``/admin/`` is the operators', all else ``others``."""

    async def application(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        ours = scope["type"] == "http" and bytes(scope.get("raw_path") or b"").startswith(PREFIX)
        await (operators if ours else others)(scope, receive, send)

    return application
