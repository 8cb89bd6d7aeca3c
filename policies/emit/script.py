"""What the policy compiles to, as texts that a person can read and a tool can run.

The product never uses these texts: it binds values (``policies.emit.postgres``). They show a
reviewer, or another system, exactly what is pushed down.
"""

from __future__ import annotations

from policies.decision import Scope
from policies.emit import postgres, qdrant
from policies.snapshot import Snapshot


def sql(snapshot: Snapshot, alias: str = "u") -> str:
    """One WHERE predicate per profile, class ids written out.

    The caller's compartments and consented units stay named parameters: they are not the
    policy's. Raises ValueError for an alias that is not a plain identifier.
    """
    parts = [f"-- policy {snapshot.digest}"]
    for profile in snapshot.vocabulary.profiles:
        grant = snapshot.grant([profile])
        text = postgres.predicate(Scope(grant, (), (), ()), alias).sql
        for name, ids in (("scope_plain", grant.plain), ("scope_consented", grant.consented)):
            literal = "'{" + ",".join(map(str, ids)) + "}'"
            text = text.replace(f"%({name})s", literal)
        parts.append(
            f"-- profile {profile}: {len(grant.plain)} classes, {len(grant.consented)} with consent"
        )
        parts.append(text)
    return "\n".join(parts) + "\n"


def rls(snapshot: Snapshot) -> str:
    """The masks that row-level security reads, as the statement that activation runs."""
    rows = ",\n".join(
        f"  ('{snapshot.digest}', '{mask.role}', '{mask.profile}',"
        f" B'{mask.plain}', B'{mask.consented}')"
        for mask in postgres.masks(snapshot.table)
    )
    return (
        "insert into gate.profile_grant (digest, role, profile, plain, consented) values\n"
        f"{rows};\n"
    )


def filters(
    snapshot: Snapshot, tenants: tuple[str, ...], jurisdictions: tuple[str, ...]
) -> dict[str, object]:
    """One filter per profile for a caller of these compartments without a consented unit; None
    where nothing is permitted."""
    return {
        profile: qdrant.filter(Scope(snapshot.grant([profile]), tenants, jurisdictions, ()))
        for profile in snapshot.vocabulary.profiles
    }
