"""Whether a value is what a JSON Schema says: the few keywords that our documents use."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

Node = Mapping[str, Any]
_KINDS: Final[dict[str, Any]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
    "number": (int, float), "null": type(None),
}  # fmt: skip
_SILENT: Final = {"$schema", "$id", "title", "description", "default"}
_KNOWN: Final = _SILENT | {
    "$ref", "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum",
    "const", "pattern", "format", "minimum", "exclusiveMinimum", "maximum", "minLength",
    "maxLength", "minItems", "maxItems",
}  # fmt: skip


def fits(node: Node, value: Any, root: Node | None = None) -> bool:
    """Whether ``value`` fits; references lead into ``root``. Raises: AssertionError for a keyword
    that this does not know: none is skipped."""
    root = node if root is None else root
    assert node.keys() <= _KNOWN, node.keys() - _KNOWN
    if "$ref" in node and not fits(_referred(root, node["$ref"]), value, root):
        return False
    kinds = node.get("type", ())
    if kinds and not any(
        _is(kind, value) for kind in ([kinds] if isinstance(kinds, str) else kinds)
    ):
        return False
    if "anyOf" in node and not any(fits(one, value, root) for one in node["anyOf"]):
        return False
    if "enum" in node and value not in node["enum"]:
        return False
    if "const" in node and value != node["const"]:
        return False
    if isinstance(value, str):
        return _fits_text(node, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bool(
            node.get("minimum", value) <= value <= node.get("maximum", value)
            and value > node.get("exclusiveMinimum", value - 1)
        )
    if isinstance(value, list):
        within = node.get("minItems", 0) <= len(value) <= node.get("maxItems", len(value))
        return within and all(fits(node.get("items", {}), one, root) for one in value)
    if isinstance(value, dict):
        return _fits_object(node, value, root)
    return True


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool) and kind in {"integer", "number"}:
        return False
    return isinstance(value, _KINDS[kind])


def _fits_text(node: Node, value: str) -> bool:
    # `$` of a schema is the very end, Python's is also before a last line feed
    pattern = re.sub(r"\$$", r"\\Z", node.get("pattern", ""))
    within = node.get("minLength", 0) <= len(value) <= node.get("maxLength", len(value))
    return within and re.search(pattern, value) is not None and _has_format(node, value)


def _has_format(node: Node, value: str) -> bool:
    match node.get("format"):
        case None:
            return True
        case "uuid":
            try:
                return str(uuid.UUID(value)) == value.lower()
            except ValueError:
                return False
        case "date-time":
            try:
                return datetime.fromisoformat(value).tzinfo is not None
            except ValueError:
                return False
        case "uri":
            return bool(urlsplit(value).scheme)
        case other:
            raise AssertionError(f"unknown format `{other}`")


def _fits_object(node: Node, value: dict[str, Any], root: Node) -> bool:
    properties, further = node.get("properties", {}), node.get("additionalProperties", True)
    if not set(node.get("required", ())) <= value.keys():
        return False
    for name, one in value.items():
        allowed = properties.get(name, further)
        if allowed is False or (allowed is not True and not fits(allowed, one, root)):
            return False
    return True


def _referred(root: Node, reference: str) -> Node:
    found: Any = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    assert isinstance(found, dict), reference
    return found
