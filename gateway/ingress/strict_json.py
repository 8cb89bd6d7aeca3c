"""JSON with one reading: what two parsers would read differently is refused.

Refused are duplicate keys, NaN and infinities (also by overflow), a byte-order mark, lone
surrogates, bytes that are not UTF-8, and nesting beyond ``DEPTH_MAX``.

Source: attack log rows F8-F13, J15; RFC 8259 sections 4, 8.
"""

from __future__ import annotations

import json
import math
from typing import Final, Never

DEPTH_MAX: Final = 64

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class NotStrictJson(ValueError):
    """The text is not JSON, or has more than one reading."""


def parse(text: bytes) -> Json:
    """The tree of a JSON text. Cost: linear; the caller bounds the size.

    Raises: NotStrictJson.
    """
    try:
        tree: Json = _DECODER.decode(text.decode("utf-8"))
        _check(tree, DEPTH_MAX)
    except (ValueError, RecursionError) as error:
        raise NotStrictJson("not strict JSON") from error
    return tree


def parse_object(text: bytes) -> dict[str, Json]:
    """As :func:`parse`, for a text whose outermost value must be an object."""
    tree = parse(text)
    if not isinstance(tree, dict):
        raise NotStrictJson("not an object")
    return tree


def _no_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        raise NotStrictJson("a key stands twice")
    return tree


def _refuse(word: str) -> Never:
    raise NotStrictJson(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotStrictJson("a number is too large")
    return number


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_refuse, parse_float=_finite
)
"""`json.loads` would make one for each text, which takes as long as reading a small one."""


def _check(tree: Json, depth: int) -> None:
    if depth == 0:
        raise NotStrictJson("nested too deeply")
    if isinstance(tree, str):
        tree.encode("utf-8")  # a lone surrogate has no UTF-8 form
    elif isinstance(tree, list):
        for item in tree:
            _check(item, depth - 1)
    elif isinstance(tree, dict):
        for key, item in tree.items():
            key.encode("utf-8")
            _check(item, depth - 1)
