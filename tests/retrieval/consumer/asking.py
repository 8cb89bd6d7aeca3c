"""Questions of a consumer about a pack that it got."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

from retrieval.context_pack import Pack
from retrieval.contract import (
    Answer,
    CheckRequest,
    CheckResponse,
    DeliveryResponse,
    FeedbackRequest,
    SubjectWire,
    UnitPage,
    UnitsRequest,
)
from tests.retrieval.stage import Stage, packs

Who = str | SubjectWire
QUESTION = "refunds and returns"


async def got(stage: Stage, who: Who = "customer", query: str = QUESTION) -> Pack:
    """A pack that was delivered just now."""
    return packs(await stage.retrieve(query, who))[0]


def cite(pack: Pack | UUID, address: str, revision: int = 1) -> dict[str, object]:
    pack_id = pack.pack_id if isinstance(pack, Pack) else pack
    return {"pack_id": pack_id, "canonical_address": address, "source_revision": revision}


def claim(*citations: dict[str, object], flagged: bool = False) -> dict[str, object]:
    return {"citations": citations, "flagged": flagged}


async def check(
    stage: Stage,
    claims: Iterable[dict[str, object]],
    who: Who = "customer",
    *,
    surfaced: Iterable[UUID] = (),
    exclude: Iterable[UUID] = (),
) -> Answer:
    request = CheckRequest.model_validate({"claims": tuple(claims), "surfaced": tuple(surfaced)})
    return await stage.retrieval.ask(
        stage.envelope("check", who, check=request, exclude=tuple(exclude))
    )


async def say(
    stage: Stage, pack_id: UUID, kind: str = "sufficient", who: Who = "customer", *units: UUID
) -> Answer:
    said = FeedbackRequest.model_validate({"pack_id": pack_id, "kind": kind, "unit_ids": units})
    return await stage.retrieval.ask(stage.envelope("feedback", who, feedback=said))


async def delivery(stage: Stage, pack_id: UUID | str, who: Who = "customer") -> Answer:
    return await stage.retrieval.ask(stage.envelope("delivery", who, reference=str(pack_id)))


async def units(stage: Stage, who: Who = "customer", **page: object) -> Answer:
    wanted = UnitsRequest.model_validate(page)
    return await stage.retrieval.ask(stage.envelope("units", who, units=wanted))


def verdict(answer: Answer) -> CheckResponse:
    assert answer.check is not None, answer
    return answer.check


def listed(answer: Answer) -> UnitPage:
    assert answer.page is not None, answer
    return answer.page


def references(answer: Answer) -> DeliveryResponse:
    assert answer.delivery is not None, answer
    return answer.delivery


STRANGE = uuid4()
"""An id of nothing."""
