"""Two corpora with questions of known answers, on real engines and real vectors.

``ferrowick``: the sample company, 24 threads that an analyst may see. ``peps``: 363 threads that an
employee may see. ``questions/*.jsonl``: what people ask again and again, each with the thread that
it is about; written from the corpora's texts before anything was fitted. ``near.jsonl``: about the
words of the sample company and not about it. Off topic are questions of two foreign sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from deploy.demo.expected import CORPUS
from policies.loader import parse_mapping
from policies.snapshot import Snapshot
from retrieval.contract import SubjectWire
from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.registry import embedder
from retrieval.ingest import run
from retrieval.stores.activation import activate
from retrieval.stores.ports import TruthReader
from retrieval.stores.roles import INGEST, dsn_for
from tests import peps
from tests.retrieval.world import subject
from tests.services import Database

QUESTIONS: Final = Path(__file__).parent / "questions"
DEMO: Final = CORPUS.parent


@dataclass(frozen=True, slots=True)
class Question:
    """``thread`` is empty for a question that no thread is about."""

    text: str
    thread: str = ""


def real_embedder(shared_data: Path) -> CachedEmbedder:
    """The default model; texts of both corpora come from files."""
    return CachedEmbedder(
        embedder(), sources=[shared_data / "vectors/use-multilingual-v3", DEMO / "vectors.npz"]
    )


def fill(name: str, database: Database, snapshot: Snapshot, shared_data: Path) -> SubjectWire:
    """Ingests a corpus; returns somebody who may see the threads that its questions are about."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        activate(connection, snapshot)
    if name == "peps":
        source, mapping = shared_data / "peps/peps.jsonl", peps.mapping(snapshot)
        who = subject("employee", snapshot)
    else:
        source = CORPUS
        mapping = parse_mapping(DEMO / "policy/mappings/ferrowick.yaml", snapshot.vocabulary)
        analyst = subject(
            "agent", snapshot, profiles=("agent:analyst",), tenants=("acme", "globex")
        )
        who = analyst.model_copy(update={"jurisdictions": ("eu", "vn")})
    dsn = dsn_for(INGEST, database.url, database.secret)
    run(source, mapping, dsn=dsn, embedder=real_embedder(shared_data))
    return who


def questions(name: str) -> list[Question]:
    """The questions of one file under ``questions``."""
    return [
        Question(row["text"], row.get("thread", "")) for row in _rows(QUESTIONS / f"{name}.jsonl")
    ]


def off_topic(shared_data: Path, *, every: int) -> list[Question]:
    """Each ``every``-th question of two sets about other things."""
    return [
        Question(row["text"])
        for source in ("threads-clapnq/queries.jsonl", "retrieval-xquad/queries.en.jsonl")
        for row in list(_rows(shared_data / source))[::every]
    ]


async def answerable(reader: TruthReader, asked: Sequence[Question]) -> list[Question]:
    """Those whose thread the reader may see: about another, nobody can be right."""
    return [
        question
        for question in asked
        if not question.thread or await reader.thread_by_reference(question.thread) is not None
    ]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())
