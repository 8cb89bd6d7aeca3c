"""Reads ``rules/vocabulary.yaml`` and ``rules/classes.lock``, which must agree."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from policies import files
from policies.faults import Faults, Place, shown
from policies.files import PolicyFiles
from policies.vocabulary import (
    CLASS_LIMIT,
    FACETS,
    ORDERED,
    RESERVED,
    Generation,
    Vocabulary,
)
from policies.yamltree import Node, Reader, parse_kept

FILE: Final = "rules/vocabulary.yaml"
LOCK: Final = "rules/classes.lock"
VALUE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
PROFILE: Final = re.compile(r"[a-z][a-z0-9_]{0,19}(:[a-z][a-z0-9_]{0,19})?")
ROLE: Final = re.compile(r"role:[a-z][a-z0-9_]{0,39}")
TTL: Final = re.compile(r"[1-9][0-9]{0,2}[mhd]")
_APPENDED: Final = "lock_behind"
_KEYS: Final = (
    "facets", "retired", "orders", "compartments", "audiences", "profiles",
    "roles", "tasks", "tools", "purposes", "ttls",
)  # fmt: skip


def read_vocabulary(found: PolicyFiles, faults: Faults) -> Vocabulary | None:
    """The vocabulary, or None with the reasons recorded."""
    before = len(faults.found)
    text, lock_text = found.text(FILE, faults), found.text(LOCK, faults)
    if text is None or lock_text is None:
        return None
    read = Reader(faults)
    top = read.fields(parse_kept(FILE, text, faults), required=_KEYS)
    facets = _facets(read, top["facets"])
    generations = read_lock(lock_text, faults)
    if generations:
        _compare(facets, generations[-1], top["facets"], faults)
    retired = {
        facet: frozenset(read.words(node, f"value of {facet}", facets[facet]))
        for facet, node in read.fields(top["retired"], optional=FACETS).items()
    }
    audiences = read.texts(top["audiences"], "audience", VALUE)
    profiles = {
        name: read.word(node, "audience", audiences)
        for name, node in read.entries(top["profiles"], "profile", PROFILE).items()
    }
    _check_reserved((*audiences, *profiles), top["audiences"].place, faults)
    compartments = read.words(top["compartments"], "compartment", ("tenant", "jurisdiction"))
    orders = _orders(read, top["orders"], facets)
    words = {
        key: read.texts(top[key], key.removesuffix("s"), pattern)
        for key, pattern in (
            ("roles", ROLE), ("tasks", VALUE), ("tools", VALUE), ("purposes", VALUE), ("ttls", TTL),
        )
    }  # fmt: skip
    for key in ("tasks", "tools", "purposes"):
        _check_reserved(words[key], top[key].place, faults)
    _check_role_names(tuple(profiles), top["profiles"].place, faults)
    if len(faults.found) > before:
        return None
    return Vocabulary(
        facets=facets,
        retired={facet: retired.get(facet, frozenset()) for facet in FACETS},
        orders=orders,
        compartments=compartments,
        audiences=audiences,
        profiles=profiles,
        roles=words["roles"],
        tasks=words["tasks"],
        tools=words["tools"],
        purposes=words["purposes"],
        ttls=words["ttls"],
        generations=generations,
    )


def read_lock(text: str, faults: Faults) -> tuple[Generation, ...]:
    """The generations of the lock, each of which must only append to the one before."""
    generations: list[dict[str, tuple[str, ...]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        head, _, rest = line.partition(" ")
        place = Place(LOCK, number, 1)
        if head == "generation":
            if rest != str(len(generations) + 1):
                _lock_fault(faults, place, f"generation {shown(rest)} is out of turn")
            generations.append({})
        elif head not in FACETS or not generations or head in generations[-1]:
            _lock_fault(faults, place, f"{shown(head)} is not expected here")
        else:
            values = tuple(rest.split("|"))
            if len(set(values)) != len(values) or not all(map(VALUE.fullmatch, values)):
                _lock_fault(faults, place, "the values are malformed or stand twice")
            if len(generations) > 1:
                older = generations[-2].get(head, ())
                if values[: len(older)] != older:
                    _lock_fault(faults, place, f"{head} does not start with the values before it")
            generations[-1][head] = values
    for number, generation in enumerate(generations, 1):
        if set(generation) != set(FACETS):
            _lock_fault(faults, Place(LOCK), f"generation {number} does not list every facet")
            return ()
    if not generations:
        _lock_fault(faults, Place(LOCK), "there is no generation")
    elif math.prod(len(v) for v in generations[-1].values()) > CLASS_LIMIT:
        _lock_fault(faults, Place(LOCK), f"there would be more than {CLASS_LIMIT} classes")
        return ()
    return tuple(generations)


def append_generation(folder: Path) -> str:
    """Writes one more generation to the lock when the vocabulary has appended values.

    Returns what was done, for people. Raises InvalidPolicy when the vocabulary does more
    than append: then ids would move under labels that are stored already.
    """
    faults = Faults()
    found = files.read(folder, None, faults)
    text, lock_text = found.text(FILE, faults), found.text(LOCK, faults)
    faults.check()
    read = Reader(faults)
    top = read.fields(parse_kept(FILE, text or "", faults), required=_KEYS)
    facets = _facets(read, top["facets"])
    generations = read_lock(lock_text or "", faults)
    faults.check()
    if facets == generations[-1]:
        return "the lock knows every value already"
    _compare(facets, generations[-1], top["facets"], faults)
    faults.found = [fault for fault in faults.found if fault.code != _APPENDED]
    faults.check()
    number = len(generations) + 1
    lines = [f"generation {number}", *(f"{facet} {'|'.join(facets[facet])}" for facet in FACETS)]
    addition = "\n".join(lines) + "\n"
    read_lock((lock_text or "") + addition, faults)
    faults.check()
    with (folder / LOCK).open("a", encoding="utf-8") as lock:
        lock.write(addition)
    return f"generation {number} was appended to {LOCK}"


def _lock_fault(faults: Faults, place: Place, reason: str) -> None:
    faults.add(
        place,
        "bad_lock",
        reason,
        "restore the lock from history: stored labels hold its ids; new values are appended by "
        "`python -m policies lock`",
    )


def _facets(read: Reader, node: Node) -> dict[str, tuple[str, ...]]:
    facets: dict[str, tuple[str, ...]] = {}
    for facet, values in read.fields(node, required=FACETS).items():
        facets[facet] = read.texts(values, f"value of {facet}", VALUE)
        _check_reserved(facets[facet], values.place, read.faults)
        if not facets[facet] and values.sort != "broken":
            read.faults.add(values.place, "empty_list", f"{facet} has no value", "list its values")
    return facets


def _orders(
    read: Reader, node: Node, facets: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    orders: dict[str, tuple[str, ...]] = {}
    for facet, values in read.fields(node, required=ORDERED).items():
        orders[facet] = read.words(values, f"value of {facet}", facets[facet])
        for value in facets[facet]:
            if value not in orders[facet] and values.sort == "list":
                read.faults.add(
                    values.place,
                    "order_incomplete",
                    f"the order of {facet} does not say where `{value}` stands",
                    "add it, loosest first",
                )
    return orders


def _check_reserved(words: tuple[str, ...], place: Place, faults: Faults) -> None:
    for word in words:
        if word in RESERVED:
            faults.add(
                place, "reserved_word", f"`{word}` has a meaning of its own", "choose another word"
            )


def _check_role_names(profiles: tuple[str, ...], place: Place, faults: Faults) -> None:
    """Two profiles must not share a database role, whose name cannot hold a colon."""
    taken: dict[str, str] = {}
    for profile in profiles:
        twin = taken.setdefault(profile.replace(":", "_"), profile)
        if twin != profile:
            faults.add(
                place,
                "role_collision",
                f"profiles `{twin}` and `{profile}` would share one database role",
                "rename one",
            )


def _compare(
    facets: Mapping[str, tuple[str, ...]], newest: Generation, node: Node, faults: Faults
) -> None:
    for facet in FACETS:
        listed, locked = facets.get(facet, ()), newest[facet]
        if listed == locked:
            continue
        place = node.fields[facet].place if node.fields and facet in node.fields else node.place
        if listed[: len(locked)] == locked:
            code = _APPENDED
            reason = f"{facet} has values that classes.lock does not know yet"
            remedy = "run `python -m policies lock` to give them ids"
        else:
            code = "lock_mismatch"
            reason = f"{facet} removes or reorders values of classes.lock, whose ids are stored"
            remedy = "restore the old order; append new values, retire old ones under `retired`"
        faults.add(place, code, reason, remedy)
