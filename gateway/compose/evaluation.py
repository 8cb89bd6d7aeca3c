"""An evaluation as a whole: documents of a judged set in stores of their own, or a live gateway.

Laws
    * Documents that a set brings never touch the configured stores: they get an embedded pair
      in a folder that is thrown away, under the policy that is installed with the gateway, where
      everybody may read them. What is measured is ranking, and access plays no part.
    * A set without documents is about what a running gateway holds. It is asked as any caller
      is, with a credential, and everything that it asks is decided and recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final
from uuid import uuid4

from gateway.compose.database import policy_login, store_settings
from gateway.compose.embedding import open_embedder
from gateway.compose.failure import CannotStart
from gateway.compose.filling import fill_index, ingest_into
from gateway.compose.stores import Stores, started
from gateway.settings import Settings
from gateway.settings.model import DatabaseSettings, QdrantSettings
from policies.snapshot import Snapshot
from policies.snapshot import load as load_policy
from retrieval.app import open_retrieval
from retrieval.contract import Ask, Response, RetrieveRequest, SubjectWire
from retrieval.embed.ports import Embedder
from retrieval.errors import RetrievalError
from retrieval.evaluate.asking import OnProgress, ask_all
from retrieval.evaluate.judged import Document, JudgedSet, Malformed, read
from retrieval.evaluate.report import Baseline, Figures, Outcome, as_json, baseline, figures
from retrieval.service import Retrieval
from retrieval.stores.activation import activate

__all__ = [
    "Baseline", "Figures", "JudgedSet", "Malformed", "OnProgress", "Outcome",
    "as_json", "baseline", "evaluate", "figures", "read",
]  # fmt: skip

Live = Callable[[RetrieveRequest], Response]
"""Asks the running gateway, blocking."""

PROFILE: Final = "customer"
_DEADLINE_MS: Final = 30_000
_LABEL: Final = {
    "visibility": "public", "readiness": "published", "publication_state": "published",
    "risk_class": "low", "authority": "enacted", "kind": "guide", "lifecycle_stage": "other",
    "tenant": "*", "jurisdiction": "*",
}  # fmt: skip


def evaluate(
    sets: Sequence[JudgedSet],
    settings: Settings,
    live: Live,
    on_progress: Callable[[str], OnProgress],
) -> Iterator[Outcome]:
    """What retrieval did with each set, one after another; sets that share documents share stores.

    Raises: CannotStart, and what ``live`` raises. Cost: a few seconds a set of documents, then
    10 to 20 ms a question.
    """
    for _, group in groupby(sets, key=lambda one: id(one.documents)):
        together = list(group)
        documents = together[0].documents
        if documents is None:
            yield from (_ask_live(one, live, on_progress(one.name)) for one in together)
            continue
        with _scratch(settings) as (own, stores, folder):
            work = _in_scratch(together, documents, own, stores, folder, on_progress)
            try:
                yield from asyncio.run(work)
            except RetrievalError as error:
                remedy = "see the log of this command"
                raise CannotStart("retrieval_unavailable", str(error), remedy) from error


def _ask_live(judged: JudgedSet, live: Live, on_progress: OnProgress) -> Outcome:
    async def retrieve(request: RetrieveRequest) -> Response:
        return await asyncio.to_thread(live, request)

    return asyncio.run(ask_all(judged, retrieve, on_progress=on_progress))


@contextmanager
def _scratch(settings: Settings) -> Iterator[tuple[Settings, Stores, Path]]:
    """An embedded pair of its own, the settings that point there, and the folder around it."""
    with tempfile.TemporaryDirectory(prefix="gateway-eval-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            folder.chmod(0o711)  # the account that Postgres runs under must pass through
        own = settings.model_copy(
            update={
                "state": folder / "state",
                "database": DatabaseSettings(),
                "qdrant": QdrantSettings(),
            }
        )
        with started(own) as stores:
            yield own, stores, folder


async def _in_scratch(
    together: Sequence[JudgedSet],
    documents: Sequence[Document],
    settings: Settings,
    stores: Stores,
    folder: Path,
    on_progress: Callable[[str], OnProgress],
) -> list[Outcome]:
    snapshot, model = load_policy(), open_embedder(settings)
    names = await asyncio.to_thread(_bring, documents, folder, stores, snapshot, model)
    await fill_index(settings, stores, model)
    told = store_settings(settings, stores)
    async with open_retrieval(told, lambda: snapshot, model) as retrieval:
        retrieve = _asking(retrieval, snapshot)
        return [
            await ask_all(one, retrieve, names=names, on_progress=on_progress(one.name))
            for one in together
        ]


def _bring(
    documents: Sequence[Document],
    folder: Path,
    stores: Stores,
    snapshot: Snapshot,
    model: Embedder,
) -> Mapping[str, str]:
    """Ingests the documents; returns each one's name by its canonical address."""
    names = {f"judged/{number}": one.id for number, one in enumerate(documents)}
    source = folder / "documents.jsonl"
    with source.open("w", encoding="utf-8") as out:
        for address, one in zip(names, documents, strict=True):
            record = {"sort": "unit", "address": address, "title": one.title, "body": one.text}
            out.write(json.dumps(record | _LABEL) + "\n")
    with policy_login(stores, snapshot) as connection:
        activate(connection, snapshot, activated_by="gateway")
    report = ingest_into(stores, source, snapshot.mappings["native"], model)
    if report.quarantined:
        first = report.reasons[0]
        raise CannotStart("document_refused", str(first), "mend the document, or leave it out")
    return names


def _asking(
    retrieval: Retrieval, snapshot: Snapshot
) -> Callable[[RetrieveRequest], Awaitable[Response]]:
    subject = SubjectWire(
        subject_id="evaluation", audience=PROFILE, profiles=(PROFILE,), tenants=(),
        jurisdictions=(), task_scope="", purpose="", policy_digest=snapshot.digest,
    )  # fmt: skip

    async def retrieve(request: RetrieveRequest) -> Response:
        name = f"evaluate-{uuid4().hex}"
        answer = await retrieval.ask(
            Ask(
                operation="retrieve", subject=subject, request=request, request_id=name,
                deadline_ms=_DEADLINE_MS,
            )
        )  # fmt: skip
        if answer.response is None:
            reason = f"retrieval refused a question as `{answer.code}`"
            raise CannotStart("question_refused", reason, "see the log of this command")
        return answer.response

    return retrieve
