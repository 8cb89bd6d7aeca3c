"""Errors of the retrieval house: what a room raises, and the one mapping to an answer.

Laws
    * A store's own exception never leaves its adapter: it becomes one of these there.
    * Every one of them is a refusal. None may be turned into a thinner answer.
    * The text is for operators. A caller gets ``code`` and a request id, nothing else.

Grammar of a message: lower case, no full stop, the offending value in backticks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Store(StrEnum):
    """The parts that retrieval cannot answer without, by the name operators know."""

    POSTGRES = "postgres"
    QDRANT = "qdrant"
    EMBEDDER = "embedder"


class RetrievalError(Exception):
    """Base of everything this house raises; ``status`` and ``code`` are what a caller gets."""

    status: ClassVar[int] = 503
    code: ClassVar[str] = "retrieval_unavailable"


class StoreUnavailable(RetrievalError):
    """The record of truth did not answer. Everything guarded is refused."""

    code = "store_unavailable"

    def __init__(self, store: Store, reason: str) -> None:
        self.store = store
        super().__init__(f"`{store}` is unavailable: {reason}")


class IndexUnavailable(StoreUnavailable):
    """The vector side (index or embedder) did not answer.

    Only what needs no vectors may still be served; a fallback without them is refused.
    """

    code = "index_unavailable"


class PolicyMismatch(RetrievalError):
    """The database enforces another revision than the request was placed under.

    Also raised when the profile has no grant row. The gateway places the request again
    once; it must never be read as an empty result.
    """

    status = 409
    code = "policy_mismatch"


class DeadlineExceeded(RetrievalError):
    """The time that the request had left is used up."""

    code = "deadline_exceeded"


class NotFound(RetrievalError):
    """Hidden or absent; nothing tells which, and the text must not try."""

    status = 404
    code = "not_found"


class NotDelivered(NotFound):
    """No such pack of this subject's, or something that was not in it; nothing tells which."""

    code = "not_delivered"


class MalformedAsk(RetrievalError):
    """The gateway sent an envelope that contradicts itself (a fault of ours, not a caller's)."""

    status = 400
    code = "malformed_ask"
