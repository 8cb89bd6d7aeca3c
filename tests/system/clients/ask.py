"""Asks a gateway through a library, in the environment that has it; prints what came as JSON.

python -m tests.system.clients.ask langchain|llamaindex URL QUERY   (the token: standard input)
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from gateway.clients.api import Gateway, GatewayRefused

Found = list[dict[str, Any]]


def by_langchain(url: str, token: Callable[[], str], query: str) -> list[Found]:
    from langchain_core.documents import Document

    from gateway.clients.langchain import GatewayRetriever

    try:
        GatewayRetriever(url=url, token=token, filter={"visibility": "restricted"})
    except ValueError:
        pass
    else:
        raise AssertionError("a filter was taken")
    retriever = GatewayRetriever(url=url, token=token)
    assert token() not in repr(retriever)
    filtered: tuple[Callable[[], object], ...] = (
        lambda: retriever.invoke(query, filter={"visibility": "public"}),
        lambda: asyncio.run(retriever.ainvoke(query, filter={"visibility": "public"})),
    )
    for asked in filtered:
        try:
            asked()
        except TypeError:
            continue
        raise AssertionError("a filter was passed over")

    def plain(documents: list[Document]) -> Found:
        return [
            {"id": one.id, "text": one.page_content, "metadata": one.metadata} for one in documents
        ]

    return [plain(retriever.invoke(query)), plain(asyncio.run(retriever.ainvoke(query)))]


def by_llamaindex(url: str, token: Callable[[], str], query: str) -> list[Found]:
    from llama_index.core.schema import MetadataMode, NodeWithScore

    from gateway.clients.llamaindex import GatewayRetriever

    retriever = GatewayRetriever(Gateway(url=url, token=token))

    def plain(nodes: list[NodeWithScore]) -> Found:
        for one in nodes:
            read = one.node.get_content(metadata_mode=MetadataMode.LLM)
            assert one.node.metadata["canonical_address"] in read
            assert one.node.metadata["pack_id"] not in read
        return [
            {
                "id": one.node.node_id,
                "text": one.node.text,
                "metadata": {**one.node.metadata, "score": one.score},
            }
            for one in nodes
        ]

    return [plain(retriever.retrieve(query)), plain(asyncio.run(retriever.aretrieve(query)))]


def main() -> None:
    library, url, query = sys.argv[1:]
    token = sys.stdin.read().strip()
    ask = {"langchain": by_langchain, "llamaindex": by_llamaindex}[library]
    found = ask(url, lambda: token, query)
    try:
        ask(url, lambda: "no token", query)
    except GatewayRefused as refused:
        print(json.dumps({"found": found, "refused": [refused.status, refused.code]}))


if __name__ == "__main__":
    main()
