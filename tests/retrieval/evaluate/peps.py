"""Known-item questions from the PEPs: a document's title must find its abstract.

``python -m tests.retrieval.evaluate.peps FOLDER`` writes them as a judged set. The material is
shared/data/peps; a document without an abstract is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[4] / "shared" / "data" / "peps" / "peps.jsonl"


def write(source: Path, folder: Path) -> None:
    """The set that ``gateway eval FOLDER`` measures."""
    folder.mkdir(parents=True, exist_ok=True)
    documents, queries, relevant = [], [], []
    for line in source.read_text("utf-8").splitlines():
        pep = json.loads(line)
        abstract = next((s for s in pep["sections"] if s["heading"].lower() == "abstract"), None)
        if abstract is None:
            continue
        name = pep["id"]
        documents.append({"id": name, "title": abstract["heading"], "text": abstract["text"]})
        queries.append({"id": name, "text": pep["title"]})
        relevant.append({"query": name, "doc": name, "relevance": 1})
    _put(folder / "docs.jsonl", documents)
    _put(folder / "queries.jsonl", queries)
    _put(folder / "qrels.jsonl", relevant)


def _put(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
    write(SOURCE, Path(sys.argv[1]))
