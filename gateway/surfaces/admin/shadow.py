"""What a candidate decides otherwise, for operators without the database's secret.

The numbers are told as they were counted, with the files of the policies that they are about:
whoever asks makes the report of them, and a gateway that serves compiles nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from gateway.errors import Code, Refusal
from gateway.shadow import results
from gateway.shadow.keeping import COMPARED, FAULT
from gateway.shadow.results import Results
from gateway.surfaces.admin.asked import Answered, Asked
from gateway.surfaces.admin.stores import Station, StoreDown
from gateway.surfaces.admin.wire import Digest, Question, Wire
from policies.kinds import AdminAction

SHADOW_PATH: Final = "/admin/v1/policy/shadow"
ROUTE: Final = "admin-policy-shadow"

Files = Mapping[str, str]
AnyRow = TypeVar("AnyRow", bound=Wire)


class ShadowRequest(Question):
    """Asks about the run that was begun last."""


class RunRow(Wire):
    """A candidate and its run; the columns of ``results.NEWEST``, in their order."""

    run: int
    digest: Digest
    files: Files
    sample: int
    started_at: datetime
    started_by: str
    reason: str
    ended_at: datetime | None


class CountRow(Wire):
    """One thing counted; the columns of ``results.COUNTS``, in their order."""

    live_digest: Digest
    outcome: str
    point: str
    profile: str
    asked: str
    live: str
    candidate: str
    live_rules: tuple[str, ...]
    candidate_rules: tuple[str, ...]
    class_id: int
    consent: bool
    seen: int


class SampleRow(Wire):
    """One sampled request; the columns of ``results.SAMPLES``, in their order."""

    live_digest: Digest
    point: str
    outcome: str
    profile: str
    route: str
    class_ids: tuple[int, ...]


class ShadowReply(Wire):
    """``beside`` is the policy that is live now; ``policies`` are the files of live ones that the
    database has kept, by digest."""

    request_id: str
    run: RunRow
    counts: tuple[CountRow, ...]
    samples: tuple[SampleRow, ...]
    beside: str
    policies: Mapping[Digest, Files]

    def results(self) -> Results:
        """What one who reads the database would get. Raises: results.NotACandidate."""
        return Results(
            results.run_of(_plain(self.run)),
            results.tallies_of(map(_plain, self.counts), map(_plain, self.samples)),
            self.beside,
            results.policies_of(self.policies.items()),
        )


def _plain(row: Wire) -> Sequence[Any]:
    return tuple(dict(row).values())


class ShadowStore(Station):
    """Reads runs and counts under ``gw_watch``."""

    def __init__(self, conninfo: str, *, wait_s: float = 2.0) -> None:
        super().__init__(conninfo, name="shadow", wait_s=wait_s)

    async def newest(self, request_id: str) -> tuple[str, ShadowReply | None]:
        """The active revision, and the newest run as it is sent. Raises: StoreDown."""
        begun = await self.rows(results.NEWEST, {})
        beside = "".join(row[0] for row in await self.rows(results.LIVE, {}))
        if not begun:
            return beside, None
        run = _row(RunRow, begun[0])
        counts = [_row(CountRow, one) for one in await self._of(run, results.COUNTS)]
        samples = [_row(SampleRow, one) for one in await self._of(run, results.SAMPLES)]
        wanted = sorted({beside, *(one.live_digest for one in counts)})
        kept = await self.rows(results.RELEASES, {"digests": wanted})
        reply = ShadowReply(
            request_id=request_id,
            run=run,
            counts=tuple(counts),
            samples=tuple(samples),
            beside=beside,
            policies=dict(kept),
        )
        return beside, reply

    async def _of(self, run: RunRow, query: str) -> list[tuple[Any, ...]]:
        return await self.rows(query, {"run": run.run})


def _row(model: type[AnyRow], row: Sequence[Any]) -> AnyRow:
    return model.model_validate(dict(zip(model.model_fields, row, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowNumbers:
    """Answers ``POST /admin/v1/policy/shadow``."""

    store: ShadowStore
    route: str = ROUTE
    model: type[ShadowRequest] = ShadowRequest
    actions: tuple[AdminAction, ...] = (AdminAction.READ_SHADOW,)

    def actions_of(self, request: ShadowRequest) -> tuple[AdminAction, ...]:  # noqa: ARG002
        return self.actions

    async def answer(self, asked: Asked, request: ShadowRequest) -> Answered:  # noqa: ARG002
        """Raises: Refusal ``policy_changed`` or ``retrieval_unavailable``."""
        try:
            digest, reply = await self.store.newest(asked.request_id)
        except StoreDown as error:
            raise Refusal(Code.RETRIEVAL_UNAVAILABLE, str(error)) from error
        asked.require_enforced(digest)
        if reply is None:
            return Answered(Refusal(Code.NOT_FOUND, "no candidate was ever tried"), {"runs": 0})
        told = {"run": reply.run.run, "compared": 0, "disagreed": 0}
        for one in reply.counts:
            if one.outcome != FAULT:
                told["compared" if one.outcome == COMPARED else "disagreed"] += one.seen
        return Answered(reply, told, about=reply.run.digest)
