"""Requests as the stations leave them behind, and candidates of the shipped policy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from gateway import placement
from gateway.decisions.facts import Facts, PerClass, UnitCounts
from gateway.decisions.writing import values_of
from gateway.errors import Refusal
from gateway.routes.wishes import Wish
from policies.decision import Decision
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from policies.subject import Principal
from tests.gateway.decisions.made import finished

PUBLIC = ("public", "published", "published", "standard", "enacted", "faq")
STAFF = {"groups": frozenset({"grp:staff"})}
EMPLOYEES_READ_NO_DRAFTS = (
    "rules/units.csv",
    "public|partner|employee, approved|published, unpublished|published",
    "public|partner|employee, published, unpublished|published",
)


@dataclass(frozen=True)
class Counted:
    """Units of a request, already counted."""

    classes: Mapping[tuple[int, bool], PerClass] = field(default_factory=dict)

    @property
    def withheld(self) -> bool:
        return any(row.denied for row in self.classes.values())

    def counts(self) -> UnitCounts:
        return UnitCounts(
            returned=sum(row.allowed for row in self.classes.values()),
            denied=sum(row.denied for row in self.classes.values()),
            classes=self.classes,
        )


@dataclass
class Held:
    """Where the shadow finds its candidate."""

    candidate: Snapshot | None = None


def copied(folder: Path, *edits: tuple[str, str, str]) -> Path:
    """A copy of the shipped policy with texts replaced, wherever they stand in their file."""
    for part in ("rules", "models", "mappings", "cases"):
        shutil.copytree(DEFAULT_FOLDER / part, folder / part)
    for file, old, new in edits:
        path = folder / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new))
    return folder


def candidate_of(folder: Path, *edits: tuple[str, str, str]) -> Snapshot:
    return load(copied(folder, *edits))


def class_id(policy: Snapshot, **changes: str) -> int:
    """The class of a public FAQ, facets changed as asked."""
    facets = dict(zip(policy.vocabulary.facets, PUBLIC, strict=True))
    found = policy.vocabulary.class_id(facets | changes)
    assert found >= 0
    return found


def request(
    policy: Snapshot,
    classes: Mapping[tuple[int, bool], PerClass] | None = None,
    *,
    issuer: str = "idp:staff",
    claims: Mapping[str, frozenset[str]] = STAFF,
    route: str = "retrieve",
    method: str = "POST",
    wish: Wish | None = None,
) -> Facts:
    """The facts of one request, placed as the gateway places it."""
    principal = Principal(issuer, str(UUID(int=7)), claims, (), (), 0.0)
    decisions: list[Decision] = []
    found = policy.route(route)
    assert found is not None
    facts = Facts(
        tally=Counted(classes or {}),
        snapshot=policy,
        identified=True,
        principal=principal,
        wish=wish or Wish(),
        decisions=decisions,
    )
    try:
        facts.subject = placement.place(
            policy, found, method, principal=principal, actor=None, wish=facts.wish or Wish(),
            decided=decisions.append,
        )  # fmt: skip
    except Refusal:
        facts.station = "place"
    else:
        decision = policy.decide_route(facts.subject.audience, route, method)
        decisions.append(decision)
        facts.station = "inspect" if decision.allowed else "decide"
    return facts


def code_of(facts: Facts) -> str:
    """With which code the gateway would have refused this request; empty when it did not."""
    if not facts.decisions or facts.decisions[-1].allowed:
        return "" if facts.subject is not None else "no_audience"
    return facts.decisions[-1].reason if facts.subject is None else "forbidden"


def line_of(facts: Facts, *, route: str = "retrieve", method: str = "POST") -> str:
    """The request's line in a decision log."""
    subject, code = facts.subject, code_of(facts)
    record = finished(
        facts,
        route=route,
        method=method,
        audience=subject.audience if subject is not None else "",
        profile=subject.grant.profile if subject is not None else "",
        decision="deny" if code else "allow",
        code=code,
        policy_digest=facts.snapshot.digest if facts.snapshot is not None else "",
    )
    return json.dumps(values_of(record, sampled=1.0) | {"dropped": 0}) + "\n"
