"""The owners' service over the stores of this gateway, for its listener and for commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from gateway.compose.database import station_dsn
from gateway.compose.stores import Stores
from gateway.errors import Code, Refusal
from policies.snapshot import Snapshot
from retrieval.owners.checking import check_health
from retrieval.owners.checks import Limits
from retrieval.owners.errors import OwnersRefused, Why
from retrieval.owners.service import Editor, Owners
from retrieval.owners.wire import Edited, History, Page, Shown, ThreadEdit
from retrieval.stores.roles import CURATE

__all__ = ["Editor", "Owners", "OwnersRefused", "Why", "check_threads", "owners_of", "threads_of"]

Answer = TypeVar("Answer")
_CODES: Final = {
    Why.BAD_EDIT: Code.BAD_BODY,
    Why.CONFLICT: Code.REVISION_CONFLICT,
    Why.POLICY_CHANGED: Code.POLICY_CHANGED,
    Why.UNKNOWN_THREAD: Code.NOT_FOUND,
    Why.STORE_UNAVAILABLE: Code.RETRIEVAL_UNAVAILABLE,
}


def owners_of(stores: Stores, snapshot: Snapshot) -> Owners:
    """The service under one policy."""
    return Owners(station_dsn(stores, CURATE), snapshot.vocabulary, snapshot.digest)


def check_threads(
    stores: Stores, source: str | None, *, stale_days: int, units_min: int, units_max: int
) -> Mapping[str, int]:
    """Parts of threads by verdict, judged now. Raises: OwnersRefused."""
    limits = Limits(timedelta(days=stale_days), units_min, units_max)
    return check_health(station_dsn(stores, CURATE), source=source, limits=limits)


def threads_of(stores: Stores, snapshot: Snapshot) -> _Threads:
    """The same for the operators' listener: it refuses by the gateway's own codes."""
    return _Threads(owners_of(stores, snapshot))


@dataclass(frozen=True, slots=True)
class _Threads:
    """See ``surfaces.admin.threads.Threads``."""

    owners: Owners

    def threads(self, source: str, *, after: str, limit: int) -> Page:
        return _answered(lambda: self.owners.threads(source, after=after, limit=limit))

    def show(self, source: str, address: str) -> Shown:
        return _answered(lambda: self.owners.show(source, address))

    def history(self, source: str, address: str, *, before: int, limit: int) -> History:
        return _answered(lambda: self.owners.history(source, address, before=before, limit=limit))

    def edit(self, source: str, edit: ThreadEdit, *, author: str, reason: str) -> Edited:
        return _answered(lambda: self.owners.edit(source, edit, Editor(author, reason)))


def _answered(work: Callable[[], Answer]) -> Answer:
    try:
        return work()
    except OwnersRefused as refused:
        raise Refusal(_CODES[refused.why], refused.reason) from refused
