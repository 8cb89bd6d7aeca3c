"""What of an answer is its caller's: the one part that its question asked for, written anew.

The private envelope between gateway and retrieval ends here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import orjson
from pydantic import BaseModel

from gateway.errors import Code, Refusal
from retrieval.contract import Answer, Ask, CheckResponse, UnitPage, UnitsResponse
from retrieval.wire import AppliedScope

Part = Literal["response", "unit", "delivery", "check", "feedback", "page"]
PARTS: Final[Mapping[str, Part]] = {
    "retrieve": "response",
    "pack": "response",
    "unit": "unit",
    "delivery": "delivery",
    "check": "check",
    "feedback": "feedback",
    "units": "page",
}
"""The part of an answer that each operation is answered with."""


def misshapen(answer: Answer, ask: Ask) -> str:
    """Why an answer is of another shape than its question's; empty when it is not."""
    wanted = {PARTS[ask.operation]} if answer.status == 200 else set()
    given = {part for part in PARTS.values() if getattr(answer, part) is not None}
    if given != wanted:
        return "the answer has another shape"
    if (answer.response is None) != (answer.answer_id is None):
        return "an answer that could not be called back"
    if answer.check is not None and not _answers_claims(answer.check, ask):
        return "other claims were judged"
    if (
        answer.delivery is not None
        and str(answer.delivery.pack_id) != (ask.reference or "").lower()
    ):
        return "another pack was found"
    if answer.page is not None and not _goes_on(answer.page):
        return "a page goes on behind something else than its end"
    return ""


def scopes_of(answer: Answer) -> Iterable[AppliedScope]:
    """The scopes that an answer says it was made under."""
    for part in (answer.unit, answer.delivery, answer.check, answer.page):
        if part is not None:
            yield part.audience_scope_applied
    for pack in answer.response.packs if answer.response is not None else ():
        yield pack.audience_scope_applied


def body_of(answer: Answer, cursor: Callable[[str], str]) -> bytes:
    """The public part as JSON; ``cursor`` closes the address that the next page begins behind.

    Raises: Refusal ``retrieval_unavailable`` for an answer without content.
    """
    public: BaseModel | None = (
        answer.response or answer.unit or answer.delivery or answer.check or answer.feedback
    )
    if answer.page is not None:
        after = answer.page.next_after
        public = UnitsResponse(
            units=answer.page.units,
            next_cursor=None if after is None else cursor(after),
            audience_scope_applied=answer.page.audience_scope_applied,
        )
    if public is None:
        raise Refusal(Code.RETRIEVAL_UNAVAILABLE, "an answer without content")
    return orjson.dumps(public.model_dump(mode="json"))


def _answers_claims(found: CheckResponse, ask: Ask) -> bool:
    claims = ask.check.claims if ask.check is not None else ()
    return [len(one.citations) for one in found.claims] == [len(one.citations) for one in claims]


def _goes_on(page: UnitPage) -> bool:
    last = page.units[-1].canonical_address if page.units else None
    return page.next_after is None or page.next_after == last
