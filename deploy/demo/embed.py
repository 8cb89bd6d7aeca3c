"""Makes ``deploy/demo/vectors.npz`` anew: one vector per unit of the corpus, by content hash.

    python -m deploy.demo.embed

So the first demo does not spend its time on embedding. Run it after editing the corpus; a unit
that is not in the file is embedded when it is ingested, so forgetting costs time and nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from deploy.demo.expected import CORPUS, documents
from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.ports import unit_text
from retrieval.embed.registry import embedder

VECTORS: Final = Path(__file__).parent / "vectors.npz"


def texts(folder: Path = CORPUS) -> list[str]:
    """What is embedded of each unit."""
    return [unit_text(one.title, one.text) for one in documents(folder) if one.sort == "unit"]


def main() -> int:
    VECTORS.unlink(missing_ok=True)
    cache = CachedEmbedder(embedder(), own=VECTORS)
    cache.embed(texts())
    print(f"{cache.save()} vectors in {VECTORS.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
