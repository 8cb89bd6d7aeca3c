"""Decision records read back: strict about their form, tolerant of what was masked or left out.

A line that is no record of this version is an error with its number, never a record with
guesses in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from gateway.decisions.fields import (
    BY_PATH,
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
    leaves,
)
from gateway.decisions.record import ClassCount, DecisionRecord, Units
from gateway.errors import GatewayError
from policies.decision import UNCLASSED, Effect

_FAMILY: Final = SCHEMA.rpartition("/")[0]


class InvalidRecord(GatewayError):
    """A line is no decision record of this version. ``line`` counts from 1."""

    def __init__(self, line: int, reason: str, remedy: str) -> None:
        self.line = line
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"line {line}: {reason}; {remedy}")


class _Unfit(Exception):
    """What a line lacks; it becomes an InvalidRecord with the line's number."""


def read_records(
    lines: Iterable[str | bytes],
    *,
    skip_foreign: bool = False,
    faults: Callable[[InvalidRecord], None] | None = None,
) -> Iterator[DecisionRecord]:
    """The records of JSON lines, one by one, in order; blank lines are none.

    ``skip_foreign`` passes over JSON objects that do not say that they are decision records:
    standard output carries the access log, too. Records of another version are never skipped.
    ``faults`` is told of each line that is no record (one that a crash cut short), and the
    reading goes on behind it.

    Raises: InvalidRecord at the first such line when there is nobody to tell.
    """
    for number, line in enumerate(lines, start=1):
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
        if not text.strip():
            continue
        try:
            tree = _object(text)
            said = tree.get("schema")
            if skip_foreign and not (isinstance(said, str) and said.startswith(f"{_FAMILY}/")):
                continue
            yield _record(tree)
        except _Unfit as error:
            remedy = f"give lines of `{SCHEMA}`, as the gateway writes them"
            fault = InvalidRecord(number, str(error), remedy)
            if faults is None:
                raise fault from None
            faults(fault)


def _object(text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise _Unfit("not one JSON object, whole and without doubled keys") from error
    if not isinstance(tree, dict):
        raise _Unfit("not a JSON object")
    return tree


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("doubled key")
    return found


def _no_constants(word: str) -> float:
    raise ValueError(word)


def _record(tree: Mapping[str, Any]) -> DecisionRecord:
    if tree.get("schema") != SCHEMA:
        raise _Unfit(f"`schema` is not `{SCHEMA}`")
    unknown = sorted(tree.keys() - set(TOP_LEVEL))
    if unknown:
        raise _Unfit(f"`{unknown[0][:40]}` is no field")
    masked, erased = _paths(tree, "masked"), _paths(tree, "erased")
    take = _Taking(tree, masked, erased)
    values: dict[str, Any] = {
        field.path: take.leaf(tree, field, field.path)
        for field in FIELDS
        if "." not in field.path and field.path not in {"schema", "masked", "erased"}
    }
    units = take.container("units", dict)
    classes = take.container("classes", list)
    return DecisionRecord(
        **values,
        units=Units(**take.inner(units or {}, "units")),
        classes=tuple(ClassCount(**take.inner(one, "classes")) for one in classes or ()),
        masked=masked,
        erased=erased,
    )


class _Taking:
    """Takes values out of one record, knowing which are masked and which are not there."""

    def __init__(
        self, tree: Mapping[str, Any], masked: frozenset[str], erased: frozenset[str]
    ) -> None:
        self._tree = tree
        self._masked = masked
        self._erased = erased

    def leaf(self, holder: Mapping[str, Any], field: Field, key: str) -> object:
        erased = field.path in self._erased or field.path.partition(".")[0] in self._erased
        if key not in holder:
            if erased:
                return _ABSENT.get(field.form)
            raise _Unfit(f"`{field.path}` is missing")
        if erased:
            raise _Unfit(f"`{field.path}` is said to be erased and stands there")
        value = holder[key]
        if field.path in self._masked:
            return _mask(value, field)
        return _FORMS[field.form](value, field.path)

    def container(self, path: str, sort: type) -> Any:
        if path not in self._tree:
            if path in self._erased:
                return None
            raise _Unfit(f"`{path}` is missing")
        if path in self._erased or not isinstance(self._tree[path], sort):
            raise _Unfit(f"`{path}` is not what it should be")
        return self._tree[path]

    def inner(self, holder: object, path: str) -> dict[str, Any]:
        if not isinstance(holder, dict):
            raise _Unfit(f"`{path}` does not hold objects")
        fields = {one.rpartition(".")[2]: BY_PATH[one] for one in leaves(path)}
        if unknown := sorted(holder.keys() - fields.keys()):
            raise _Unfit(f"`{path}.{unknown[0][:40]}` is no field")
        return {key: self.leaf(holder, field, key) for key, field in fields.items()}


_ABSENT: Final[Mapping[Form, object]] = {
    Form.WORD: "",
    Form.WORDS: (),
    Form.REASON: "",
    Form.STATION: "",
}


def _paths(tree: Mapping[str, Any], key: str) -> frozenset[str]:
    value = tree.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _Unfit(f"`{key}` is not a list of paths")
    for path in value:
        if not leaves(path):
            raise _Unfit(f"`{key}` names `{path[:40]}`, which is no field that can be missing")
    return frozenset(value)


def _mask(value: object, field: Field) -> object:
    """A masked value as it stands: a text for words, none for what would be a number."""
    listed = field.form is Form.WORDS
    found = value if listed and isinstance(value, list) else [value]
    if not all(isinstance(one, str) and MASKED.fullmatch(one) for one in found):
        raise _Unfit(f"`{field.path}` is said to be masked and is not")
    if listed:
        return tuple(found)
    return value if field.form in _ABSENT else None


def _word(value: object, path: str) -> str:
    if not isinstance(value, str) or not WORD.fullmatch(value):
        raise _Unfit(f"`{path}` is not a word or an id")
    return value


def _words(value: object, path: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Unfit(f"`{path}` is not a list")
    return tuple(_word(one, path) for one in value)


def _time(value: object, path: str) -> str:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        raise _Unfit(f"`{path}` is not a time in UTC with microseconds")
    return value


def _effect(value: object, path: str) -> Effect:
    if value not in ("allow", "deny"):  # a tuple: what cannot be hashed is not in it either
        raise _Unfit(f"`{path}` is neither `allow` nor `deny`")
    return Effect(value)


def _one_of(known: tuple[str, ...]) -> Callable[[object, str], str]:
    def take(value: object, path: str) -> str:
        if value not in known or not isinstance(value, str):
            raise _Unfit(f"`{path}` is not one of its words")
        return value

    return take


def _integer(smallest: int) -> Callable[[object, str], int]:
    def take(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
            raise _Unfit(f"`{path}` is not an integer from {smallest} on")
        return value

    return take


def _flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise _Unfit(f"`{path}` is neither true nor false")
    return value


def _ratio(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise _Unfit(f"`{path}` is not a ratio above 0 and up to 1")
    return float(value)


_FORMS: Final[Mapping[Form, Callable[[object, str], object]]] = {
    Form.WORD: _word,
    Form.WORDS: _words,
    Form.EFFECT: _effect,
    Form.REASON: _one_of(REASONS),
    Form.STATION: _one_of(STATIONS),
    Form.TIME: _time,
    Form.COUNT: _integer(0),
    Form.CLASS: _integer(UNCLASSED),
    Form.FLAG: _flag,
    Form.RATIO: _ratio,
}
