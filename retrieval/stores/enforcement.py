"""Proves at start that the database enforces what this program believes it does.

Laws
    * Every table of ours has row-level security, forced; nobody who logs in owns one.
    * No role of ours is a superuser or may bypass row-level security, make roles or databases.
    * A serving login is a member of its own audience's profile roles and of nothing else;
      a station is a member of nothing.
    * Policies, grants, functions and triggers are as the migrations made them.

Which revision is active is not asked here: every transaction asks it for itself.

Whatever is wrong is said at once, all of it, and nothing is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg

from policies.snapshot import Snapshot
from retrieval.schema.seal import broken_seals, is_sealed
from retrieval.stores.roles import OWNER, READER, STATIONS, profile_role, serving_login

_MEMBERSHIPS: Final = """
with recursive reach as (
    select m.member, m.roleid from pg_auth_members m
    union
    select r.member, m.roleid from reach r join pg_auth_members m on m.member = r.roleid
)
select member::regrole::text, array_agg(roleid::regrole::text order by roleid::regrole::text)
from reach where member::regrole::text = any (%s) group by member
"""

_ATTRIBUTES: Final = """
select rolname::text, rolcanlogin, rolinherit,
       rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication
from pg_roles where rolname = any (%s)
"""

_TABLES: Final = """
select format('%I.%I', n.nspname, c.relname), c.relrowsecurity and c.relforcerowsecurity,
       c.relowner::regrole::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('brain', 'gate') and c.relkind in ('r', 'p')
"""


class NotEnforced(Exception):
    """The database must not be served from; ``reasons`` lists everything that is wrong."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__(
            "the database does not enforce the policy: "
            + "; ".join(reasons)
            + "; restore it from the migrations, nothing is served until then"
        )


def assert_enforced(dsn: str, snapshot: Snapshot) -> None:
    """Returns if every law above holds. Raises NotEnforced, or psycopg.Error if unreachable.

    ``dsn`` may be the administrator's or any station's. Cost: some 50 ms, once, at start.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        reasons = (
            *_tables(connection),
            *_roles(connection, snapshot),
            *_seals(connection),
        )
    if reasons:
        raise NotEnforced(reasons)


def _tables(connection: psycopg.Connection[Any]) -> Iterator[str]:
    tables = connection.execute(_TABLES).fetchall()
    if not tables:
        yield "there is no schema; migrate it (`gateway policy activate` does)"
    for name, forced, owner in tables:
        if not forced:
            yield f"row-level security is not forced on `{name}`"
        if owner != OWNER:
            yield f"`{name}` belongs to `{owner}` instead of `{OWNER}`"


def _roles(connection: psycopg.Connection[Any], snapshot: Snapshot) -> Iterator[str]:
    profiles = snapshot.vocabulary.profiles
    allowed: dict[str, set[str]] = {OWNER: set(), READER: set()}
    allowed |= {station: set() for station in STATIONS}
    allowed |= {profile_role(profile): {READER} for profile in profiles}
    for audience in snapshot.vocabulary.audiences:
        own = {profile_role(profile) for profile, of in profiles.items() if of == audience}
        allowed[serving_login(audience)] = own | {READER} if own else set()
    logins = {*STATIONS, *map(serving_login, snapshot.vocabulary.audiences)}

    found = {
        role: (can_login, inherits, mighty)
        for role, can_login, inherits, mighty in connection.execute(_ATTRIBUTES, [list(allowed)])
    }
    members = dict(connection.execute(_MEMBERSHIPS, [list(allowed)]).fetchall())
    for role, wanted in sorted(allowed.items()):
        if role not in found:
            yield f"role `{role}` does not exist"
            continue
        can_login, inherits, mighty = found[role]
        if mighty:
            yield f"role `{role}` may do more than a plain role"
        if can_login != (role in logins):
            yield f"role `{role}` can{'' if can_login else 'not'} log in"
        if role in logins and inherits:
            yield f"login `{role}` inherits"
        reach = {name.strip('"') for name in members.get(role, ())}
        # a role of a retired profile or of another database of the cluster has no grant here
        for other in sorted(reach - wanted):
            if role not in logins or other in allowed or not other.startswith("gw_p_"):
                yield f"`{role}` can become `{other}`"
        for other in sorted(wanted - reach):
            yield f"`{role}` cannot become `{other}`"


def _seals(connection: psycopg.Connection[Any]) -> Iterator[str]:
    if not is_sealed(connection):
        yield (
            "the schema was never sealed for this server version;"
            " migrate it (`gateway policy activate` does)"
        )
        return
    yield from broken_seals(connection)
