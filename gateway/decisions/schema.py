"""The form of a decision record as JSON Schema, made from the table of fields.

``python -m gateway.decisions.schema`` writes the published file anew; a test compares them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from gateway.decisions.fields import (
    CONTAINERS,
    FIELDS,
    MASKED,
    REASONS,
    SCHEMA,
    STATIONS,
    TIME,
    TOP_LEVEL,
    WORD,
    Field,
    Form,
)
from policies.decision import UNCLASSED

FILE: Final = Path(__file__).with_name("decision-1.schema.json")
_Node = dict[str, Any]
_MASK: Final[_Node] = {"type": "string", "pattern": f"^(?:{MASKED.pattern})$"}
_PLAIN_WORD: Final[_Node] = {"type": "string", "pattern": f"^(?:{WORD.pattern})$"}
_FORMS: Final[dict[Form, _Node]] = {
    Form.SCHEMA: {"const": SCHEMA},
    Form.WORD: _PLAIN_WORD,
    Form.EFFECT: {"enum": ["allow", "deny"]},
    Form.REASON: {"enum": list(REASONS)},
    Form.STATION: {"enum": list(STATIONS)},
    Form.TIME: {"type": "string", "pattern": f"^(?:{TIME.pattern})$"},
    Form.COUNT: {"type": "integer", "minimum": 0},
    Form.CLASS: {"type": "integer", "minimum": UNCLASSED},
    Form.FLAG: {"type": "boolean"},
    Form.RATIO: {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
}


def schema() -> _Node:
    """The JSON Schema (draft 2020-12) of one record, masked and erased forms included.

    No redactable field is required: whether an absent one is in ``erased`` is what the
    reader checks and a schema cannot say.
    """
    properties: _Node = {}
    for name in TOP_LEVEL:
        inside = [field for field in FIELDS if field.path.startswith(f"{name}.")]
        if name in CONTAINERS:
            properties[name] = _container(name, inside)
        else:
            (field,) = [field for field in FIELDS if field.path == name]
            properties[name] = _leaf(field)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA.replace('/', ':')}",
        "title": "audience-gateway: decision record",
        **_object(properties, [field.path for field in FIELDS if field.fixed]),
    }


def _container(name: str, inside: list[Field]) -> _Node:
    item = _object({field.path.rpartition(".")[2]: _leaf(field) for field in inside}, [])
    return item if name == "units" else {"type": "array", "items": item}


def _object(properties: _Node, required: list[str]) -> _Node:
    node: _Node = {"type": "object", "properties": properties, "additionalProperties": False}
    return node | {"required": required} if required else node


def _leaf(field: Field) -> _Node:
    if field.form is Form.WORDS:
        item = _PLAIN_WORD if field.fixed else {"anyOf": [_PLAIN_WORD, _MASK]}
        return {"description": field.meaning, "type": "array", "items": item}
    plain = _FORMS[field.form]
    node = plain if field.fixed else {"anyOf": [plain, _MASK]}
    return {"description": field.meaning, **node}


def text() -> str:
    """The published file's text."""
    return json.dumps(schema(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="ascii")
