"""The schemas that editors complete from: as the code says, and never stricter than the readers."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import casework
from policies.errors import InvalidPolicy
from policies.loader import parse
from policies.review.reading import Reading
from policies.review.schemas import FOLDER, schemas, text
from policies.snapshot import DEFAULT_FOLDER

FILES = {
    "rules/vocabulary.yaml": "vocabulary", "rules/issuers.yaml": "issuers",
    "rules/routes.yaml": "routes", "rules/upstreams.yaml": "upstreams",
    "rules/trusted_peers.yaml": "trusted_peers", "rules/retrieval.yaml": "retrieval",
    "mappings/native.yaml": "mapping",
    "mappings/ferrowick.yaml": "mapping", "cases/agents.yaml": "cases",
    "cases/audiences.yaml": "cases", "cases/doors.yaml": "cases",
}  # fmt: skip
FACETS_MAP = {
    **{facet: {"field": facet, "words": {"x": word}} for facet, word in {
        "visibility": "public", "readiness": "published", "publication_state": "published",
        "risk_class": "low", "authority": "enacted", "kind": "faq"}.items()},
    "tenant": {"field": "t", "shared": ["all"]}, "jurisdiction": {"fixed": "*"},
}  # fmt: skip
HOWS = ("gone", "more", "twice", "text", "list", "map", "number", "truth", "nothing")
OF_FORM = {"missing_key", "wrong_type", "out_of_range", "empty_list", "keys", "compartment"}
"""Faults that concern one file's form alone, all of which a schema can tell."""


def fits(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value fits: the few keywords of draft 7 that our schemas use, none skipped."""
    known = {"$schema", "title", "type", "properties", "required", "additionalProperties",
             "propertyNames", "minProperties", "maxProperties", "items", "uniqueItems", "minItems",
             "pattern", "enum", "const", "anyOf", "oneOf", "minimum", "maximum"}  # fmt: skip
    assert schema.keys() <= known
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    match schema.get("type"):
        case None:
            pass
        case "integer":
            if type(value) is not int:
                return False
            if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
                return False
        case kind if not isinstance(value, kinds[kind]):
            return False
    choices = [fits(one, value) for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    return (
        (not choices or any(choices))
        and ("oneOf" not in schema or sum(choices) == 1)
        and ("const" not in schema or value == schema["const"])
        and ("enum" not in schema or value in schema["enum"])
        and (not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None)
        and (not isinstance(value, list) or fits_list(schema, value))
        and (not isinstance(value, dict) or fits_map(schema, value))
    )


def fits_list(schema: dict[str, Any], value: list[Any]) -> bool:
    distinct = not schema.get("uniqueItems") or len({json.dumps(v) for v in value}) == len(value)
    enough = len(value) >= schema.get("minItems", 0)
    return distinct and enough and all(fits(schema.get("items", {}), item) for item in value)


def fits_map(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    named, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    return (
        all(key in value for key in schema.get("required", ()))
        and schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 1_000)
        and all(fits(schema.get("propertyNames", {}), key) for key in value)
        and all(
            fits(named[key], item) if key in named else rest is True or (bool(rest)
            and fits(rest, item))
            for key, item in value.items()
        )
    )  # fmt: skip


@pytest.fixture(scope="session")
def documents() -> dict[str, Any]:
    """The shipped files and the demo's mapping, with the parts that no shipped file uses."""
    found = {
        file: yaml.safe_load((DEFAULT_FOLDER / file).read_text())
        for file in FILES if "ferrowick" not in file
    }  # fmt: skip
    demo = DEFAULT_FOLDER.parent / "deploy/demo/policy/mappings/ferrowick.yaml"
    found["mappings/ferrowick.yaml"] = yaml.safe_load(demo.read_text())
    found["rules/upstreams.yaml"]["upstreams"]["partner-portal"]["facets"] = FACETS_MAP
    found["rules/upstreams.yaml"]["upstreams"]["partner-portal"]["tenants"] = ["acme"]
    found["rules/trusted_peers.yaml"]["trusted_peers"] = {
        "lb": {"networks": ["10.0.0.0/24"], "headers": ["forwarded"]}
    }
    return found


@pytest.fixture(scope="session")
def dumped(documents: dict[str, Any]) -> dict[str, str]:
    return {file: yaml.safe_dump(one, sort_keys=False) for file, one in documents.items()}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document but its root."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(
        value if isinstance(value, list) else ())  # fmt: skip
    for key, item in items:
        yield from places(item, (*path, key))


def mutated(document: Any, path: tuple[Any, ...], how: str) -> Any:
    """The document with one place taken away, replaced, or given a neighbour."""
    result = copy.deepcopy(document)
    owner = result
    for key in path[:-1]:
        owner = owner[key]
    match how:
        case "gone":
            del owner[path[-1]]
        case "more" if isinstance(owner, dict):
            owner["zz zz"] = "x"
        case "twice" if isinstance(owner, list):
            owner.append(copy.deepcopy(owner[path[-1]]))
        case "text":
            owner[path[-1]] = "Zz!"
        case _:
            owner[path[-1]] = {"list": [], "map": {}, "number": 7, "truth": True}.get(how)
    return result


def test_the_schemas_are_those_of_the_code() -> None:
    """Run `python -m policies schemas` when this fails."""
    written = {path.name: path.read_text() for path in (DEFAULT_FOLDER / FOLDER).iterdir()}
    assert written == {name: text(schema) for name, schema in schemas().items()}


def test_every_shipped_file_fits_its_schema(documents: dict[str, Any]) -> None:
    for file, name in FILES.items():
        assert fits(schemas()[f"{name}.schema.json"], documents[file]), file


@settings(max_examples=60)
@given(file=st.sampled_from([*FILES]), where=st.integers(0, 5_000), how=st.sampled_from([*HOWS]))
def test_what_does_not_fit_its_schema_is_refused_by_the_reader(
    file: str,
    where: int,
    how: str,
    documents: dict[str, Any],
    dumped: dict[str, str],
    folder: Path,
    shipped: Reading,
) -> None:
    """An editor that underlines something is right; and what is wrong in form is underlined."""
    everywhere = [*places(documents[file])]
    path = everywhere[where % len(everywhere)]
    spoilt = mutated(documents[file], path, how)
    fitting = fits(schemas()[f"{FILES[file]}.schema.json"], spoilt)
    for name, written in (dumped | {file: yaml.safe_dump(spoilt, sort_keys=False)}).items():
        (folder / name).write_text(written)
    codes: set[str] = set()
    try:
        parse(folder)
        if file.startswith("cases/"):
            casework.run(folder, shipped.snapshot)
    except InvalidPolicy as error:
        codes = {fault.code for fault in error.faults if fault.file == file}
        assert codes or fitting
    assert fitting or codes, (file, path, spoilt)
    assert not fitting or not codes & OF_FORM, (file, path, codes)
