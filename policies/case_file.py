"""Reads one file of ``cases`` into typed cases."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policies.decision import UNCLASSED
from policies.faults import Faults, Place
from policies.kinds import AdminAction, LabelAuthor
from policies.loader import ANONYMOUS
from policies.snapshot import Snapshot
from policies.vocabulary import CONSENTS, FACETS
from policies.yamltree import Node, Reader

NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,120}")
UNIT: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
ANY: Final = re.compile(r"[\x20-\x7e]{1,200}")


class Ask(StrEnum):
    PLACE = "place"
    PLACE_AGENT = "place_agent"
    ROUTE = "route"
    CONSENT = "consent"
    ADMIN = "admin"
    LABEL = "label"


WORDS: Final[Mapping[Ask, tuple[str, ...]]] = {
    Ask.PLACE: ("issuer", "claims"),
    Ask.PLACE_AGENT: ("roles", "task", "tool"),
    Ask.ROUTE: ("audience", "route", "method"),
    Ask.CONSENT: ("audience", "purpose", "approver", "ttl"),
    Ask.ADMIN: ("roles", "action"),
    Ask.LABEL: ("audience", "approver", "author"),
}
"""What every question names, no more and no less."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """``allowed`` holds the (profile, unit, consent) that must be readable; no other may be."""

    place: Place
    name: str
    profiles: tuple[str, ...]
    units: Mapping[str, int]
    consents: tuple[str, ...]
    allowed: frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a small kind; ``expect`` is the value, empty for a denial."""

    place: Place
    name: str
    decide: Ask
    words: Mapping[str, str]
    claims: Mapping[str, frozenset[str]]
    expect: str


@dataclass(frozen=True, slots=True)
class Box:
    profiles: tuple[str, ...]
    consents: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Never:
    """No state of the box may be readable; with ``wanted`` all of them must be (``always``)."""

    place: Place
    name: str
    box: Box
    wanted: bool


@dataclass(frozen=True, slots=True)
class Subset:
    place: Place
    name: str
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Count:
    place: Place
    name: str
    profile: str
    consent: str
    allowed: int


Invariant = Never | Subset | Count


@dataclass(frozen=True, slots=True)
class CaseFile:
    tests: tuple[Matrix, ...]
    requests: tuple[Request, ...]
    invariants: tuple[Invariant, ...]


def read_case_file(file: str, tree: Node, snapshot: Snapshot, faults: Faults) -> CaseFile:
    """The cases of one file; half-read when faults were recorded."""
    read = _Cases(Reader(faults), snapshot)
    top = read.reader.fields(
        tree, required=("suite",), optional=("units", "tests", "requests", "invariants")
    )
    suite = read.reader.text(top["suite"], "suite name", NAME)
    units = read.units(top.get("units"))
    tests = tuple(read.matrix(node, units) for node in read.listed(top.get("tests")))
    requests = tuple(read.request(node) for node in read.listed(top.get("requests")))
    invariants = tuple(read.invariant(node, suite) for node in read.listed(top.get("invariants")))
    if not (tests or requests or invariants):
        faults.add(Place(file), "no_cases", "the file holds no case", "write one or remove it")
    return CaseFile(tests, requests, invariants)


class _Cases:
    """Reads the parts of a case file against one snapshot's words."""

    def __init__(self, reader: Reader, snapshot: Snapshot) -> None:
        self.reader = reader
        self._snapshot = snapshot
        self._vocabulary = snapshot.vocabulary
        self._profiles = tuple(snapshot.vocabulary.profiles)

    def listed(self, node: Node | None) -> tuple[Node, ...]:
        return self.reader.items(node) if node is not None else ()

    def units(self, node: Node | None) -> Mapping[str, int]:
        units: dict[str, int] = {}
        if node is None:
            return units
        for name, entry in self.reader.entries(node, "unit", UNIT).items():
            fields = self.reader.fields(entry, required=FACETS)
            values = {
                facet: self.reader.word(value, f"value of {facet}", self._vocabulary.live(facet))
                for facet, value in fields.items()
            }
            units[name] = self._vocabulary.class_id(values)
        return units

    def matrix(self, node: Node, units: Mapping[str, int]) -> Matrix:
        fields = self.reader.fields(
            node, required=("name", "profiles", "units", "allow"), optional=("consent",)
        )
        profiles = self.reader.words(fields["profiles"], "profile", self._profiles)
        names = self.reader.words(fields["units"], "unit of this file", tuple(units))
        consents = self._consents(fields.get("consent"))
        allowed: set[tuple[str, str, str]] = set()
        for item in self.reader.items(fields["allow"]):
            entry = self.reader.fields(item, required=("unit",), optional=("profile", "consent"))
            unit = self.reader.word(entry["unit"], "unit of this test", names)
            which = (
                (self.reader.word(entry["profile"], "profile of this test", profiles),)
                if "profile" in entry
                else profiles
            )
            given = (
                (self.reader.word(entry["consent"], "consent of this test", consents),)
                if "consent" in entry
                else consents
            )
            allowed |= {(profile, unit, consent) for profile in which for consent in given}
        return Matrix(
            node.place,
            self.reader.text(fields["name"], "name", NAME),
            profiles,
            {name: units.get(name, UNCLASSED) for name in names},
            consents,
            frozenset(allowed),
        )

    def request(self, node: Node) -> Request:
        every = {word for words in WORDS.values() for word in words}
        fields = dict(
            self.reader.fields(
                node, required=("name", "decide", "expect"), optional=tuple(sorted(every))
            )
        )
        ask = Ask(self.reader.word(fields["decide"], "decision", tuple(Ask)) or Ask.ROUTE)
        for word in every & set(fields):
            if word not in WORDS[ask]:
                self.reader.faults.unknown(fields[word].place, "key", word, WORDS[ask])
        for word in WORDS[ask]:
            if word not in fields:
                self.reader.faults.add(
                    node.place, "missing_key", f"`{word}` is missing", "write it out"
                )
        claims = (
            {
                name: frozenset(self.reader.texts(values, "alias", ANY))
                for name, values in self.reader.entries(fields["claims"], "claim", UNIT).items()
            }
            if "claims" in fields
            else {}
        )
        if "roles" in fields:
            claims["roles"] = frozenset(self.reader.texts(fields["roles"], "role", ANY))
        words = {
            word: self.reader.text(fields[word], word, ANY)
            for word in WORDS[ask]
            if word in fields and word not in ("claims", "roles")
        }
        self._known_words(fields)
        expect = self.reader.text(fields["expect"], "expected value", ANY)
        return Request(
            node.place,
            self.reader.text(fields["name"], "name", NAME),
            ask,
            words,
            claims,
            "" if expect == "denied" else expect,
        )

    def _known_words(self, fields: Mapping[str, Node]) -> None:
        known: Mapping[str, Collection[str]] = {
            "issuer": [issuer.alias for issuer in self._snapshot.issuers],
            "route": [route.id for route in self._snapshot.routes],
            "audience": [*self._vocabulary.audiences, *self._profiles, ANONYMOUS],
            "action": list(AdminAction),
            "author": list(LabelAuthor),
        }
        for key, words in known.items():
            if key in fields:
                self.reader.word(fields[key], key, words)

    def invariant(self, node: Node, suite: str) -> Invariant:
        fields = self.reader.fields(node, optional=("never", "always", "subset", "count"))
        if len(fields) != 1:
            self.reader.faults.add(
                node.place,
                "one_invariant",
                "an entry says one thing",
                "write `never`, `always`, `subset` or `count`",
            )
            return Subset(node.place, suite, ())
        ((word, body),) = fields.items()
        name = f"{suite}: {word}"
        match word:
            case "subset":
                return Subset(node.place, name, self.reader.words(body, "profile", self._profiles))
            case "count":
                return self._count(node.place, name, body)
            case _:
                return Never(node.place, name, self._box(body), wanted=word == "always")

    def _count(self, place: Place, name: str, body: Node) -> Count:
        count = self.reader.fields(body, required=("profile", "consent", "allowed"))
        return Count(
            place,
            name,
            self.reader.word(count["profile"], "profile", self._profiles),
            self.reader.word(count["consent"], "consent", CONSENTS),
            self.reader.integer(count["allowed"], "count", low=0, high=100_000),
        )

    def _box(self, body: Node) -> Box:
        fields = self.reader.fields(body, optional=("profile", "consent", *FACETS))
        if not fields and body.sort == "map":
            self.reader.faults.add(
                body.place, "empty_invariant", "the invariant names nothing", "name a facet"
            )
        return Box(
            self.reader.words(fields["profile"], "profile", self._profiles)
            if "profile" in fields
            else self._profiles,
            self._consents(fields.get("consent")),
            tuple(
                self.reader.words(fields[facet], f"value of {facet}", self._vocabulary.live(facet))
                if facet in fields
                else self._vocabulary.live(facet)
                for facet in FACETS
            ),
        )

    def _consents(self, node: Node | None) -> tuple[str, ...]:
        return self.reader.words(node, "consent", CONSENTS) if node is not None else CONSENTS
