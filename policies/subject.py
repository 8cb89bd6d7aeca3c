"""Who asks: a principal before policy, a subject after it.

*Principal* = an authenticated identity. Raw claim values never leave ``authn``: what
stands here are the aliases that the issuer binding gives them, so an identity provider
cannot name a group ``employee`` and thereby become one.
*Subject* = a principal placed in a profile, with its compartments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.decision import Grant


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    ``issuer`` is the binding's alias (``idp:staff``); ``claims`` maps a claim's name to
    the aliases found in it (``{"groups": {"grp:staff"}}``), unknown values left out;
    ``expires_at`` is in seconds since the epoch.
    """

    issuer: str
    subject_id: str
    claims: Mapping[str, frozenset[str]]
    tenants: tuple[str, ...]
    jurisdictions: tuple[str, ...]
    expires_at: float


@dataclass(frozen=True, slots=True)
class Subject:
    """A principal placed by policy.

    ``subject_id`` is opaque and stable per (issuer, sub): consents are given to it.
    ``actor`` is the upstream that acts for the subject, empty when it acts itself.
    ``purpose`` selects which of its consents apply; empty selects none.
    """

    subject_id: str
    audience: str
    grant: Grant
    tenants: tuple[str, ...]
    jurisdictions: tuple[str, ...]
    task_scope: str
    purpose: str
    actor: str
