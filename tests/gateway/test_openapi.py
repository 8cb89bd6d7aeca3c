"""The published contract is that of the code, and of the shipped policy's routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gateway.surfaces.openapi import FILE, PATH, document
from policies.bindings import RouteMode
from policies.snapshot import Snapshot
from tests.gateway.stage import Stage


def test_the_file_is_what_the_code_makes() -> None:
    """Run `gateway openapi --into gateway/surfaces/openapi.json` when this fails."""
    assert FILE.read_bytes() == document()


def test_the_document_has_the_guarded_routes_of_the_shipped_policy(snapshot: Snapshot) -> None:
    """Path and method of each; `{address...}` takes several segments, which OpenAPI cannot say."""
    routes = {
        (re.sub(r"\.\.\.}$", "}", route.path), method.lower())
        for route in snapshot.routes
        if route.mode is RouteMode.GUARD
        for method in route.methods
    }
    paths = json.loads(document())["paths"]
    assert {(path, method) for path, node in paths.items() for method in node} == routes


def test_every_reference_leads_somewhere() -> None:
    tree = json.loads(document())

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref":
                    yield value
                else:
                    yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    for reference in set(references(tree)):
        found = tree
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        assert isinstance(found, dict), reference


def test_anybody_gets_the_document(stage: Stage) -> None:
    """It says nothing of a policy or a caller: no credential, and a cache may keep it."""
    reply = stage.ask("GET", PATH.decode())
    assert (reply.status, reply.body) == (200, document())
    assert reply.header("cache-control") == "public, max-age=60"
    assert stage.ask("POST", PATH.decode()).status == 404
    assert stage.ask("GET", f"{PATH.decode()}/x").status == 404
