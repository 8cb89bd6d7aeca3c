"""wardowl, in an environment of its own (``.venv-bench``): run as a script.

Reads one JSON object a line and answers each with one. Nothing of this project is imported here.

    {"url", "key", "dims"}                the vector engine to ask
    {"collection", "group", "vectors"}    searches it for a member of a group, timed
    {"documents", "group", "queries"}     these texts in an engine in this process, by vector, by
                                          keyword (the sidecar refuses it) and by both fused

Its own classes do all the work: ``PermissionedRetriever`` over ``QdrantBackend`` with
``MetadataACLAuthorizer``, the filter pushed down and every hit checked again, as by default.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from typing import Any

K = 10
VECTOR = "dense"


class Worker:
    """The engine that was named, and the library over it."""

    def __init__(self) -> None:
        self._wardowl = import_module("wardowl")
        self._backend = import_module("wardowl.backends.qdrant")
        self._qdrant = import_module("qdrant_client")
        self._client: Any = None
        self._dims = 0

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if "url" in message:
            return self._open(message["url"], message["key"], message["dims"])
        if "vectors" in message:
            return self._searched(message["collection"], message["group"], message["vectors"])
        return self._local(message["documents"], message["group"], message["queries"])

    def _open(self, url: str, key: str, dims: int) -> dict[str, Any]:
        # the key as a header and connections kept, as our own client of the sidecar has it
        limits = import_module("httpx").Limits(max_connections=8, max_keepalive_connections=8)
        self._client = self._qdrant.QdrantClient(
            url=url, headers={"api-key": key}, check_compatibility=False, limits=limits,
            trust_env=False, timeout=30,
        )  # fmt: skip
        self._dims = dims
        return {"version": metadata.version("wardowl"), "client": metadata.version("qdrant-client")}

    def _searched(
        self, collection: str, group: str, vectors: Sequence[Sequence[float]]
    ) -> dict[str, Any]:
        backend = self._backend.QdrantBackend(self._client, collection, vector_name=VECTOR)
        queries = [self._wardowl.Query(vector=vector) for vector in vectors]
        return self._asked(backend, group, queries)

    def _local(
        self, documents: Sequence[Any], group: str, queries: Sequence[Any]
    ) -> dict[str, Any]:
        client = self._qdrant.QdrantClient(":memory:")
        self._backend.create_collection(
            client, "local", self._dims, vector_name=VECTOR, text_search=True
        )
        dense, worded = (
            self._backend.QdrantBackend(
                client, "local", mode=mode, vector_name=VECTOR, text_search=True
            )
            for mode in ("vector", "keyword")
        )
        dense.add(
            [
                self._wardowl.Document(one["id"], one["text"], {"allowed_groups": one["groups"]})
                for one in documents
            ],
            [one["vector"] for one in documents],
        )
        asked = [self._wardowl.Query(text=one["text"], vector=one["vector"]) for one in queries]
        fused = import_module("wardowl.fusion").RankFusion(dense, worded)
        return {
            name: self._asked(backend, group, asked)["hits"]
            for name, backend in (("vector", dense), ("keyword", worded), ("fused", fused))
        }

    def _asked(self, backend: Any, group: str, queries: Sequence[Any]) -> dict[str, Any]:
        retriever = self._wardowl.PermissionedRetriever(
            backend, self._wardowl.MetadataACLAuthorizer()
        )
        subject = self._wardowl.Subject("bench", groups=[group])
        hits, times = [], []
        for query in queries:
            began = time.perf_counter()
            found = retriever.retrieve(query, subject, k=K)
            times.append((time.perf_counter() - began) * 1e3)
            hits.append([[hit.id, hit.score] for hit in found.hits])
        return {"hits": hits, "ms": times}


def main() -> None:
    worker = Worker()
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - told to the run, which leaves the library out
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
