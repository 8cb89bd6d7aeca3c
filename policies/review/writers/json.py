"""A report's own fields as JSON: sorted where a set has no order, ASCII, stable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def write(report: object) -> str:
    """One document, ending in one line feed."""
    return json.dumps(plain(report), indent=1, ensure_ascii=True) + "\n"


def plain(value: object) -> Any:
    """A frozen dataclass, with all that it holds, as lists, maps and scalars."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
