"""YAML as a tree of positioned values, read strictly.

Refused, because each has opened or hidden something somewhere: duplicate keys, anchors
and aliases, merge keys, tags, several documents, deep nesting, and plain scalars that
YAML turns into something else than text (``no``, ``1.0``, ``2026-01-01``).

Readers take typed values out of the tree. On a mismatch they record a fault and return
a harmless value; see ``policies.faults``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import yaml

from policies.errors import Fault
from policies.faults import Faults, Place, shown

DEPTH_MAX: Final = 10
_KEPT: Final = 64
"""Texts whose tree is remembered: two policy folders."""
Sort = Literal["text", "integer", "truth", "nothing", "list", "map", "broken"]
_SORTS: Final[Mapping[str, Sort]] = {
    "tag:yaml.org,2002:str": "text",
    "tag:yaml.org,2002:int": "integer",
    "tag:yaml.org,2002:bool": "truth",
    "tag:yaml.org,2002:null": "nothing",
}


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the file: a scalar (``text``), a list (``items``) or a map (``fields``)."""

    place: Place
    sort: Sort
    text: str = ""
    items: tuple[Node, ...] = ()
    fields: Mapping[str, Node] | None = None


class _Loader(yaml.SafeLoader):
    """The safe loader without anchors, aliases and deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are not allowed", problem_mark=event.start_mark
            )
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_kept(file: str, text: str, faults: Faults) -> Node:
    """``parse`` of a policy file, next to free for a text that was read before: a reload, a diff
    and a release read a folder again of which most files are as they were."""
    root, found = _kept(file, text)
    faults.found.extend(found)
    return root


@functools.lru_cache(maxsize=_KEPT)
def _kept(file: str, text: str) -> tuple[Node, tuple[Fault, ...]]:
    faults = Faults()
    return parse(file, text, faults), tuple(faults.found)


def parse(file: str, text: str, faults: Faults) -> Node:
    """The one document of a file as a tree."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        problem = getattr(error, "problem", None) or "the file is not YAML"
        faults.add(place, "bad_yaml", str(problem).lower(), "correct it")
        return Node(place, "broken")
    except (ValueError, OverflowError):  # an escape or a version that is no number it can hold
        reason = "an escape or directive that yaml cannot read"
        faults.add(Place(file), "bad_yaml", reason, "correct it")
        return Node(Place(file), "broken")
    if root is None:
        faults.add(Place(file), "empty_file", "the file says nothing", "fill it or restore it")
        return Node(Place(file), "broken")
    return _convert(file, root, faults)


def _convert(file: str, node: yaml.Node, faults: Faults) -> Node:
    place = Place(file, node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.SequenceNode):
        return Node(place, "list", items=tuple(_convert(file, n, faults) for n in node.value))
    if isinstance(node, yaml.MappingNode):
        fields: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key = _convert(file, key_node, faults)
            if key.sort == "broken":
                continue  # reported where it broke
            if key.sort != "text":
                faults.add(key.place, "bad_key", "a key must be text", "quote it")
            elif key.text in fields:
                faults.add(
                    key.place,
                    "duplicate_key",
                    f"{shown(key.text)} stands here twice, and only one would count",
                    "remove one",
                )
            else:
                fields[key.text] = _convert(file, value_node, faults)
        return Node(place, "map", fields=fields)
    sort = _SORTS.get(node.tag)
    if sort is None:
        faults.add(
            place,
            "bad_scalar",
            f"{shown(str(node.value))} is read as `{node.tag.rpartition(':')[2]}`, not as text",
            "put it in quotes",
        )
        return Node(place, "broken", text=str(node.value))
    return Node(place, sort, text=str(node.value))


@dataclass(frozen=True, slots=True)
class Reader:
    """Typed access to nodes; every mismatch becomes a fault and a harmless value."""

    faults: Faults

    def fields(
        self, node: Node, *, required: Collection[str] = (), optional: Collection[str] = ()
    ) -> Mapping[str, Node]:
        """The fields of a map with a closed set of keys; missing required ones are filled in."""
        if node.fields is None:
            self._mismatch(node, "a map")
            return {key: Node(node.place, "broken") for key in required}
        known = (*required, *optional)
        for key, value in node.fields.items():
            if key not in known:
                self.faults.unknown(value.place, "key", key, known)
        missing = [key for key in required if key not in node.fields]
        for key in missing:
            self.faults.add(node.place, "missing_key", f"`{key}` is missing", "write it out")
        return {
            **{key: value for key, value in node.fields.items() if key in known},
            **{key: Node(node.place, "broken") for key in missing},
        }

    def entries(self, node: Node, what: str, pattern: re.Pattern[str]) -> Mapping[str, Node]:
        """The entries of a map whose keys are names that reviewers choose."""
        if node.fields is None:
            self._mismatch(node, f"a map of {what} names")
            return {}
        for key, value in node.fields.items():
            if not pattern.fullmatch(key):
                self._malformed(value.place, what, key, pattern)
        return {key: value for key, value in node.fields.items() if pattern.fullmatch(key)}

    def items(self, node: Node) -> tuple[Node, ...]:
        if node.sort != "list":
            self._mismatch(node, "a list")
        return node.items

    def text(self, node: Node, what: str, pattern: re.Pattern[str]) -> str:
        if node.sort != "text":
            self._mismatch(node, f"a {what} (text)")
            return ""
        if not pattern.fullmatch(node.text):
            self._malformed(node.place, what, node.text, pattern)
            return ""
        return node.text

    def word(self, node: Node, what: str, known: Collection[str]) -> str:
        """One word of a closed list."""
        if node.sort != "text":
            self._mismatch(node, f"a {what} (text)")
            return ""
        if node.text not in known:
            self.faults.unknown(node.place, what, node.text, known)
            return ""
        return node.text

    def texts(self, node: Node, what: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
        return self._distinct(node, [self.text(item, what, pattern) for item in self.items(node)])

    def words(self, node: Node, what: str, known: Collection[str]) -> tuple[str, ...]:
        return self._distinct(node, [self.word(item, what, known) for item in self.items(node)])

    def integer(self, node: Node, what: str, *, low: int, high: int) -> int:
        if node.sort != "integer" or not re.fullmatch(r"-?[0-9]+", node.text):
            self._mismatch(node, f"a {what} (whole number)")
            return low
        number = int(node.text) if len(node.text) < 12 else high + 1
        if not low <= number <= high:
            self.faults.add(
                node.place,
                "out_of_range",
                f"{what} {shown(node.text)} is out of range",
                f"use {low} to {high}",
            )
            return low
        return number

    def truth(self, node: Node, what: str) -> bool:
        if node.sort != "truth" or node.text not in ("true", "false"):
            self._mismatch(node, f"{what} as `true` or `false`")
            return False
        return node.text == "true"

    def _distinct(self, node: Node, values: list[str]) -> tuple[str, ...]:
        seen: set[str] = set()
        for item, value in zip(node.items, values, strict=True):
            if value and value in seen:
                self.faults.add(
                    item.place, "duplicate_word", f"{shown(value)} stands here twice", "remove one"
                )
            seen.add(value)
        return tuple(values)

    def _mismatch(self, node: Node, wanted: str) -> None:
        if node.sort == "broken":
            return  # reported where it broke
        got = shown(node.text) if node.text else f"a {node.sort}"
        self.faults.add(node.place, "wrong_type", f"{got} stands where {wanted} must", "correct it")

    def _malformed(self, place: Place, what: str, text: str, pattern: re.Pattern[str]) -> None:
        self.faults.add(
            place,
            "malformed",
            f"{shown(text)} is not a well-formed {what}",
            f"write it as `{pattern.pattern}`",
        )
