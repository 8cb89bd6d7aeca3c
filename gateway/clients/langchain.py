"""A LangChain retriever over a gateway (the extra ``langchain``).

    retriever = GatewayRetriever(url="https://gateway.example", token=my_token)
    documents = retriever.invoke("What happens when a refund webhook fails?")

Nothing that a chain passes on (filters, search arguments) reaches the gateway: an argument that
is not known is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, PrivateAttr

from gateway.clients.api import Gateway, Passage


class GatewayRetriever(BaseRetriever):  # type: ignore[misc]  # the library is not in our lock
    """Documents with their citation as metadata; the fields are those of ``api.Gateway``.

    ``invoke`` and ``ainvoke`` raise GatewayRefused, and httpx.HTTPError without an answer.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    url: str
    token: Callable[[], str] = Field(exclude=True, repr=False)
    k: int = 10
    audience: str | None = None
    task_scope: str | None = None
    purpose: str | None = None
    timeout_s: float = 30.0
    _gateway: Gateway = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._gateway = Gateway(
            url=self.url,
            token=self.token,
            k=self.k,
            audience=self.audience,
            task_scope=self.task_scope,
            purpose=self.purpose,
            timeout_s=self.timeout_s,
        )

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - the library's own name
        **unknown: object,
    ) -> list[Document]:
        _refuse(unknown)
        return [_document(one) for one in self._gateway.retrieve(query)]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002 - the library's own name
        **unknown: object,
    ) -> list[Document]:
        _refuse(unknown)
        return [_document(one) for one in await self._gateway.aretrieve(query)]


def _refuse(unknown: Mapping[str, object]) -> None:
    # without a place for them the library drops them, and who passed a filter believes in it
    if unknown:
        raise TypeError(f"the gateway takes no {', '.join(sorted(unknown))}")


def _document(passage: Passage) -> Document:
    return Document(
        id=passage.metadata["unit_id"],
        page_content=passage.text,
        metadata={**passage.metadata, "score": passage.score},
    )
