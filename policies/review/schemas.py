"""JSON Schemas of the YAML files, for completion while typing. Made from the readers' patterns.

A schema knows the form of one file. Words of other files, what rules reach and what two entries
say together are the loader's to judge: a file that fits its schema may still be refused, and a
file that does not fit is always refused (a test tries both).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from policies import (
    case_file,
    issuer_file,
    mapping_file,
    route_file,
    threshold_file,
    upstream_file,
)
from policies import vocabulary_file as words
from policies.bindings import COMPARTMENT, RouteMode
from policies.mapping import TARGETS, FieldSort, Relabel, Test
from policies.thresholds import VERDICTS
from policies.vocabulary import CONSENTS, FACETS, ORDERED

Schema = dict[str, Any]
FOLDER: Final = "schemas"
DRAFT: Final = "http://json-schema.org/draft-07/schema#"
CLAIMS: Final = ("groups", "roles", "sources", "task_scopes")


def schemas() -> Mapping[str, Schema]:
    """The schema of every sort of YAML file, by file name."""
    made = {
        "vocabulary": _vocabulary(),
        "issuers": _only("issuers", _map(issuer_file.ISSUER, _issuer())),
        "routes": _only("routes", _map(route_file.NAME, _route())),
        "upstreams": _only("upstreams", _map(upstream_file.NAME, _upstream())),
        "trusted_peers": _only("trusted_peers", _map(upstream_file.NAME, _peer())),
        "mapping": _mapping(),
        "retrieval": _thresholds(),
        "cases": _cases(),
    }
    return {
        f"{name}.schema.json": {"$schema": DRAFT, "title": f"policies: {name}", **schema}
        for name, schema in made.items()
    }


def write(folder: Path) -> None:
    """Write the schemas under ``folder/schemas``. Raises OSError."""
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (target / name).write_text(text(schema), encoding="utf-8")


def text(schema: Schema) -> str:
    """One schema as it stands in its file."""
    return json.dumps(schema, indent=1, ensure_ascii=True) + "\n"


def _text(pattern: re.Pattern[str]) -> Schema:
    return {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}


def _word(known: Iterable[str]) -> Schema:
    return {"enum": [str(word) for word in known]}


def _list(item: Schema, *, least: int = 0) -> Schema:
    return {"type": "array", "items": item, "uniqueItems": True, "minItems": least}


def _fields(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _map(name: re.Pattern[str], value: Schema) -> Schema:
    return {"type": "object", "propertyNames": _text(name), "additionalProperties": value}


def _only(key: str, value: Schema) -> Schema:
    return _fields({key: value})


def _one_of(choices: Mapping[str, Schema]) -> Schema:
    """A map with exactly one of these keys."""
    return _fields({}, choices) | {"minProperties": 1, "maxProperties": 1}


def _each(names: Sequence[str], value: Schema) -> Mapping[str, Schema]:
    return dict.fromkeys(names, value)


def _vocabulary() -> Schema:
    values = _list(_text(words.VALUE))
    return _fields(
        {
            "facets": _fields(_each(FACETS, _list(_text(words.VALUE), least=1))),
            "retired": _fields({}, _each(FACETS, values)),
            "orders": _fields(_each(ORDERED, values)),
            "compartments": _list(_word(upstream_file.COMPARTMENTS)),
            "audiences": values,
            "profiles": _map(words.PROFILE, _text(words.VALUE)),
            "roles": _list(_text(words.ROLE)),
            "tasks": values,
            "tools": values,
            "purposes": values,
            "ttls": _list(_text(words.TTL)),
        }
    )


def _issuer() -> Schema:
    url = {"anyOf": [_text(issuer_file.URL), _text(issuer_file.LOOPBACK_URL)]}
    claim = _text(issuer_file.CLAIM)
    alias = _fields({"claim": claim, "values": _map(issuer_file.ANY_WORD, {"type": "string"})})
    compartment = _one_of({"claim": claim, "values": _list(_text(COMPARTMENT))})
    return _fields(
        {
            "url": url,
            "token_audience": _text(issuer_file.TOKEN_AUDIENCE),
            "algorithms": _list(_word(issuer_file.ALGORITHMS), least=1),
            "keys": _one_of({"jwks_uri": url, "jwks_file": {"type": "string"}}),
            "max_age": {"type": "integer", "minimum": 30, "maximum": 86_400},
            "claims": _fields({}, _each(CLAIMS, alias)),
            "compartments": _fields({"tenants": compartment, "jurisdictions": compartment}),
        }
    )


def _route() -> Schema:
    def mode(
        modes: Iterable[RouteMode], key: str, behind: Schema, more: Mapping[str, Schema]
    ) -> Schema:
        return _fields(
            {
                "path": {"type": "string", "pattern": "^/"},
                "methods": _list(_word(route_file.METHODS), least=1),
                "mode": _word(modes),
                key: behind,
            },
            {"tool": _text(words.VALUE), "anonymous": _text(words.VALUE), **more},
        )

    upstream = _text(upstream_file.NAME)
    origins = {"origins": _list(_text(route_file.ORIGIN), least=1)}
    return {
        "anyOf": [
            mode([RouteMode.GUARD], "operation", _word(route_file.OPERATIONS), {}),
            mode([RouteMode.GUARD_JSON], "upstream", upstream, {}),
            mode([RouteMode.OPAQUE], "upstream", upstream, origins),
        ]
    }


def _upstream() -> Schema:
    field = _text(issuer_file.CLAIM)
    facet = _fields({"field": field, "words": _map(issuer_file.ANY_WORD, _text(words.VALUE))})
    shared = _list(_text(issuer_file.ANY_WORD))
    compartment = {
        "oneOf": [
            _fields({"fixed": _text(upstream_file.FIXED)}),
            _fields({"field": field}, {"shared": shared}),
        ]
    }
    labels = _fields({**_each(FACETS, facet), **_each(upstream_file.COMPARTMENTS, compartment)})
    return _fields(
        {
            "token_audience": _text(issuer_file.TOKEN_AUDIENCE),
            "may_retrieve": {"type": "boolean"},
            "credential": _fields(
                {"issuer": _text(issuer_file.ISSUER), "subject": _text(upstream_file.SUBJECT)}
            ),
            "profile": _text(words.PROFILE),
            "tenants": {"anyOf": [{"const": "caller"}, _list(_text(COMPARTMENT))]},
            "facets": {"anyOf": [{"type": "null"}, labels]},
        }
    )


def _peer() -> Schema:
    networks = {"type": "array", "items": {"type": "string"}}
    return _fields({"networks": networks, "headers": _list(_word(upstream_file.HEADERS))})


def _mapping() -> Schema:
    field = _text(mapping_file.FIELD)
    word = _text(mapping_file.WORD)
    several = {"anyOf": [word, _list(word, least=1)]}
    tests = {
        test.value: {"type": "integer", "minimum": 1, "maximum": 1_000_000}
        if test is Test.MULTIPLE_OF
        else several
        for test in Test
    }
    conditions = _map(mapping_file.FIELD, {"anyOf": [word, _one_of(tests)]}) | {"minProperties": 1}
    sets = _fields({}, _each(TARGETS, _text(words.VALUE)))
    compartment = _one_of({"value": {"type": "string"}, "field": field})
    source = _fields(
        {"sort": _word(FieldSort)}, {"words": _list(word), "optional": {"type": "boolean"}}
    )
    rule = _fields({"when": {"anyOf": [{"const": "always"}, conditions]}, "set": sets})
    return _fields(
        {
            "name": _text(mapping_file.NAME),
            "fields": _map(mapping_file.FIELD, source),
            "tenant": compartment,
            "jurisdiction": compartment,
        },
        {
            "rules": {"type": "array", "items": rule},
            "same_words": _fields({}, _each(TARGETS, field)),
            "inherited": _list(_word(FACETS)),
            "relabel": _word(Relabel),
            "thread": _fields(
                {"id": field, "title": field, "set": sets}, {"aliases": field, "absorbs": field}
            ),
        },
    )


def _thresholds() -> Schema:
    sections = {
        section: _fields(
            {
                key: {"type": "integer", "minimum": low, "maximum": high}
                for key, (low, high) in bounds.items()
            }
        )
        for section, bounds in threshold_file.BOUNDS.items()
    }
    return _fields({**sections, "weak": _list(_word(VERDICTS))})


def _cases() -> Schema:
    value, profile = _text(words.VALUE), _text(words.PROFILE)
    consent, consents = _word(CONSENTS), _list(_word(CONSENTS))
    unit = _text(case_file.UNIT)
    any_text = _text(case_file.ANY)
    matrix = _fields(
        {
            "name": _text(case_file.NAME),
            "profiles": _list(profile),
            "units": _list(unit),
            "allow": {
                "type": "array",
                "items": _fields({"unit": unit}, {"profile": profile, "consent": consent}),
            },
        },
        {"consent": consents},
    )
    named = {"claims": _map(case_file.UNIT, _list(any_text)), "roles": _list(any_text)}
    head = {"name": _text(case_file.NAME), "expect": any_text}
    request = {
        "anyOf": [
            _fields(
                {
                    **head,
                    "decide": {"const": ask.value},
                    **{key: named.get(key, any_text) for key in asked},
                }
            )
            for ask, asked in case_file.WORDS.items()
        ]
    }
    box = _fields(
        {}, {"profile": _list(profile), "consent": consents, **_each(FACETS, _list(value))}
    ) | {"minProperties": 1}
    allowed = {"type": "integer", "minimum": 0, "maximum": 100_000}
    count = _fields({"profile": profile, "consent": consent, "allowed": allowed})
    invariant = _one_of({"never": box, "always": box, "subset": _list(profile), "count": count})
    return _fields(
        {"suite": _text(case_file.NAME)},
        {
            "units": _map(case_file.UNIT, _fields(_each(FACETS, value))),
            "tests": {"type": "array", "items": matrix},
            "requests": {"type": "array", "items": request},
            "invariants": {"type": "array", "items": invariant},
        },
    )
