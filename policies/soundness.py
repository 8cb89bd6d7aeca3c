"""What a policy must not say although every word of it is well-formed.

    * A consent that closes something: ``plain`` must lie within ``consented``.
    * A rule that can never fire: an allow row of which a deny row leaves nothing, a word that
      no issuer or route can produce. Such a row looks like a right that exists.

These checks need a compiled table, so they run after the files are free of faults.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from policies.decision import Effect
from policies.faults import Faults, shown
from policies.kinds import SHAPES, Kind
from policies.loader import ANONYMOUS, Parsed
from policies.rows import Row
from policies.table import DecisionTable, Relation, members
from policies.vocabulary import CONSENTS


def check(parsed: Parsed, table: DecisionTable) -> None:
    """Raises InvalidPolicy with everything found."""
    faults = Faults()
    _consent_only_opens(parsed, table, faults)
    for row in table.units.rows:
        if row.effect is Effect.ALLOW and not _unit_row_opens(row, table):
            _dead(row, faults)
    for relation in table.relations.values():
        for row in relation.rows:
            if row.effect is Effect.ALLOW and not _row_opens(row, relation):
                _dead(row, faults)
    _check_words(Kind.AUDIENCE, set(_claims(parsed)), parsed, faults)
    _check_words(Kind.ROUTES, set(_requests(parsed)), parsed, faults)
    faults.check()


def _consent_only_opens(parsed: Parsed, table: DecisionTable, faults: Faults) -> None:
    none, granted = CONSENTS
    for profile in parsed.vocabulary.profiles:
        closed = table.units.readable[profile, none] & ~table.units.readable[profile, granted]
        if closed:
            example = members(closed)[0]
            state = " ".join(parsed.vocabulary.facets_of(example).values())
            rules = table.units.rules(profile, example, none).allows
            place = next(row.place for row in table.units.rows if row.id == rules[0])
            faults.add(
                place,
                "consent_closes",
                f"`{profile}` may read {shown(state)} without consent and not with it",
                "write `none|granted` in the allow row, or `all` in the deny row",
            )


def _unit_row_opens(row: Row, table: DecisionTable) -> bool:
    return any(
        table.units.boxes[row.id] & table.units.readable[profile, consent]
        for profile, consent in itertools.product(row.cells[0], row.cells[-1])
    )


def _row_opens(row: Row, relation: Relation) -> bool:
    return any(relation.entries[key].allowed for key in itertools.product(*row.cells))


def _dead(row: Row, faults: Faults) -> None:
    faults.add(
        row.place,
        "dead_rule",
        f"`{row.id}` allows nothing: deny rows take all of it",
        "remove it, or the deny row that covers it",
    )


def _claims(parsed: Parsed) -> Iterator[tuple[str, ...]]:
    for issuer in parsed.issuers:
        for claim, source in issuer.claims.items():
            for alias in source.values.values():
                for audience in parsed.vocabulary.audiences:
                    yield (issuer.alias, f"{claim}={alias}", audience)


def _requests(parsed: Parsed) -> Iterator[tuple[str, ...]]:
    for route in parsed.routes:
        callers = [*parsed.vocabulary.audiences, *([ANONYMOUS] if route.anonymous else [])]
        for caller, method in itertools.product(callers, route.methods):
            yield (caller, route.id, method)


def _check_words(
    kind: Kind, possible: set[tuple[str, ...]], parsed: Parsed, faults: Faults
) -> None:
    """Every word of a row must occur in a request that can happen and that the row matches."""
    shape = SHAPES[kind]
    for row in parsed.rows[kind]:
        matching = [
            request
            for request in possible
            if all(word in cell for word, cell in zip(request, row.cells, strict=True))
        ]
        for position, cell in enumerate(row.cells):
            if len(cell) == len(parsed.domains[kind][shape.axes[position]]):
                continue  # `all`
            for word in sorted(cell - {request[position] for request in matching}):
                faults.add(
                    row.place,
                    "dead_word",
                    f"{shown(word)} in `{row.id}` cannot occur with the row's other words",
                    "remove it, or write the issuer's alias or the route that would make it occur",
                )
