"""Reads a model and a policy that somebody brought, and refuses what Casbin would misread.

Casbin's own readers drop rows, take the last of two keys and end a matcher early, each
without a word. Here a text is either understood whole or refused with a line and a reason, and
what Casbin then gets is written anew from what was understood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies.decision import Effect
from policies.faults import Faults, Place, shown

MODEL, POLICY = "model.conf", "policy.csv"
SECTIONS: Final = {
    "request_definition": ("r",),
    "policy_definition": ("p",),
    "role_definition": ("g", "g2"),
    "policy_effect": ("e",),
    "matchers": ("m",),
}
ALLOW_OVERRIDE: Final = "some(where (p.eft == allow))"
ALLOW_AND_DENY: Final = "some(where (p.eft == allow)) && !some(where (p.eft == deny))"
DEPTH_MAX: Final = 3
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_WORD: Final = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_.:/-]*")
_TOKEN: Final = re.compile(
    r'\s+|[rp]\.[a-z][a-z0-9_]*|g2?(?=\()|==|&&|\|\||[(),]|"[A-Za-z0-9_]+"|\S+?(?=\W|$)|\S'
)
_PLAIN_TOKEN: Final = re.compile(r'[rp]\.[a-z][a-z0-9_]*|g2?|==|&&|\|\||[(),]|"[A-Za-z0-9_]+"')


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model that was understood: names of the request and of the policy row, its role
    relations with their number of fields, its effect and its matcher, each on one line."""

    request: tuple[str, ...]
    columns: tuple[str, ...]
    roles: Mapping[str, int]
    effect: str
    matcher: str

    @property
    def text(self) -> str:
        """The model as Casbin gets it."""
        roles = "".join(f"{n} = {', '.join('_' * size)}\n" for n, size in self.roles.items())
        return (
            f"[request_definition]\nr = {', '.join(self.request)}\n\n"
            f"[policy_definition]\np = {', '.join(self.columns)}\n\n"
            + (f"[role_definition]\n{roles}\n" if roles else "")
            + f"[policy_effect]\ne = {self.effect}\n\n[matchers]\nm = {self.matcher}\n"
        )


@dataclass(frozen=True, slots=True)
class ForeignRow:
    """One row: its type (``p``, ``g`` or ``g2``) and its words."""

    sort: str
    words: tuple[str, ...]


def read_model(text: str) -> ForeignModel:
    """The model. Raises InvalidPolicy with every reason for which it cannot be compiled."""
    faults = Faults()
    values = _sections(text, faults)
    for section, keys in SECTIONS.items():
        if section != "role_definition" and keys[0] not in values:
            _refuse(
                faults, Place(MODEL), "missing_section", f"`{keys[0]}` of [{section}] is missing"
            )
    request = _names(values.get("r"), faults)
    columns = _names(values.get("p"), faults)
    roles = {key: _role_size(values[key], faults) for key in ("g", "g2") if key in values}
    effect = _effect(values.get("e"), columns, faults)
    matcher = _matcher(values.get("m"), request, columns, roles, faults)
    faults.check()
    return ForeignModel(request, columns, roles, effect, matcher)


def read_policy(text: str, model: ForeignModel) -> tuple[ForeignRow, ...]:
    """The rows. Raises InvalidPolicy with every fault."""
    faults = Faults()
    wanted = {"p": len(model.columns), **model.roles}
    rows: dict[ForeignRow, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" ") or line.startswith("#"):
            continue
        place = Place(POLICY, number, 1)
        sort, *words = (part.strip(" ") for part in line.split(","))
        if sort not in wanted:
            _refuse(faults, place, "unknown_row_type", f"{shown(sort)} is no row of this model")
        elif len(words) != wanted[sort]:
            reason = f"the row has {len(words)} words where {wanted[sort]} are declared"
            _refuse(faults, place, "wrong_arity", reason)
        else:
            row = ForeignRow(sort, tuple(words))
            _check_row(row, model, place, faults)
            if row in rows:
                _refuse(faults, place, "duplicate_rule", f"the row stands in line {rows[row]}, too")
            rows.setdefault(row, number)
    if not any(row.sort == "p" for row in rows):
        reason = "the policy holds no rule, and Casbin would run the matcher once with empty words"
        _refuse(faults, Place(POLICY), "no_rules", reason)
    _check_roles(rows, faults)
    faults.check()
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    place: Place


def _sections(text: str, faults: Faults) -> Mapping[str, _Value]:
    """Every key with its value; sections, keys and lines that mean something else are refused."""
    values: dict[str, _Value] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        place, stripped = Place(MODEL, number, 1), line.strip(" ")
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("["):
            section = stripped.strip("[]")
            if section not in SECTIONS:
                _refuse(faults, place, "unknown_section", f"Casbin would drop {shown(stripped)}")
            continue
        key, equals, value = (part.strip(" ") for part in stripped.partition("="))
        if not equals or key not in SECTIONS.get(section, ()):
            reason = f"{shown(key)} is not expected in [{section}]: one definition of each is read"
            _refuse(faults, place, "multiple_definitions", reason)
        elif key in values:
            _refuse(
                faults, place, "duplicate_key", f"{shown(key)} is there twice; the last would win"
            )
        elif value.endswith("\\"):
            reason = "the value goes on in the next line, where a comment would end it silently"
            _refuse(faults, place, "several_lines", reason)
        elif "#" in value or ";" in value:
            _refuse(
                faults, place, "inline_comment", "Casbin reads a comment in a value in two ways"
            )
        else:
            values[key] = _Value(value, place)
    return values


def _names(value: _Value | None, faults: Faults) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(part.strip(" ") for part in value.text.split(","))
    if len(set(names)) != len(names) or not all(map(_NAME.fullmatch, names)):
        _refuse(
            faults, value.place, "bad_names", f"{shown(value.text)} are not distinct plain names"
        )
    for name, instead in (("effect", "eft"), ("priority", "no order of rows")):
        if name in names:
            _refuse(faults, value.place, "bad_names", f"`{name}` is read otherwise; use {instead}")
    if "eft" in names[:-1]:
        _refuse(faults, value.place, "bad_names", "`eft` must be the last column")
    return names


def _role_size(value: _Value, faults: Faults) -> int:
    parts = [part.strip(" ") for part in value.text.split(",")]
    if set(parts) != {"_"} or len(parts) not in (2, 3):
        _refuse(faults, value.place, "bad_roles", "a role relation is `_, _` or `_, _, _`")
    return len(parts)


def _effect(value: _Value | None, columns: Sequence[str], faults: Faults) -> str:
    if value is None:
        return ""
    text = " ".join(value.text.split()).replace("p_eft", "p.eft")
    if text not in (ALLOW_OVERRIDE, ALLOW_AND_DENY):
        reason = f"{shown(value.text)}: with it an unknown caller or the order of rows would decide"
        _refuse(faults, value.place, "unsupported_effect", reason)
    if text == ALLOW_AND_DENY and "eft" not in columns:
        _refuse(faults, value.place, "unsupported_effect", "no column `eft` says which rows deny")
    return text


def _matcher(
    value: _Value | None,
    request: Sequence[str],
    columns: Sequence[str],
    roles: Mapping[str, int],
    faults: Faults,
) -> str:
    if value is None:
        return ""
    known = {f"r.{name}" for name in request} | {f"p.{name}" for name in columns} | set(roles)
    for token in _TOKEN.findall(value.text):
        if token.isspace():
            continue
        named = token[:2] in ("r.", "p.") or token in ("g", "g2")
        if not _PLAIN_TOKEN.fullmatch(token):
            reason = (
                f"{shown(token)} is no part of a matcher that can be enumerated: equality of words,"
                " roles, `&&` and `||` are; functions, patterns, `eval`, `in` and negation are not"
            )
            _refuse(faults, value.place, "unsupported_matcher", reason)
        elif named and token not in known:
            _refuse(faults, value.place, "unknown_name", f"{shown(token)} is not defined")
    return value.text


def _check_row(row: ForeignRow, model: ForeignModel, place: Place, faults: Faults) -> None:
    for word in row.words:
        if not _WORD.fullmatch(word):
            reason = f"{shown(word)} is not one plain word: no quotes, patterns or expressions"
            _refuse(faults, place, "bad_token", reason)
    if row.sort == "p" and model.columns[-1] == "eft" and row.words[-1] not in (*Effect,):
        reason = f"eft is {shown(row.words[-1])}; Casbin would ignore the row without a word"
        _refuse(faults, place, "bad_effect", reason)


def _check_roles(rows: Mapping[ForeignRow, int], faults: Faults) -> None:
    """No cycle, and no chain that Casbin's own limit could cut."""
    parents: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for row in rows:
        if row.sort != "p":
            child, parent, *domain = row.words
            key = (row.sort, *domain)
            parents.setdefault((*key, child), set()).add((*key, parent))
    for start in parents:
        level, depth = {start}, 0
        while level:
            level = set().union(*(parents.get(one, set()) for one in level))
            depth += bool(level)
            if start in level or depth > DEPTH_MAX:
                reason = f"roles from {shown(start[-1])} go in a circle or deeper than {DEPTH_MAX}"
                _refuse(faults, Place(POLICY), "role_chain", reason)
                break


def _refuse(faults: Faults, place: Place, code: str, reason: str) -> None:
    faults.add(place, code, reason, "write the model without it, or use the shipped one")
