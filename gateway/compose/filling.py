"""What commands do to the stores themselves: texts into the truth, vectors into the index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.compose.database import station_dsn, store_settings
from gateway.compose.failure import CannotStart
from gateway.compose.stores import Stores
from gateway.settings import Settings
from policies.mapping import IngestMapping
from retrieval.embed.ports import Embedder
from retrieval.errors import RetrievalError
from retrieval.ingest import IngestRefused, OnProgress, Report
from retrieval.ingest import run as run_ingest
from retrieval.ingest.database import OVERLAP, SCHEMA, DatabaseSource, knowledge_base
from retrieval.ingest.engine import marks_of
from retrieval.stores.outbox import OutboxWorker
from retrieval.stores.qdrant import QdrantIndex
from retrieval.stores.reindex import Standing, rebuild, standing
from retrieval.stores.roles import INDEX, INGEST

__all__ = ["KnowledgeBase", "OnProgress", "Report", "fill_index", "ingest_into"]


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """Views in another database: see ``retrieval.ingest.database``."""

    dsn: str
    schema: str = SCHEMA
    full: bool = False
    overlap: int = OVERLAP


def ingest_into(
    stores: Stores,
    source: Path | KnowledgeBase,
    mapping: IngestMapping,
    model: Embedder,
    *,
    origin: str | None = None,
    adopt: bool = False,
    author: str = "",
    on_progress: OnProgress | None = None,
) -> Report:
    """Bring ``source`` into the record of truth with vectors, as ``origin``'s own.

    ``origin`` None is the mapping's name; ``adopt`` takes what nobody has claimed yet; ``author``
    answers for labels that wait for approval.
    Raises: CannotStart.
    """
    dsn = station_dsn(stores, INGEST)
    try:
        with _opened(source, dsn, origin or mapping.name) as opened:
            return run_ingest(
                opened,
                mapping,
                dsn=dsn,
                origin=origin,
                adopt=adopt,
                author=author,
                embedder=model,
                on_progress=on_progress,
            )
    except IngestRefused as error:
        raise CannotStart(error.code, error.reason, error.remedy) from error


@contextmanager
def _opened(source: Path | KnowledgeBase, dsn: str, origin: str) -> Iterator[Path | DatabaseSource]:
    if isinstance(source, Path):
        yield source
        return
    with knowledge_base(
        source.dsn,
        schema=source.schema,
        marks=partial(marks_of, dsn, origin),
        full=source.full,
        overlap=source.overlap,
    ) as opened:
        yield opened


async def index_standing(
    settings: Settings, stores: Stores, model: Embedder, *, collection: str | None, rebuilt: bool
) -> tuple[str, Standing]:
    """The name of a collection and how it stands beside the truth, after it was ``rebuilt`` or
    as it is. ``collection`` None: the one that is served from. Raises: CannotStart."""
    told = store_settings(settings, stores)
    name = collection or told.collection
    key = told.qdrant_api_key.get_secret_value()
    index = QdrantIndex(told.qdrant_url, key, name, model.dims)
    dsn = station_dsn(stores, INDEX)
    try:
        if rebuilt:
            return name, await rebuild(dsn, index, model)
        return name, await standing(dsn, index)
    except RetrievalError as error:
        remedy = "look at the collection, or name another one with --collection"
        raise CannotStart("index_unavailable", str(error), remedy) from error
    finally:
        await index.close()


async def fill_index(settings: Settings, stores: Stores, model: Embedder) -> int:
    """Carry what is pending into the vector index; how many changes that was.

    Raises: CannotStart when the index or the database does not answer.
    """
    told = store_settings(settings, stores)
    key = told.qdrant_api_key.get_secret_value()
    index = QdrantIndex(told.qdrant_url, key, told.collection, model.dims)
    try:
        await index.ensure()
        return await OutboxWorker(station_dsn(stores, INDEX), index, model).drain()
    except RetrievalError as error:
        remedy = "what was ingested is kept; the next `gateway serve` goes on"
        raise CannotStart("index_unavailable", str(error), remedy) from error
    finally:
        await index.close()
