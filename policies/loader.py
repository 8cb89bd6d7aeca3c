"""From the files of a policy folder to typed values: every fault found, at once.

This module does not compile or decide anything; ``policies.snapshot`` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies import (
    files,
    issuer_file,
    route_file,
    threshold_file,
    upstream_file,
    vocabulary_file,
)
from policies.bindings import IssuerBinding, Route, TrustedPeer, Upstream
from policies.decision import PolicyDigest
from policies.faults import Faults, Place
from policies.files import PolicyFiles
from policies.kinds import MODEL_SHA256, SHAPES, AdminAction, Kind, LabelAuthor, Shape
from policies.mapping import IngestMapping
from policies.mapping_file import read_mapping
from policies.rows import Row, read_rows
from policies.thresholds import DEFAULTS, Thresholds
from policies.vocabulary import CONSENTS, FACETS, Vocabulary
from policies.vocabulary_file import read_vocabulary
from policies.yamltree import Node, parse_kept

Domains = Mapping[str, Sequence[str]]
"""The known words of every column and axis of one kind."""

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A folder without faults, not yet compiled."""

    digest: PolicyDigest
    vocabulary: Vocabulary
    shapes: Mapping[Kind, Shape]
    rows: Mapping[Kind, tuple[Row, ...]]
    domains: Mapping[Kind, Domains]
    issuers: tuple[IssuerBinding, ...]
    routes: tuple[Route, ...]
    upstreams: Mapping[str, Upstream]
    trusted_peers: tuple[TrustedPeer, ...]
    mappings: Mapping[str, IngestMapping]
    thresholds: Thresholds = DEFAULTS


def parse(folder: Path, overlay: Path | None = None) -> Parsed:
    """Everything in the folder. Raises InvalidPolicy with all faults, sorted."""
    faults = Faults()
    return parse_files(files.read(folder, overlay, faults), faults)


def parse_files(found: PolicyFiles, faults: Faults) -> Parsed:
    """Everything in files that were read from anywhere; ``faults`` are those of the reading.

    Raises InvalidPolicy with all faults, sorted.
    """
    _check_models(found, faults)
    vocabulary = read_vocabulary(found, faults)
    if vocabulary is None:
        faults.check()
        raise AssertionError("a vocabulary is only missing with a fault")
    issuers = issuer_file.read_issuers(
        _tree(found, issuer_file.FILE, faults), found, vocabulary, faults
    )
    upstreams = upstream_file.read_upstreams(
        _tree(found, upstream_file.FILE, faults), vocabulary, issuers, faults
    )
    routes = route_file.read_routes(
        _tree(found, route_file.FILE, faults), vocabulary, upstreams, faults
    )
    peers = upstream_file.read_peers(_tree(found, upstream_file.PEERS_FILE, faults), faults)
    mappings = _mappings(found, vocabulary, faults)
    thresholds = _thresholds(found, faults)
    _check_read(found, issuers, faults)
    domains = {kind: _domains(kind, vocabulary, issuers, routes) for kind in Kind}
    rows: dict[Kind, tuple[Row, ...]] = {}
    for kind, shape in SHAPES.items():
        text = None if _left_out(shape, found) else found.text(shape.file, faults)
        rows[kind] = read_rows(shape, text, domains[kind], faults) if text is not None else ()
    faults.check()
    return Parsed(
        found.digest,
        vocabulary,
        SHAPES,
        rows,
        domains,
        issuers,
        routes,
        upstreams,
        peers,
        mappings,
        thresholds,
    )


def parse_mapping(path: Path, vocabulary: Vocabulary) -> IngestMapping:
    """One mapping file outside the folder. Raises InvalidPolicy with all of its faults."""
    faults = Faults()
    text = files.decoded(path.name, path.read_bytes(), faults)
    faults.check()
    mapping = read_mapping(parse_kept(path.name, text or "", faults), vocabulary, faults)
    faults.check()
    return mapping


def _tree(found: PolicyFiles, file: str, faults: Faults) -> Node:
    text = found.text(file, faults)
    if text is None:
        return Node(Place(file), "broken")
    return parse_kept(file, text, faults)


def _mappings(
    found: PolicyFiles, vocabulary: Vocabulary, faults: Faults
) -> Mapping[str, IngestMapping]:
    mappings: dict[str, IngestMapping] = {}
    for file in sorted(found.contents):
        if file.startswith("mappings/"):
            mapping = read_mapping(_tree(found, file, faults), vocabulary, faults)
            if mapping.name in mappings:
                faults.add(
                    Place(file),
                    "duplicate_mapping",
                    f"mapping `{mapping.name}` exists",
                    "rename it",
                )
            mappings[mapping.name] = mapping
    return mappings


def _thresholds(found: PolicyFiles, faults: Faults) -> Thresholds:
    if threshold_file.FILE not in found.contents:
        return DEFAULTS
    return threshold_file.read_thresholds(_tree(found, threshold_file.FILE, faults), faults)


def _left_out(shape: Shape, found: PolicyFiles) -> bool:
    """Whether the policy says nothing of an optional kind, which denies all of it."""
    return shape.optional and shape.file not in found.contents


def _check_models(found: PolicyFiles, faults: Faults) -> None:
    for shape in SHAPES.values():
        if _left_out(shape, found) and shape.model_file not in found.contents:
            continue
        content = found.contents.get(shape.model_file)
        if content is None or hashlib.sha256(content).hexdigest() != MODEL_SHA256[shape.kind]:
            faults.add(
                Place(shape.model_file),
                "model_changed",
                "the model is not the one that the compiler is proven for",
                "restore it with `python -m policies models`",
            )


def _check_read(found: PolicyFiles, issuers: Sequence[IssuerBinding], faults: Faults) -> None:
    """Every file is one that was read: what stands in another is believed by nobody."""
    known = {*_READ, *(issuer.jwks_file for issuer in issuers)}
    for file in found.contents:
        if file not in known and not file.startswith("mappings/"):
            faults.add(
                Place(file), "unknown_file", f"`{file}` would never be read", "remove or rename it"
            )


_READ: Final = frozenset(
    {shape.model_file for shape in SHAPES.values()}
    | {shape.file for shape in SHAPES.values()}
    | {issuer_file.FILE, upstream_file.FILE, upstream_file.PEERS_FILE, route_file.FILE}
    | {vocabulary_file.FILE, vocabulary_file.LOCK, threshold_file.FILE}
)


def _domains(
    kind: Kind, vocabulary: Vocabulary, issuers: Sequence[IssuerBinding], routes: Sequence[Route]
) -> Domains:
    match kind:
        case Kind.AUDIENCE:
            claims = sorted({claim for issuer in issuers for claim in issuer.claims})
            values = sorted(
                {
                    alias
                    for issuer in issuers
                    for source in issuer.claims.values()
                    for alias in source.values.values()
                }
            )
            return {
                "issuer": [issuer.alias for issuer in issuers],
                "claim": claims,
                "value": values,
                "claim=value": [f"{claim}={value}" for claim in claims for value in values],
                "audience": vocabulary.audiences,
            }
        case Kind.AGENTS:
            return {
                "role": vocabulary.roles,
                "task": vocabulary.tasks,
                "tool": vocabulary.tools,
                "profile": [p for p, audience in vocabulary.profiles.items() if p != audience],
            }
        case Kind.ROUTES:
            return {
                "audience": [*vocabulary.audiences, ANONYMOUS],
                "route": [route.id for route in routes],
                "method": sorted({method for route in routes for method in route.methods}),
            }
        case Kind.UNITS:
            return {
                "profile": list(vocabulary.profiles),
                "consent": CONSENTS,
                **{facet: vocabulary.live(facet) for facet in FACETS},
            }
        case Kind.CONSENT:
            return {
                "audience": vocabulary.audiences,
                "purpose": vocabulary.purposes,
                "approver": vocabulary.roles,
                "ttl": vocabulary.ttls,
            }
        case Kind.ADMIN:
            return {"role": vocabulary.roles, "action": tuple(AdminAction)}
        case Kind.LABELS:
            return {
                "audience": vocabulary.audiences,
                "approver": vocabulary.roles,
                "author": tuple(LabelAuthor),
            }
