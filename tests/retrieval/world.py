"""Small worlds of governed objects, written into a real database as ingest would.

Ids come from names, so that the same object has the same id in every world it stands in;
times are fixed. Nothing here decides who may see what: labels do, under the default policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import psycopg
from psycopg.types.json import Jsonb

from policies.snapshot import Snapshot
from retrieval.contract import SubjectWire
from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.ports import unit_text
from retrieval.embed.quantise import pack
from retrieval.lexical import document_form
from retrieval.threads.keyword import thread_form

NAMESPACE = UUID("6f1d5f0e-6a0e-4e0c-9a55-0d9b5f4c7a10")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
EMBEDDER = HashingEmbedder(64)

FACETS = ("visibility", "readiness", "publication_state", "risk_class", "authority", "kind")


def id_of(name: str) -> UUID:
    """The id of the object of that name."""
    return uuid5(NAMESPACE, name)


@dataclass(frozen=True, slots=True)
class Label:
    """Facets and compartments. The default is what every audience may read."""

    visibility: str | None = "public"
    readiness: str | None = "published"
    publication_state: str | None = "published"
    risk_class: str | None = "standard"
    authority: str | None = "enacted"
    kind: str | None = "faq"
    tenant: str = "*"
    jurisdiction: str = "*"

    def of(self, kind: str) -> Label:
        return replace(self, kind=kind)

    def row(self) -> dict[str, Any]:
        names = (*FACETS, "tenant", "jurisdiction")
        return {name: getattr(self, name) for name in names}


PUBLIC = Label()
PARTNER = Label(visibility="partner")
EMPLOYEE = Label(visibility="employee", readiness="approved", publication_state="unpublished")
SECRET = Label(visibility="restricted")
WITHDRAWN = Label(publication_state="withdrawn")
UNLABELLED = Label(visibility="Public")
"""An unknown word. A blank would be filled from a thread."""
OTHER_TENANT = Label(tenant="acme")
HIDDEN_FROM_ALL = (SECRET, WITHDRAWN, UNLABELLED, OTHER_TENANT)
"""Labels under which no subject of ``SUBJECTS`` sees anything."""


@dataclass(frozen=True, slots=True)
class Unit:
    address: str
    title: str
    body: str
    label: Label = PUBLIC
    stage: str = "other"
    age_days: int = 0
    source: str = "test"


@dataclass(frozen=True, slots=True)
class Thread:
    address: str
    title: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    label: Label = PUBLIC
    purpose: str = "to be tested"


@dataclass(frozen=True, slots=True)
class Link:
    thread: str
    unit: str
    role: str = "canonical"
    confidence: float = 1.0
    status: str = "active"


@dataclass(frozen=True, slots=True)
class Edge:
    src: str
    dst: str
    relation: str = "implements"
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Artifact:
    thread: str
    title: str
    stage: str
    label: Label = PUBLIC


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the controlled vocabulary, on these threads."""

    word: str
    threads: tuple[str, ...]
    label: Label = PUBLIC
    name: str = ""

    @property
    def id(self) -> UUID:
        return id_of(f"term {self.name or self.word}")


@dataclass(frozen=True, slots=True)
class World:
    """Objects by address. ``health`` is one verdict per thread, put into each of its parts."""

    units: tuple[Unit, ...] = ()
    threads: tuple[Thread, ...] = ()
    links: tuple[Link, ...] = ()
    edges: tuple[Edge, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    terms: tuple[Term, ...] = ()
    health: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> tuple[Unit | Thread, ...]:
        """What has an address."""
        return (*self.units, *self.threads)

    def __add__(self, other: World) -> World:
        return World(
            self.units + other.units,
            self.threads + other.threads,
            self.links + other.links,
            self.edges + other.edges,
            self.artifacts + other.artifacts,
            self.terms + other.terms,
            {**self.health, **other.health},
        )


def write(connection: psycopg.Connection[Any], world: World) -> None:
    """Puts a world into a database, in one transaction. ``connection`` is the superuser's."""
    with connection.transaction(), connection.cursor() as cursor:
        _insert(cursor, "brain.thread", map(_thread_row, world.threads))
        _insert(cursor, "brain.unit", map(_unit_row, world.units))
        _insert(cursor, "brain.unit_revision", map(_revision_row, world.units))
        _insert(cursor, "brain.embedding", map(_embedding_row, world.units))
        _insert(cursor, "brain.thread_term", _term_rows(world.threads))
        _insert(cursor, "brain.thread_membership", map(_link_row, world.links))
        _insert(cursor, "brain.edge", map(_edge_row, world.edges))
        _insert(cursor, "brain.expected_artifact", map(_artifact_row, world.artifacts))
        _insert(cursor, "brain.label", map(_term_row, world.terms))
        _insert(cursor, "brain.thread_label", _term_links(world.terms))
        for thread, status in world.health.items():
            verdict = {"status": status, "checked_at": EPOCH.isoformat()}
            cursor.execute(
                "update brain.thread_partial set health = %s where thread_id = %s",
                [Jsonb(verdict), id_of(thread)],
            )


def subject(
    audience: str,
    snapshot: Snapshot,
    *,
    profiles: tuple[str, ...] = (),
    tenants: tuple[str, ...] = (),
    purpose: str = "",
) -> SubjectWire:
    """A placed subject, as the gateway would send it."""
    return SubjectWire(
        subject_id=f"subject-{audience}",
        audience=audience,
        profiles=profiles or (audience,),
        tenants=tenants,
        jurisdictions=(),
        task_scope="",
        purpose=purpose,
        policy_digest=snapshot.digest,
    )


def subjects(snapshot: Snapshot) -> dict[str, SubjectWire]:
    """One subject of every audience."""
    return {
        "customer": subject("customer", snapshot),
        "partner": subject("partner", snapshot),
        "employee": subject("employee", snapshot),
        "agent": subject("agent", snapshot, profiles=("agent:reader",)),
    }


def _insert(cursor: psycopg.Cursor[Any], table: str, rows: Iterable[dict[str, Any]]) -> None:
    listed = list(rows)
    if not listed:
        return
    columns = ", ".join(listed[0])
    marks = ", ".join(f"%({name})s" for name in listed[0])
    cursor.executemany(f"insert into {table} ({columns}) values ({marks})".encode(), listed)


def _thread_row(thread: Thread) -> dict[str, Any]:
    return {
        "id": id_of(thread.address),
        "canonical_address": thread.address,
        "title": thread.title,
        "aliases": list(thread.aliases),
        "description": thread.description,
        "purpose": thread.purpose,
        "updated_at": EPOCH,
        **thread.label.of("thread").row(),
    }


def _term_rows(threads: Iterable[Thread]) -> Iterable[dict[str, Any]]:
    for thread in threads:
        terms, weights = thread_form(thread.title, thread.aliases, thread.description)
        for term, weight in zip(terms, weights, strict=True):
            yield {
                "term": term,
                "thread_id": id_of(thread.address),
                "weight": weight,
                "class_id": -1,
                "tenant": "*",
                "jurisdiction": "*",
            }


def _term_row(term: Term) -> dict[str, Any]:
    return {"id": term.id, "term": term.word, "version": term.id.int % 30_000, **term.label.row()}


def _term_links(terms: Iterable[Term]) -> Iterable[dict[str, Any]]:
    for term in terms:
        for thread in term.threads:
            yield {"label_id": term.id, "thread_id": id_of(thread)}


def _unit_row(unit: Unit) -> dict[str, Any]:
    return {
        "id": id_of(unit.address),
        "canonical_address": unit.address,
        "title": unit.title,
        "lifecycle_stage": unit.stage,
        "source": unit.source,
        "current_revision": 1,
        "content_hash": unit.title + unit.body,
        "active_at": EPOCH - timedelta(days=unit.age_days),
        **unit.label.row(),
    }


def _revision_row(unit: Unit) -> dict[str, Any]:
    terms, weights = document_form(unit.title, unit.body)
    return {
        "unit_id": id_of(unit.address),
        "revision": 1,
        "title": unit.title,
        "body": unit.body,
        "body_sha256": "",
        "lexical_terms": terms,
        "lexical_weights": weights,
    }


def _embedding_row(unit: Unit) -> dict[str, Any]:
    (vector,) = EMBEDDER.embed([unit_text(unit.title, unit.body)])
    return {
        "unit_id": id_of(unit.address),
        "revision": 1,
        "model": EMBEDDER.name,
        "vector": pack(vector),
    }


def _link_row(link: Link) -> dict[str, Any]:
    return {
        "thread_id": id_of(link.thread),
        "unit_id": id_of(link.unit),
        "role": link.role,
        "confidence": link.confidence,
        "status": link.status,
    }


def _edge_row(edge: Edge) -> dict[str, Any]:
    return {
        "id": id_of(f"{edge.src} {edge.relation} {edge.dst}"),
        "src": id_of(edge.src),
        "dst": id_of(edge.dst),
        "relation": edge.relation,
        "confidence": edge.confidence,
    }


def _artifact_row(artifact: Artifact) -> dict[str, Any]:
    return {
        "id": id_of(f"{artifact.thread} expects {artifact.title}"),
        "thread_id": id_of(artifact.thread),
        "title": artifact.title,
        "lifecycle_stage": artifact.stage,
        **artifact.label.row(),
    }
