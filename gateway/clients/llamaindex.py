"""A LlamaIndex retriever over a gateway (the extra ``llamaindex``).

retriever = GatewayRetriever(Gateway(url="https://gateway.example", token=my_token))
nodes = retriever.retrieve("What happens when a refund webhook fails?")
"""

from __future__ import annotations

from typing import Final

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from gateway.clients.api import Gateway, Passage

_READ: Final = frozenset({"title", "canonical_address", "source_revision", "suspect"})
"""What a model has to read to cite and to warn."""


class GatewayRetriever(BaseRetriever):  # type: ignore[misc]  # the library is not in our lock
    """Nodes with their citation as metadata; a model reads what it needs to cite, no more.

    ``retrieve`` and ``aretrieve`` raise GatewayRefused, and httpx.HTTPError without an answer.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in self._gateway.retrieve(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in await self._gateway.aretrieve(query_bundle.query_str)]


def _node(passage: Passage) -> NodeWithScore:
    names = list(passage.metadata)
    node = TextNode(
        id_=passage.metadata["unit_id"],
        text=passage.text,
        metadata=passage.metadata,
        excluded_embed_metadata_keys=names,
        excluded_llm_metadata_keys=[name for name in names if name not in _READ],
    )
    return NodeWithScore(node=node, score=passage.score)
