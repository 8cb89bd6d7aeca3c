"""The seven kinds of decision: their columns, the file of their rules, and their fixed model.

Every kind has one shape, the only one whose compiled form is exact by set algebra: a row
matches a request when, in every column, the row's set and the request's set have a member
in common; a request is allowed when an allow row matches and no deny row does.

Requests have one value per column, but for the columns in ``many`` (an agent's roles, a
caller's claims): there they carry all that the caller has, so that a deny row on any one
of them counts.

Two kinds are ``optional``: a policy without the file has no row of that kind, so nobody may
do what it decides. (An empty file is still refused: it looks like rules and holds none.)

Models are generated from this table and pinned by hash; reviewers never edit them, and
an edit of this module that changes one is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policies.vocabulary import FACETS


class Kind(StrEnum):
    AUDIENCE = "audience"
    AGENTS = "agents"
    ROUTES = "routes"
    UNITS = "units"
    CONSENT = "consent"
    ADMIN = "admin"
    LABELS = "labels"


class AdminAction(StrEnum):
    """What an operator may ask of the running gateway; closed, because each has its own code.

    The three ``live`` actions are steps: how many units a change touches by order of
    magnitude, exactly, and which ones. The two of threads reach the threads of those sources
    that the operator's verified ``sources`` name.
    """

    LIVE_BUCKETED = "live_bucketed"
    LIVE_COUNTS = "live_counts"
    LIVE_IDS = "live_ids"
    EXPLAIN_UNIT = "explain_unit"
    READ_SHADOW = "read_shadow"
    READ_THREADS = "read_threads"
    EDIT_THREADS = "edit_threads"


class LabelAuthor(StrEnum):
    """Whether the approver of a label change wrote it: ``same`` person, or an ``other``."""

    OTHER = "other"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Shape:
    """``columns`` in file order, without rule id and eft. ``paired`` columns are read as one
    value ``claim=value``, because they only mean something together. ``optional``: the file
    may be absent, and then nobody may do anything of this kind."""

    kind: Kind
    columns: tuple[str, ...]
    many: frozenset[str] = frozenset()
    paired: tuple[str, str] | None = None
    optional: bool = False

    @property
    def file(self) -> str:
        return f"rules/{self.kind}.csv"

    @property
    def model_file(self) -> str:
        return f"models/{self.kind}.conf"

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of a request, a pair counting as one."""
        if self.paired is None:
            return self.columns
        first, second = self.paired
        return tuple(
            f"{first}={second}" if column == first else column
            for column in self.columns
            if column != second
        )

    @property
    def model_text(self) -> str:
        """The Casbin model. One matcher line, one effect, no literals, no patterns."""
        names = [axis.replace("=", "_") for axis in self.axes]
        matcher = " && ".join(f"meets(r.{name}, p.{name})" for name in names)
        return (
            "# Generated from policies/kinds.py and pinned by hash: do not edit.\n"
            f"[request_definition]\nr = {', '.join(names)}\n\n"
            f"[policy_definition]\np = id, {', '.join(names)}, eft\n\n"
            "[policy_effect]\n"
            "e = some(where (p.eft == allow)) && !some(where (p.eft == deny))\n\n"
            f"[matchers]\nm = {matcher}\n"
        )


SHAPES: Final = {
    shape.kind: shape
    for shape in (
        Shape(
            Kind.AUDIENCE,
            ("issuer", "claim", "value", "audience"),
            many=frozenset({"claim=value"}),
            paired=("claim", "value"),
        ),
        Shape(Kind.AGENTS, ("role", "task", "tool", "profile"), many=frozenset({"role"})),
        Shape(Kind.ROUTES, ("audience", "route", "method")),
        Shape(Kind.UNITS, ("profile", *FACETS, "consent")),
        Shape(Kind.CONSENT, ("audience", "purpose", "approver", "ttl")),
        Shape(Kind.ADMIN, ("role", "action"), many=frozenset({"role"}), optional=True),
        Shape(Kind.LABELS, ("audience", "approver", "author"), optional=True),
    )
}

MODEL_SHA256: Final = {
    Kind.AUDIENCE: "f80ecb9b20b9462019c8b74f91f6079c4b77392c95254d234b68b518132632ec",
    Kind.AGENTS: "0c7e8aa0e6ff9f2ae6249940b0e26ddf7cebe6e932a284c11c705f8d6af8073d",
    Kind.ROUTES: "b47027e26dee9e22a21b4ddb006961a4fd51836b711508c714f6ca1822df61a5",
    Kind.UNITS: "c596c5068af7b6c59690b501a7c523f5fe878319887fb4dae138612657243cd1",
    Kind.CONSENT: "3901ac28ac6a93802545e15821e18b19e90fa42e62ea3ebcd32cdb260b2c1faf",
    Kind.ADMIN: "0e6e499f09c6659660805ee6f00527157547eca715f526508f3f04e0b700810d",
    Kind.LABELS: "b65666befc0892323d163a6115aac212a93ca429b6fd4a9b645a97ee5d6f012f",
}
"""The models that the compiler is proven for. A change here is a change of semantics."""
