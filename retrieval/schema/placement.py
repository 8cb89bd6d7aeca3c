"""Whether an existing database, such as one that Directus manages, can take our two schemas.

What we need of it is little: to make roles, to make schemas, and that ours are free. Everything
else in it stays as it is: no object, right or setting outside of ``brain``, ``gate`` and
``migration`` is made or changed, but for one right of ours on the database itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from retrieval.stores.roles import OWNER

SCHEMAS: Final = ("brain", "gate", "migration")
VERSION_MIN: Final = 15
_MEMBERS_NEED_ADMIN: Final = 16

_FACTS: Final = """
    select current_setting('server_version_num')::integer / 10000,
           pg_encoding_to_char(d.encoding), r.rolsuper, r.rolcreaterole,
           pg_has_role(d.datdba, 'usage') or r.rolsuper
               or has_database_privilege(d.datname, 'create with grant option')
               or exists (select from pg_roles o where o.rolname = %(owner)s
                          and has_database_privilege(o.oid, d.oid, 'create'))
    from pg_database d, pg_roles r
    where d.datname = current_database() and r.rolname = current_user"""
_TAKEN: Final = """
    select n.nspname::text from pg_namespace n
    where n.nspname = any (%(schemas)s) and n.nspowner::regrole::text <> %(owner)s order by 1"""
_FOREIGN: Final = """
    select r.rolname::text from pg_roles r
    where r.rolname like 'gw\\_%%' and not exists (
        select from pg_auth_members m where m.roleid = r.oid and m.admin_option
          and pg_has_role(m.member, 'usage'))
    order by 1"""


@dataclass(frozen=True, slots=True)
class Lack:
    """One thing that stands in the way. ``code`` is stable, ``remedy`` is for the operator."""

    code: str
    reason: str
    remedy: str


def missing(admin_dsn: str) -> tuple[Lack, ...]:
    """What keeps migrations from running in the database at ``admin_dsn``, in a fixed order.

    Nothing is written. Raises psycopg.Error when the database does not let us in.
    """
    with psycopg.connect(admin_dsn, connect_timeout=10) as connection:
        connection.read_only = True
        return tuple(_lacks(connection))


def _lacks(connection: psycopg.Connection[Any]) -> Iterator[Lack]:
    asked = {"owner": OWNER, "schemas": list(SCHEMAS)}
    row = connection.execute(_FACTS, asked).fetchone()
    if row is None:
        return
    version, encoding, is_super, may_make_roles, may_make_schemas = row
    if version < VERSION_MIN:
        reason = f"the server is Postgres {version}, needed is {VERSION_MIN}"
        yield Lack("server_too_old", reason, "use a newer server")
    if encoding != "UTF8":
        yield Lack("not_utf8", f"the database is encoded as {encoding}", "make one that is UTF8")
    if not is_super and not may_make_roles:
        reason = "this login may not make roles"
        yield Lack("no_createrole", reason, "`alter role LOGIN createrole`, or use another login")
    if not may_make_schemas:
        reason = "this login may not let our owner make schemas here"
        remedy = "`grant create on database DATABASE to LOGIN with grant option`, as its owner"
        yield Lack("no_create", reason, remedy)
    for (name,) in connection.execute(_TAKEN, asked):
        reason = f"there is a schema `{name}` that is not ours"
        yield Lack("schema_taken", reason, "rename it, or take another database")
    if not is_super and version >= _MEMBERS_NEED_ADMIN:
        names = [name for (name,) in connection.execute(_FOREIGN)]
        if names:
            reason = f"another login made the roles {', '.join(names)}"
            remedy = "`grant ROLE to LOGIN with admin option` for each, or use that login"
            yield Lack("roles_foreign", reason, remedy)
