"""What the migrations made, object by object, so that a later change by hand is found.

A *seal* is one row per protected object (table switches, policies, grants to our roles or to
everybody, functions, triggers, views) with the hash of its definition. It is written when
migrations were applied and compared at every start. It guards against accidents and against
whoever can alter a policy but forgets this table; not against the owner of everything.

A partition comes and goes with its month, so that it is there is not sealed; what anybody was
granted on it, or hung on it, still shows.

Definitions are printed by the server, so a new major version seals anew.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

_OBJECTS: Final = """
with ours as (
    select c.oid, c.relkind, c.relispartition, format('%I.%I', n.nspname, c.relname) as name,
           c.relowner,
           c.relrowsecurity, c.relforcerowsecurity, c.relacl
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('brain', 'gate') and c.relkind in ('r', 'p', 'v', 'm')
), rights as (
    select name || ' (rights)' as object,
           coalesce(r.rolname, 'public') || ':' || a.privilege_type as part
    from ours cross join lateral aclexplode(relacl) a left join pg_roles r on r.oid = a.grantee
    union all
    select o.name || '.' || t.attname || ' (rights)',
           coalesce(r.rolname, 'public') || ':' || a.privilege_type
    from ours o join pg_attribute t on t.attrelid = o.oid
    cross join lateral aclexplode(t.attacl) a left join pg_roles r on r.oid = a.grantee
)
select 'table ' || name as object,
       md5(concat_ws('|', relowner::regrole, relrowsecurity, relforcerowsecurity)) as hash
from ours where relkind in ('r', 'p') and not relispartition
union all
select 'view ' || name, md5(concat_ws('|', relowner::regrole, pg_get_viewdef(oid)))
from ours where relkind in ('v', 'm')
union all
select 'policy ' || p.polname || ' on ' || o.name,
       md5(concat_ws('|', p.polcmd, p.polpermissive,
           (select string_agg(r::regrole::text, ',' order by r::regrole::text)
            from unnest(p.polroles) r),
           pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)))
from ours o join pg_policy p on p.polrelid = o.oid
union all
select 'trigger ' || t.tgname || ' on ' || o.name,
       md5(concat_ws('|', t.tgenabled, pg_get_triggerdef(t.oid)))
from ours o join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal
union all
select 'function ' || p.oid::regprocedure,
       md5(concat_ws('|', p.proowner::regrole, p.prosecdef, p.proconfig, p.prosrc,
           (select string_agg(coalesce(r.rolname, 'public'), ',' order by r.rolname)
            from aclexplode(p.proacl) a left join pg_roles r on r.oid = a.grantee
            where r.rolname is null or r.rolname like 'gw\\_%')))
from pg_proc p where p.pronamespace in ('brain'::regnamespace, 'gate'::regnamespace)
union all
select object, md5(string_agg(part, ',' order by part)) from rights
where part like 'public:%' or part like 'gw\\_%' group by object
"""


# Definitions are printed with as many schema names as the search path calls for.
_ONE_PATH: Final = "set search_path = pg_catalog, pg_temp"


def seal(connection: psycopg.Connection[Any]) -> None:
    """Records the present state. ``connection`` must be able to write the schema's history."""
    connection.execute(_ONE_PATH)
    connection.execute(
        "create table if not exists migration.sealed"
        " (object text primary key, hash text not null, server integer not null)"
    )
    connection.execute("delete from migration.sealed")
    connection.execute(
        "insert into migration.sealed select object, hash,"
        " current_setting('server_version_num')::integer / 10000"
        f" from ({_OBJECTS}) s"
    )
    connection.execute("grant usage on schema migration to public")
    connection.execute("grant select on migration.sealed to public")


def is_sealed(connection: psycopg.Connection[Any]) -> bool:
    """Whether a seal of this server's major version exists."""
    row = connection.execute("select to_regclass('migration.sealed') is not null").fetchone()
    if row is None or not row[0]:
        return False
    row = connection.execute(
        "select exists (select from migration.sealed"
        " where server = current_setting('server_version_num')::integer / 10000)"
    ).fetchone()
    return row is not None and bool(row[0])


def broken_seals(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """What differs from the seal, in words, sorted. Cost: some 20 ms, catalogue only."""
    connection.execute(_ONE_PATH)
    rows = connection.execute(
        "select coalesce(n.object, s.object),"
        " case when n.object is null then 'is gone' when s.object is null then 'was added'"
        " else 'was changed' end"
        f" from ({_OBJECTS}) n full join migration.sealed s on s.object = n.object"
        " where n.hash is distinct from s.hash order by 1"
    ).fetchall()
    return tuple(f"{name} {how}" for name, how in rows)
