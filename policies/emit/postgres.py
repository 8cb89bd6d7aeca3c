"""A scope as SQL: the pushed-down predicate, and the masks that row-level security reads.

Laws
    * Values are bound, never written into the text; the text depends on the alias alone.
    * Positive lists only. An empty list is the empty array, which no row equals.
    * The predicate reads four columns of the named relation: ``id`` (uuid), ``class_id``
      (smallint), ``tenant`` and ``jurisdiction`` (text). Another id column may be named.

This module does not know psycopg: parameters are plain lists in its ``%(name)s`` form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policies.decision import SHARED, Scope
from policies.table import DecisionTable
from policies.vocabulary import CONSENTS

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")


@dataclass(frozen=True, slots=True)
class Predicate:
    """SQL text for a WHERE clause, in parentheses, and its bound values."""

    sql: str
    params: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ProfileMask:
    """What one profile may read, as text of ``0`` and ``1``: character ``i`` is class ``i``.

    Cast to ``bit varying``, ``get_bit(mask, i)`` is then the verdict on class ``i``.
    """

    profile: str
    role: str
    audience: str
    plain: str
    consented: str


def predicate(scope: Scope, alias: str, id_column: str = "id") -> Predicate:
    """The rows of ``alias`` that the scope permits.

    Parameters are named ``scope_*``; those of two predicates of one scope are the same, so
    their maps may be merged. Raises ValueError for a name that is not a plain identifier.
    """
    for name in (alias, id_column):
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{name}` is not a plain identifier")
    return Predicate(
        f"({alias}.tenant = any(%(scope_tenants)s::text[])"
        f" and {alias}.jurisdiction = any(%(scope_jurisdictions)s::text[])"
        f" and ({alias}.class_id = any(%(scope_plain)s::smallint[])"
        f" or ({alias}.class_id = any(%(scope_consented)s::smallint[])"
        f" and {alias}.{id_column} = any(%(scope_units)s::uuid[]))))",
        {
            "scope_tenants": [SHARED, *_named(scope.tenants)],
            "scope_jurisdictions": [SHARED, *_named(scope.jurisdictions)],
            "scope_plain": list(scope.grant.plain),
            "scope_consented": list(scope.grant.consented),
            "scope_units": list(scope.consented_units),
        },
    )


def role_name(profile: str) -> str:
    """The database role of a profile: ``agent:reader`` -> ``gw_p_agent_reader``."""
    return "gw_p_" + profile.replace(":", "_")


def masks(table: DecisionTable) -> tuple[ProfileMask, ...]:
    """The masks of every profile, as activation writes them into ``gate.profile_grant``."""
    units = table.units
    return tuple(
        ProfileMask(
            profile,
            role_name(profile),
            audience,
            *(_mask(units.readable[profile, consent], units.class_count) for consent in CONSENTS),
        )
        for profile, audience in units.profiles.items()
    )


def _mask(bits: int, length: int) -> str:
    return f"{bits:0{length}b}"[::-1]


def _named(values: tuple[str, ...]) -> list[str]:
    """Compartments without the empty name, which is nobody's."""
    return [value for value in values if value]
