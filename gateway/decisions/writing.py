"""A finished request as the plain values of its record, before anything is masked.

Whatever a caller chose is compared with the vocabulary of the policy in force, so that no
word of a caller's own can stand in a record; whatever has not the form of a word or an id is
left out (`fields.WORD`), because a defect elsewhere must not become a leak here.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Any, Final

from gateway.decisions.facts import Facts, UnitCounts
from gateway.decisions.fields import FIELDS, SCHEMA, WORD, WORD_CHARACTERS, WORD_MAX, Form
from gateway.telemetry.fields import RequestRecord, checked, method_word
from policies.subject import Principal

Values = dict[str, Any]
"""A record as plain JSON: texts, numbers, flags, lists and objects of them."""

_PERMITTED: Final = frozenset(field.path.partition(".")[0] for field in FIELDS)
_WORDS: Final = tuple(
    field.path for field in FIELDS if field.form is Form.WORD and "." not in field.path
)
_CHARACTERS: Final = re.compile(f"{WORD_CHARACTERS}*")
_LISTS: Final = ("claims", "profiles", "rules")


def values_of(record: RequestRecord, *, sampled: float) -> Values:
    """The record of one request; each sink puts its own number of ``dropped`` ones into it.

    Cost: 20 to 50 us; grows with the classes of its units, hardly with the units.
    """
    facts = record.facts
    counts = facts.tally.counts()
    principal, subject = facts.principal, facts.subject
    decisions = facts.decisions
    task_scope, purpose, narrowed = _wishes(facts)
    values: Values = {
        "schema": SCHEMA,
        "decision_id": secrets.token_hex(16),
        "request_id": record.request_id,
        "trace_id": record.trace.trace_hex,
        "at": _time(record.began_ns),
        "policy_digest": record.policy_digest,
        "surface": record.surface,
        "route": record.route,
        "method": method_word(record.method),
        "issuer": principal.issuer if principal is not None else record.issuer,
        "claims": _claims(principal),
        "audience": record.audience,
        "profile": record.profile,
        "profiles": list(subject.grant.profiles) if subject is not None else [],
        "task_scope": task_scope,
        "purpose": purpose,
        "narrowed": narrowed,
        "actor": facts.actor.name if facts.actor is not None else "",
        "station": facts.station,
        "effect": record.decision,
        "code": record.code,
        "reason": record.reason or (decisions[-1].reason if decisions else ""),
        "rules": list(dict.fromkeys(rule for one in decisions for rule in one.rules)),
        "units": {
            "returned": counts.returned,
            "denied": counts.denied,
            "stale": counts.stale,
        },
        "classes": _classes(counts),
        "duration_us": record.duration_ns // 1_000,
        "sampled": sampled,
        "dropped": 0,
        "masked": [],
        "erased": [],
    }
    checked(values, _PERMITTED)
    return _plain(values)


def _claims(principal: Principal | None) -> list[str]:
    claims = principal.claims if principal is not None else {}
    return sorted(f"{name}={alias}" for name, found in claims.items() for alias in found)


def _wishes(facts: Facts) -> tuple[str, str, str]:
    """Task scope, purpose and narrowing audience, as far as the policy has a word for them."""
    wish, snapshot, subject = facts.wish, facts.snapshot, facts.subject
    if wish is None or snapshot is None:
        return "", "", ""
    words = snapshot.vocabulary
    named = wish.task_scope if wish.task_scope in words.tasks else ""
    return (
        subject.task_scope if subject is not None else named,
        wish.purpose if wish.purpose in words.purposes else "",
        wish.audience if wish.audience in words.profiles else "",
    )


def _classes(counts: UnitCounts) -> list[Values]:
    return [
        {
            "class_id": class_id,
            "consent": consent,
            "allowed": row.allowed,
            "denied": row.denied,
            "not_by_class": row.not_by_class,
        }
        for (class_id, consent), row in sorted(counts.classes.items())
    ]


def _plain(values: Values) -> Values:
    """The same values, without any text that is not a word. One match for all in the usual case."""
    texts: list[str] = [values[name] for name in _WORDS]
    for name in _LISTS:
        texts += values[name]
    if _CHARACTERS.fullmatch("".join(texts)) and max(map(len, texts)) <= WORD_MAX:
        return values
    for name in _WORDS:
        if not WORD.fullmatch(values[name]):
            values[name] = ""
    for name in _LISTS:
        values[name] = [one for one in values[name] if WORD.fullmatch(one)]
    return values


def _time(began_ns: int) -> str:
    return datetime.fromtimestamp(began_ns / 1e9, UTC).isoformat(timespec="microseconds")
