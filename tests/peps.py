"""The PEP corpus (shared data ``peps``): its mapping, its ingest, and what it should come to.

``expected_facets`` reads the source's own ``status_map.json``, not our mapping file: the two
must come to the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

from policies.loader import parse_mapping
from policies.mapping import IngestMapping
from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.ingest import Report, run
from retrieval.stores.activation import activate
from retrieval.stores.roles import INGEST, dsn_for
from tests.services import Database

MAPPING: Final = Path(__file__).parent / "data" / "peps_mapping.yaml"
EMBEDDER: Final = HashingEmbedder(128)

KINDS: Final = {"Process": "policy", "Informational": "guide", "Standards Track": "design"}
"""Not in the source's proposal: our own choice, by type."""


def mapping(snapshot: Snapshot) -> IngestMapping:
    return parse_mapping(MAPPING, snapshot.vocabulary)


def documents(shared_data: Path) -> Iterator[dict[str, Any]]:
    with (shared_data / "peps" / "peps.jsonl").open() as lines:
        yield from map(json.loads, lines)


def fill(database: Database, snapshot: Snapshot, shared_data: Path) -> Report:
    """Activate the policy and ingest the whole corpus.

    With the statistics that a running database gathers by itself within minutes: a copy of it
    never would, and it would be asked by plans for empty tables.
    """
    with psycopg.connect(database.url, autocommit=True) as connection:
        activate(connection, snapshot)
        report = run(
            shared_data / "peps" / "peps.jsonl",
            mapping(snapshot),
            dsn=dsn_for(INGEST, database.url, database.secret),
            embedder=EMBEDDER,
        )
        connection.execute("analyze")
    return report


def status_map(shared_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_data / "peps" / "status_map.json").read_bytes())
    return found


def expected_facets(
    document: Mapping[str, Any], heading: str, source: Mapping[str, Any]
) -> dict[str, str]:
    """The facets of one section by the source's proposal (``heading`` empty: the thread's)."""
    overlay = source["visibility_overlay_for_tests"]
    topics, kind = document["topic"], document["type"]
    visibility = overlay["topic"][topics[0]] if topics else overlay["type"][kind]
    if document["number"] % 17 == 0:
        visibility = "restricted"
    risk = "low" if kind == "Informational" else "standard"
    if "Governance" in topics or heading.startswith("Security"):
        risk = "high"
    state = source["status"][document["status"]]
    return {
        "visibility": visibility,
        "risk_class": risk,
        "readiness": state["readiness"],
        "publication_state": state["publication_state"],
        "authority": state["authority"],
        "kind": KINDS[kind] if heading else "thread",
    }


def address(of: str) -> str:
    """The canonical address of a document or section of the corpus."""
    return f"peps/{of}"
