"""Answers one request of the gateway: thread first, vectors as the fallback.

Laws
    * One request reads in one transaction, under the scope that policy gave its subject.
    * What is returned is a function of what the caller may see, and of nothing else.
    * A store that is needed and does not answer makes a refusal. Only an answer that needs no
      vectors is served without the vector store, in full, and says so (``degraded``).
    * Time is bounded: when the request's is up, the work is cancelled and refused.
    * A caller learns a code. The reason stays in the log, without values of the corpus.

Source: architecture sections 4 and 6, seed section 4.1.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypedDict
from uuid import UUID, uuid4

from policies.snapshot import Snapshot
from policies.thresholds import Thresholds
from retrieval.consumer import answers as consumer
from retrieval.context_pack import FallbackSignal
from retrieval.contract import (
    Answer,
    Ask,
    CheckRequest,
    Discrepancy,
    FeedbackRequest,
    FeedbackResponse,
    Governed,
    Phase,
    Response,
    RetrieveRequest,
    SubjectWire,
    UnitResponse,
    UnitsRequest,
)
from retrieval.errors import (
    DeadlineExceeded,
    MalformedAsk,
    NotFound,
    RetrievalError,
    StoreUnavailable,
)
from retrieval.fallback.trigger import Reason, fallback_reason
from retrieval.fallback.turns import whole_question
from retrieval.pack.annotate import applied_scope
from retrieval.pack.assemble import (
    Budget,
    Resolved,
    fallback_pack,
    governed_of,
    thread_pack,
    unit_ref,
)
from retrieval.pack.gather import gather, permitted_edges, relate
from retrieval.settings import K_DEFAULT, ServiceSettings
from retrieval.signals.ledger import Delivery, Ledger
from retrieval.stores.ports import TruthReader
from retrieval.stores.postgres import PostgresTruth
from retrieval.telemetry import Timings
from retrieval.threads.rank import chosen, standings
from retrieval.threads.resolve import Candidate, Resolver, by_reference
from retrieval.vectors import VectorSide, VectorState

log = logging.getLogger(__name__)


class HealthReport(TypedDict):
    """For operators: no content, no addresses, no names of callers."""

    ready: bool
    postgres: str
    vectors: VectorState
    policy_digest: str


@dataclass(frozen=True, slots=True)
class _Call:
    """One request on its way: what was asked, what it reads from, what it found out."""

    ask: Ask
    reader: TruthReader
    exclude: frozenset[UUID]
    thresholds: Thresholds
    timings: Timings
    discrepancies: list[Discrepancy] = field(default_factory=list)
    weak: list[UUID] = field(default_factory=list)


class Retrieval:
    """The retrieval service. Obtained from ``retrieval.app.open_retrieval``; safe for
    concurrent requests."""

    def __init__(
        self,
        *,
        settings: ServiceSettings,
        snapshot: Callable[[], Snapshot],
        truth: PostgresTruth,
        vectors: VectorSide,
        ledger: Ledger,
    ) -> None:
        self.settings: Final = settings
        self._snapshot: Final = snapshot
        self._truth: Final = truth
        self._vectors: Final = vectors
        self._ledger: Final = ledger
        self._resolver: Final = Resolver(
            settings.resolution, model=vectors.model, embedded=vectors.embedded
        )

    async def ask(self, ask: Ask) -> Answer:
        """The answer to one request; refusals are answers too, nothing is raised.

        Cost: one transaction of about ten short queries and one insert; a fallback adds one
        embedding and two exact searches.
        """
        timings = Timings()
        seconds = min(max(ask.deadline_ms, 0), self.settings.deadline_ms_max) / 1000
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                answer = await self._answer(ask, timings)
        except RetrievalError as refusal:
            if refusal.status >= 500:
                log.warning("request %s refused: %s", ask.request_id, refusal)
            answer = Answer(status=refusal.status, code=refusal.code)
        except Exception as fault:  # noqa: BLE001 - mapped to a refusal; its text may hold content
            refused = DeadlineExceeded if clock.expired() else RetrievalError
            frames = "".join(traceback.format_tb(fault.__traceback__))
            log.error("request %s failed: %s\n%s", ask.request_id, type(fault).__name__, frames)
            answer = Answer(status=refused.status, code=refused.code)
        return answer.model_copy(update={"timings": timings.wire()})

    async def health(self) -> HealthReport:
        """Which stores answer, how far the index is behind, and the policy in force here.

        ``ready`` is true while threads can be served: the record of truth answers.
        """
        postgres, vectors = await asyncio.gather(self._truth_state(), self._vectors.state())
        return HealthReport(
            ready=postgres == "up",
            postgres=postgres,
            vectors=vectors,
            policy_digest=self._snapshot().digest,
        )

    async def units_of_classes(
        self, subject: SubjectWire, classes: Sequence[Collection[int]], *, limit: int
    ) -> list[Sequence[UUID]]:
        """For each list of classes the ids of units of them that the subject may read.

        No title and no text is read. Raises RetrievalError (PolicyMismatch among them).
        Cost: one transaction, one query a list; some 10 ms for 2,000 of 100,000 units.
        """
        async with self._truth.reading(subject, self._snapshot()) as reader:
            return [await reader.units_of_classes(one, limit=limit) for one in classes]

    # --- one request ----------------------------------------------------------------------

    async def _answer(self, ask: Ask, timings: Timings) -> Answer:
        if ask.operation == "withheld":
            return await self._withheld(ask)
        operation = self._operation(ask)
        with timings.phase(Phase.TOTAL):
            snapshot = self._snapshot()
            async with self._truth.reading(ask.subject, snapshot) as reader:
                excluded = frozenset(ask.exclude)
                call = _Call(ask, reader, excluded, snapshot.thresholds, timings)
                try:
                    answer = await operation(call)
                except NotFound as hidden:  # what was found out on the way goes along
                    answer = Answer(status=hidden.status, code=hidden.code)
                answer = _with_leaks(answer, reader.leaked)
            if answer.response is not None:
                answer_id = await self._ledger.delivered(ask, answer.response, weak=call.weak)
                answer = answer.model_copy(update={"answer_id": answer_id})
            return answer

    async def _withheld(self, ask: Ask) -> Answer:
        """Nothing is read, so it is written down whatever policy is in force by now."""
        try:
            answer_id = UUID(ask.reference or "")
        except ValueError:
            raise MalformedAsk("operation `withheld` lacks the answer that it is about") from None
        await self._ledger.withheld(ask, answer_id)
        return Answer(status=200)

    def _operation(self, ask: Ask) -> Callable[[_Call], Awaitable[Answer]]:
        """What is to be done; an envelope without what its operation needs is ours to mend."""
        match ask:
            case Ask(operation="retrieve", request=RetrieveRequest()):
                return self._retrieve
            case Ask(operation="pack", reference=str()):
                return self._pack
            case Ask(operation="unit", reference=str()):
                return self._unit
            case Ask(operation="delivery", reference=str() as pack_id):
                return partial(self._delivery, pack_id)
            case Ask(operation="check", check=CheckRequest() as answer):
                return partial(self._check, answer)
            case Ask(operation="feedback", feedback=FeedbackRequest() as said):
                return partial(self._feedback, said)
            case Ask(operation="units", units=UnitsRequest() as page):
                return partial(self._units, page)
        raise MalformedAsk(f"operation `{ask.operation}` lacks what it is about")

    async def _unit(self, call: _Call) -> Answer:
        unit = await call.reader.unit_by_address(call.ask.reference or "")
        if unit is None or unit.id in call.exclude:
            raise NotFound("no unit of that address for this caller")
        return Answer(
            status=200,
            unit=UnitResponse(
                unit=unit_ref(unit), audience_scope_applied=applied_scope(call.ask.subject)
            ),
            governed=(Governed(id=unit.id, sort="unit"),),
        )

    async def _pack(self, call: _Call) -> Answer:
        candidate = await by_reference(call.reader, call.ask.reference or "")
        if candidate is None:
            raise NotFound("no thread of that reference for this caller")
        return await self._from_threads(call, [candidate], k=K_DEFAULT)

    async def _delivery(self, pack_id: str, call: _Call) -> Answer:
        return await consumer.delivery(call.reader, pack_id, call.ask.subject, exclude=call.exclude)

    async def _check(self, answer: CheckRequest, call: _Call) -> Answer:
        return await consumer.check(call.reader, answer, call.ask.subject, exclude=call.exclude)

    async def _feedback(self, said: FeedbackRequest, call: _Call) -> Answer:
        row = await consumer.spoken_of(call.reader, said, call.ask.subject)
        about = Delivery(
            pack_id=row.pack_id,
            query_id=row.query_id,
            audience=row.audience,
            profile=row.profile,
            mode=row.mode,
            query_hmac=row.query_hmac,
            thread_id=row.thread_id,
            delivered_at=row.delivered_at,
        )
        await self._ledger.said(call.ask, about, said.kind, said.unit_ids)
        return Answer(status=200, feedback=FeedbackResponse())

    async def _units(self, page: UnitsRequest, call: _Call) -> Answer:
        return await consumer.listing(
            call.reader,
            page,
            call.ask.subject,
            exclude=call.exclude,
            text_bytes_max=self.settings.pack.text_bytes_max,
        )

    async def _retrieve(self, call: _Call) -> Answer:
        request = call.ask.request
        if request is None:
            raise MalformedAsk("operation `retrieve` lacks its request")
        if request.mode == "raw":
            return await self._from_vectors(call, request, "raw_requested")
        with call.timings.phase(Phase.RESOLVE):
            resolution = await self._resolver.resolve(
                call.reader,
                query=request.query,
                reference=request.thread,
                thresholds=call.thresholds,
                exclude=call.exclude,
            )
        if resolution.explicit:
            return await self._from_threads(call, resolution.candidates, k=request.k)
        with call.timings.phase(Phase.RANK):
            standing = await standings(call.reader, resolution.candidates, exclude=call.exclude)
        reason = fallback_reason([one.weak(call.thresholds) for one in standing])
        if reason is not None:
            call.weak.extend(one.candidate.thread.id for one in standing)
            return await self._from_vectors(call, request, reason)
        best = chosen(standing, call.thresholds)
        return await self._from_threads(call, best, k=request.k, degraded=resolution.degraded)

    async def _from_threads(
        self, call: _Call, threads: Sequence[Candidate], *, k: int, degraded: bool = False
    ) -> Answer:
        """Packs of these threads, in order. Needs no vectors, and says when they are down."""
        budget = self._budget(call)
        vectors_up = asyncio.create_task(self._vectors.answers())
        try:
            with call.timings.phase(Phase.ASSEMBLE):
                gathered = await gather(
                    call.reader,
                    [candidate.thread for candidate in threads],
                    exclude=call.exclude,
                    settings=self.settings.pack,
                )
                packs = tuple(
                    thread_pack(
                        material,
                        Resolved(candidate.score, candidate.signals),
                        subject=call.ask.subject,
                        k=k,
                        settings=self.settings.pack,
                        thresholds=call.thresholds,
                        budget=budget,
                        pack_id=uuid4(),
                    )
                    for material, candidate in zip(gathered.materials, threads, strict=True)
                )
            call.discrepancies.extend(gathered.discrepancies)
            response = Response(
                mode="single" if len(packs) == 1 else "multi",
                packs=packs,
                degraded=() if await vectors_up and not degraded else ("vector",),
            )
        finally:
            vectors_up.cancel()
        return _answered(call, response)

    async def _from_vectors(self, call: _Call, request: RetrieveRequest, reason: Reason) -> Answer:
        """The fallback. Raises IndexUnavailable rather than answer with less."""
        with call.timings.phase(Phase.SEARCH):
            found = await self._vectors.search(
                whole_question(request), call.reader, k=request.k, exclude=call.exclude
            )
        call.discrepancies.extend(found.discrepancies)
        if not found.hits:
            return _answered(call, Response(mode="none", packs=()))
        with call.timings.phase(Phase.ASSEMBLE):
            shown = [hit.unit.id for hit in found.hits]
            edges = await permitted_edges(call.reader, shown, exclude=call.exclude)
            ends = {end for edge in edges for end in (edge.src, edge.dst)}
            hydrated = await call.reader.hydrate(
                ends, exclude=call.exclude, offered_by="thread_index"
            )
            call.discrepancies.extend(hydrated.discrepancies)
            pack = fallback_pack(
                found.hits,
                relate(edges, hydrated.units, touching=shown),
                FallbackSignal(reason=reason, shortfall=request.k - len(found.hits)),
                subject=call.ask.subject,
                settings=self.settings.pack,
                budget=self._budget(call),
                pack_id=uuid4(),
            )
        return _answered(call, Response(mode="fallback", packs=(pack,)))

    def _budget(self, call: _Call) -> Budget:
        """The bytes of text that the whole answer may hold: the caller's wish, within bounds."""
        request, most = call.ask.request, self.settings.pack.text_bytes_max
        wish = request.max_bytes if request is not None else None
        return Budget(most if wish is None else min(wish, most))

    async def _truth_state(self) -> str:
        try:
            await self._truth.ready()
        except StoreUnavailable:
            return "down"
        return "up"


def _with_leaks(answer: Answer, leaked: Collection[Discrepancy]) -> Answer:
    """The envelope with what the reader itself saw, each unit once."""
    if not leaked:
        return answer
    once = {found.unit_id: found for found in (*answer.discrepancies, *leaked)}
    return answer.model_copy(
        update={"discrepancies": tuple(once[unit_id] for unit_id in sorted(once))}
    )


def _answered(call: _Call, response: Response) -> Answer:
    """The envelope of a response: every governed id, and each discrepancy once."""
    once = {found.unit_id: found for found in reversed(call.discrepancies)}
    return Answer(
        status=200,
        response=response,
        governed=governed_of(response),
        discrepancies=tuple(once[unit_id] for unit_id in sorted(once)),
    )
