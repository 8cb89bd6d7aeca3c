"""Both stores of our own, filled with a corpus, in a throw-away folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from policies.snapshot import Snapshot
from retrieval.embed.ports import Embedder
from retrieval.embedded import Embedded, start
from retrieval.schema.migrate import migrate
from retrieval.stores.activation import activate
from retrieval.stores.roles import POLICY, dsn_for
from tests.bench.scale.corpus import Batch, Corpus
from tests.bench.scale.load import Spent, fill, shelf
from tests.services import Database, VectorService, state_folder


@dataclass(frozen=True, slots=True)
class Stock:
    """Where the filled stores answer, and what filling them took."""

    database: Database
    vectors: VectorService
    spent: Spent


@contextmanager
def stocked(
    corpus: Corpus,
    snapshot: Snapshot,
    embedder: Embedder,
    also: Callable[[Batch], None] | None = None,
) -> Iterator[Stock]:
    """Filled under one run of the services and handed out under the next, which finds the finished
    collections in its folder."""
    with state_folder() as state:
        shelved = shelf(state.parent / "shelf", embedder.dims)
        with start(state, durable=False) as pair:
            migrate(pair.database_url, pair.database_secret, snapshot)
            policy = dsn_for(POLICY, pair.database_url, pair.database_secret)
            with psycopg.connect(policy, autocommit=True) as connection:
                activate(connection, snapshot)
            spent = fill(pair.database_url, snapshot, corpus, shelved, embedder.name, also)
        shelved.hand_over(state / "qdrant")
        with start(state, durable=False) as pair:
            yield Stock(_database(pair), VectorService(pair.qdrant_url, pair.qdrant_api_key), spent)


def _database(pair: Embedded) -> Database:
    return Database(pair.database_url, pair.database_secret, pair.database_url.rpartition("/")[2])
