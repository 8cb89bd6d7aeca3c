"""The published form is the table of fields: the JSON Schema's file and the README's table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.fields import CONTAINERS, FIELDS, REDACTABLE
from gateway.decisions.redaction import Redaction
from gateway.decisions.schema import FILE, schema, text
from gateway.decisions.writing import values_of
from policies.snapshot import Snapshot
from tests.gateway.decisions.made import requests

README = Path(__file__).parents[3] / "gateway" / "README.md"


def fits(node: dict[str, Any], value: Any) -> bool:
    """Whether a value fits: the few keywords that our schema uses, none skipped."""
    assert node.keys() <= {
        "$schema", "$id", "title", "description", "type", "properties", "required",
        "additionalProperties", "items", "anyOf", "enum", "const", "pattern", "minimum",
        "exclusiveMinimum", "maximum",
    }  # fmt: skip
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool,
                             "integer": int, "number": (int, float)}  # fmt: skip
    kind = node.get("type")
    if kind is not None and not isinstance(value, kinds[kind]):
        return False
    if isinstance(value, bool) and kind in {"integer", "number"}:
        return False
    if "anyOf" in node and not any(fits(one, value) for one in node["anyOf"]):
        return False
    if "enum" in node and value not in node["enum"]:
        return False
    if "const" in node and value != node["const"]:
        return False
    if "pattern" in node and not re.search(node["pattern"], value):
        return False
    if kind in {"integer", "number"} and not (
        node.get("minimum", value) <= value <= node.get("maximum", value)
        and value > node.get("exclusiveMinimum", value - 1)
    ):
        return False
    if kind == "array":
        return all(fits(node["items"], one) for one in value)
    if kind == "object":
        properties = node["properties"]
        return (
            value.keys() <= properties.keys()
            and set(node.get("required", ())) <= value.keys()
            and all(fits(properties[name], one) for name, one in value.items())
        )
    return True


def test_the_published_file_is_the_one_that_the_code_makes() -> None:
    """``python -m gateway.decisions.schema`` writes it anew."""
    assert FILE.read_text(encoding="ascii") == text()
    assert json.loads(text()) == schema()


@given(st.data())
def test_every_written_record_fits_the_published_schema(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Masked and dropped ones included."""
    paths = st.lists(st.sampled_from((*REDACTABLE, *CONTAINERS)), max_size=5)
    redaction = Redaction(
        mask=data.draw(paths), drop=data.draw(paths), key=data.draw(st.sampled_from(["", "k"]))
    )
    record = redaction.applied(values_of(data.draw(requests(snapshot)), sampled=0.5))
    assert fits(schema(), record)
    assert not fits(schema(), record | {"title": "x"})


def test_every_field_is_documented_with_its_form_and_meaning() -> None:
    """The README's table, row by row."""
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| (\w+)( \*)? \| (.+) \|$", README.read_text(), re.MULTILINE
    )
    assert [(path, form, star != "", meaning) for path, form, star, meaning in rows] == [
        (one.path, str(one.form), one.fixed, one.meaning) for one in FIELDS
    ]
