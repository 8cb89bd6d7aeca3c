"""Judged questions put to retrieval one after another, and what came back in which order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from retrieval.contract import Response, RetrieveRequest
from retrieval.evaluate.judged import JudgedSet
from retrieval.evaluate.measures import CUT
from retrieval.evaluate.report import Outcome

Retrieve = Callable[[RetrieveRequest], Awaitable[Response]]
"""Whoever answers. It raises for a refusal: a question without an answer has no figure."""
OnProgress = Callable[[int, int], None]
"""Called with (questions done, questions in all)."""


async def ask_all(
    judged: JudgedSet,
    retrieve: Retrieve,
    *,
    names: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Every question's units, in the order in which a consumer is told to read them.

    ``names`` maps canonical addresses to the names that the judgements use (none: the same).
    Cost: one retrieval a question.
    """
    ranked, by_thread = [], []
    for number, question in enumerate(judged.questions, 1):
        request = RetrieveRequest(query=question.text, turns=question.turns, k=CUT)
        response = await retrieve(request)
        found = _addresses(response)
        ranked.append([names.get(one, one) if names else one for one in found])
        by_thread.append(response.mode in ("single", "multi"))
        if on_progress is not None:
            on_progress(number, len(judged.questions))
    return Outcome(judged, ranked, by_thread)


def _addresses(response: Response) -> list[str]:
    steps = (step for pack in response.packs for step in pack.recommended_reading_order)
    return list(dict.fromkeys(step.canonical_address for step in steps))
