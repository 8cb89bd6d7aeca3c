"""The material and the measure of ranking tests."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents, questions, and the one document that answers each question."""

    documents: dict[str, tuple[str, str]]
    queries: dict[str, str]
    answer: dict[str, str]


def xquad(shared_data: Path, language: str, *, every: int = 1) -> Collection:
    """XQuAD in one language: (title, text) by id; each ``every``-th question."""
    folder = shared_data / "retrieval-xquad"
    documents = {
        row["id"]: (row["title"], row["text"]) for row in lines(folder / f"docs.{language}.jsonl")
    }
    queries = {row["id"]: row["text"] for row in lines(folder / f"queries.{language}.jsonl")}
    chosen = dict(list(queries.items())[::every])
    answer = {row["query"]: row["doc"] for row in lines(folder / "qrels.jsonl")}
    return Collection(documents, chosen, answer)


def lines(path: Path) -> Iterable[dict[str, str]]:
    return map(json.loads, path.read_text("utf-8").splitlines())


def ndcg_at_10(ranked: Mapping[str, Sequence[str]], answer: Mapping[str, str]) -> float:
    """Mean over the questions; one relevant document each, so the ideal gain is 1."""
    gains = [
        1 / math.log2(found.index(answer[query]) + 2) if answer[query] in found[:10] else 0.0
        for query, found in ranked.items()
    ]
    return sum(gains) / len(gains)
