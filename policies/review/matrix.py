"""``matrix``: the whole policy as tables that fit a screen and a page.

The first table shows, value by value, whether a profile reads anything of that value; it is
what to look at. The second says exactly which states, as products; it is what holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from policies.kinds import Kind
from policies.loader import ANONYMOUS
from policies.predicate import boxes, cell_text
from policies.review.change import words
from policies.review.fold import products
from policies.review.page import Block, Grid, Heading, Lines, Page
from policies.review.reading import Reading
from policies.table import members
from policies.vocabulary import FACETS


class Mark(StrEnum):
    """What a profile reads of one value of a facet."""

    YES = "yes"
    CONSENT = "consent"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Matrix:
    """``marks`` maps (facet, value) to one mark per profile, in the order of ``profiles``.

    ``counts`` are states readable without and with consent; the other tables are as the page
    shows them, head first.
    """

    digest: str
    profiles: Mapping[str, str]
    counts: Mapping[str, tuple[int, int]]
    marks: Mapping[tuple[str, str], tuple[Mark, ...]]
    products: Grid
    audiences: Grid
    routes: Grid
    agents: Grid
    consents: Grid
    labels: Grid
    admin: Grid


def matrix(reading: Reading) -> Matrix:
    """The policy as tables. Cost: a third of a second for eight profiles."""
    snapshot = reading.snapshot
    return Matrix(
        snapshot.digest,
        snapshot.vocabulary.profiles,
        {
            profile: (len(grant.plain), len(grant.consented))
            for profile in snapshot.vocabulary.profiles
            for grant in [snapshot.grant([profile])]
        },
        dict(_marks(reading)),
        _products(reading),
        _rows(reading, Kind.AUDIENCE, ("issuer", "claim", "audience")),
        _routes(reading),
        _rows(reading, Kind.AGENTS, ("role", "task", "tool", "profile")),
        _rows(reading, Kind.CONSENT, ("audience", "purpose", "approver", "ttl")),
        _rows(reading, Kind.LABELS, ("audience", "approver", "author")),
        _rows(reading, Kind.ADMIN, ("role", "action")),
    )


def _marks(reading: Reading) -> Iterator[tuple[tuple[str, str], tuple[Mark, ...]]]:
    vocabulary, readable = reading.snapshot.vocabulary, reading.snapshot.table.units.readable
    for position, facet in enumerate(FACETS):
        for value in vocabulary.live(facet):
            cells = [vocabulary.live(other) for other in FACETS]
            cells[position] = (value,)
            box = reading.sets.box(cells)
            yield (
                (facet, value),
                tuple(
                    Mark.YES
                    if readable[profile, "none"] & box
                    else Mark.CONSENT
                    if readable[profile, "granted"] & box
                    else Mark.NO
                    for profile in vocabulary.profiles
                ),
            )


def _products(reading: Reading) -> Grid:
    vocabulary, readable = reading.snapshot.vocabulary, reading.snapshot.table.units.readable
    rows: list[tuple[str, ...]] = []
    for profile in vocabulary.profiles:
        plain, consented = readable[profile, "none"], readable[profile, "granted"]
        for consent, bits in (("*", plain), ("granted", consented & ~plain)):
            for box in boxes(vocabulary, members(bits)):
                cells = (cell_text(box.cells[f], vocabulary.live(f)) for f in FACETS)
                rows.append((profile, *cells, consent, str(box.size)))
    return Grid(("profile", *FACETS, "consent", "states"), tuple(rows))


def _routes(reading: Reading) -> Grid:
    snapshot = reading.snapshot
    callers = [*snapshot.vocabulary.audiences, ANONYMOUS]
    relation = snapshot.table.relations[Kind.ROUTES]
    rows = []
    for route in snapshot.routes:
        cells = []
        for caller in callers:
            may = [
                method
                for method in route.methods
                if relation.verdict(*map(_one, (caller, route.id, method))).allowed
            ]
            becomes = f" as {route.anonymous}" if caller == ANONYMOUS and may else ""
            cells.append((" ".join(may) or "-") + becomes)
        behind = route.upstream or route.operation
        opened = f", sockets from {' '.join(route.origins)}" if route.origins else ""
        rows.append((route.id, route.path, f"{route.mode} {behind}{opened}", *cells))
    return Grid(("route", "path", "mode", *callers), tuple(rows))


def _rows(reading: Reading, kind: Kind, head: tuple[str, ...]) -> Grid:
    """A small kind: what is allowed as products, and what a deny row takes from any request."""
    entries = reading.snapshot.table.relations[kind].entries
    rows = [
        (*map(words, product), verdict)
        for verdict, keys in (
            ("allow", [key for key, found in entries.items() if found.allowed]),
            ("deny", [key for key, found in entries.items() if found.denies]),
        )
        for product in products(keys)
    ]
    return Grid((*head, "eft"), tuple(rows))


def _one(word: str) -> frozenset[str]:
    return frozenset({word})


_SHOWN = {Mark.YES: "yes", Mark.CONSENT: "consent", Mark.NO: "-"}


def page(report: Matrix) -> Page:
    """The matrix for people."""
    profiles = tuple(report.profiles)
    summary = tuple((p, report.profiles[p], *map(str, report.counts[p])) for p in profiles)
    marks = tuple(
        (f"{facet}: {value}", *(_SHOWN[mark] for mark in row))
        for (facet, value), row in report.marks.items()
    )
    blocks: list[Block] = [
        Grid(("profile", "audience", "states", "with consent"), summary),
        Heading("What a profile reads something of"),
        Grid(("facet: value", *profiles), marks),
        Lines(("yes: some state of this value; consent: with a consent only; -: none",)),
    ]
    for title, grid in (
        ("Which states exactly", report.products),
        ("Who is who", report.audiences),
        ("Who may use which route", report.routes),
        ("What an agent works under", report.agents),
        ("Who may consent to whom", report.consents),
        ("Who may approve a label that opens units", report.labels),
        ("What an operator may ask", report.admin),
    ):
        blocks += [Heading(title), grid]
    return Page(f"policy {report.digest[:12]}", tuple(blocks))
