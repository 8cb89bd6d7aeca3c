-- Threads as their owners edit them, and what every change of them leaves behind.
--
-- Laws
--   A transaction that changes a thread, its links, its expected artifacts, its terms or the edges
--   of its units makes one revision of it: who, when, why, what stood before and what after. It
--   does not matter who writes: ingest's changes are revisions like an owner's.
--   What only follows from a change (classes, partials, postings, health) is no change.
--   Nobody writes revisions but the triggers below, and they only grow.
--   gw_curate edits threads for one source, named in gw.origin like ingest's (0040). It reads no
--   body, and of units it writes nothing at all.
--   Wider labels wait as they do for ingest (0060): the login is no member of the owner.

create table brain.thread_revision (
    thread_id uuid not null references brain.thread (id) on delete cascade,
    revision  integer not null check (revision >= 1),
    xact      xid8 not null default pg_current_xact_id(),
    made_at   timestamptz not null default now(),
    origin    text not null,
    author    text not null,
    reason    text not null,
    -- [{"what": "member", "key": {...}, "before": {...} | null, "after": {...} | null}, ...]
    changes   jsonb not null check (jsonb_typeof(changes) = 'array'),
    primary key (thread_id, revision),
    -- numbers of transactions begin anew in a restored copy, moments do not
    unique (thread_id, xact, made_at)
);

insert into brain.thread_revision (thread_id, revision, origin, author, reason, changes)
select t.id, 1, t.origin, 'migration', 'stored before revisions were kept', '[]'
from brain.thread t;

-- Other words under which a term is known: synonyms, acronyms, spellings.
alter table brain.label add column aliases text[] not null default '{}';

-- --- revisions -------------------------------------------------------------------------------

-- The part of a row that is said by somebody, under these names.
create function brain.said(stored jsonb, names text[]) returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(jsonb_object_agg(n.name, stored -> n.name), '{}')
    from unnest(names) n (name) where stored ? n.name
$$;

-- Notes what a statement changed. Both lists hold whole rows of one table; `what` says which.
-- An edge belongs to every thread that its first unit is in.
create function brain.add_revisions(what text, was jsonb[], is_now jsonb[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    label constant text[] := array['visibility', 'readiness', 'publication_state', 'risk_class',
        'authority', 'kind', 'tenant', 'jurisdiction', 'wish', 'deleted_at'];
    keys constant text[] := case what
        when 'thread' then '{}'::text[]
        when 'member' then array['unit_id']
        when 'artifact' then array['lifecycle_stage', 'title']
        when 'term' then array['label_id']
        else array['src', 'relation', 'dst'] end;
    words constant text[] := case what
        when 'thread' then array['title', 'aliases', 'description', 'purpose', 'status'] || label
        when 'member' then array['role', 'confidence', 'status', 'added_by']
        when 'artifact' then label
        when 'term' then '{}'::text[]
        else array['confidence'] end;
    threads uuid[];
    entries jsonb[];
begin
    with sides as (
        select r, false as late from unnest(was) r
        union all
        select r, true from unnest(is_now) r
    ), placed as (
        select s.late, brain.said(s.r, keys) as key, brain.said(s.r, words) as words, t.thread_id
        from sides s
        cross join lateral (
            select (s.r ->> case what when 'thread' then 'id' else 'thread_id' end)::uuid
            where what <> 'edge'
            union all
            select m.thread_id from brain.thread_membership m
            where what = 'edge' and m.unit_id = (s.r ->> 'src')::uuid) t (thread_id)
    ), paired as (
        select p.thread_id, p.key, (array_agg(p.words) filter (where not p.late))[1] as before,
               (array_agg(p.words) filter (where p.late))[1] as after
        from placed p group by p.thread_id, p.key
    )
    select array_agg(p.thread_id), array_agg(jsonb_build_object(
               'what', what, 'key', p.key, 'before', p.before, 'after', p.after))
        into threads, entries
    from paired p where p.before is distinct from p.after;
    if threads is null then
        return;
    end if;
    perform from brain.thread t where t.id = any (threads) order by t.id for no key update;
    insert into brain.thread_revision as r (thread_id, revision, origin, author, reason, changes)
    select t.id, coalesce((select max(e.revision) from brain.thread_revision e
                           where e.thread_id = t.id), 0) + 1,
           t.origin, coalesce(nullif(current_setting('gw.author', true), ''), session_user),
           coalesce(current_setting('gw.reason', true), ''), jsonb_agg(c.entry order by c.place)
    from unnest(threads, entries) with ordinality c (thread_id, entry, place)
    join brain.thread t on t.id = c.thread_id
    group by t.id
    on conflict (thread_id, xact, made_at) do update set changes = r.changes || excluded.changes;
end $$;

create function brain.note_revision() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    was jsonb[] := '{}';
    is_now jsonb[] := '{}';
begin
    if tg_op <> 'INSERT' then
        was := array(select to_jsonb(o) from old_rows o);
    end if;
    if tg_op <> 'DELETE' then
        is_now := array(select to_jsonb(n) from new_rows n);
    end if;
    perform brain.add_revisions(tg_argv[0], was, is_now);
    return null;
end $$;

create trigger note_insert after insert on brain.thread
    referencing new table as new_rows
    for each statement execute function brain.note_revision('thread');
create trigger note_update after update on brain.thread
    referencing old table as old_rows new table as new_rows
    for each statement execute function brain.note_revision('thread');

do $triggers$
declare
    noted record;
begin
    for noted in select * from (values
        ('thread_membership', 'member'), ('expected_artifact', 'artifact'),
        ('thread_label', 'term'), ('edge', 'edge')) n (relation, what)
    loop
        execute format('create trigger note_insert after insert on brain.%I referencing'
            ' new table as new_rows for each statement'
            ' execute function brain.note_revision(%L)', noted.relation, noted.what);
        execute format('create trigger note_update after update on brain.%I referencing'
            ' old table as old_rows new table as new_rows for each statement'
            ' execute function brain.note_revision(%L)', noted.relation, noted.what);
        execute format('create trigger note_delete after delete on brain.%I referencing'
            ' old table as old_rows for each statement'
            ' execute function brain.note_revision(%L)', noted.relation, noted.what);
    end loop;
end $triggers$;

-- A revision of this very transaction may still grow; nobody has seen it.
create function brain.keep_revision() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'UPDATE' and old.xact = pg_current_xact_id() and old.made_at = now()
        and (to_jsonb(new) - 'changes') = (to_jsonb(old) - 'changes') then
        return new;
    end if;
    if tg_op = 'DELETE' and not exists (select from brain.thread t where t.id = old.thread_id) then
        return old; -- goes with its thread
    end if;
    raise exception 'a revision never changes' using errcode = 'insufficient_privilege';
end $$;

create trigger keep_revision before update or delete on brain.thread_revision
    for each row execute function brain.keep_revision();
create trigger only_grows before truncate on brain.thread_revision
    for each statement execute function gate.refuse_rewriting();

-- --- rights ----------------------------------------------------------------------------------

alter table brain.thread_revision enable row level security;
alter table brain.thread_revision force row level security;
create policy owner on brain.thread_revision to gw_owner using (true) with check (true);
create policy gw_curate_select on brain.thread_revision for select to gw_curate
    using (origin = nullif(current_setting('gw.origin', true), ''));

do $rights$
declare
    target text;
begin
    grant usage on schema brain, gate to gw_curate;
    foreach target in array array['brain.thread', 'brain.thread_membership', 'brain.edge',
        'brain.label', 'brain.thread_label', 'brain.expected_artifact', 'brain.thread_term',
        'brain.quarantine', 'brain.thread_partial']
    loop
        execute format('create policy gw_curate_all on %s for all to gw_curate'
                       ' using (true) with check (true)', target);
    end loop;
    foreach target in array array['brain.unit', 'gate.active_revision']
    loop
        execute format(
            'create policy gw_curate_select on %s for select to gw_curate using (true)', target);
    end loop;
end $rights$;
create policy gw_curate_select on gate.label_change for select to gw_curate
    using (origin = nullif(current_setting('gw.origin', true), ''));

revoke all on brain.thread_revision from public;
revoke execute on function brain.said(jsonb, text[]),
    brain.add_revisions(text, jsonb[], jsonb[]), brain.note_revision(), brain.keep_revision()
    from public;
grant select on brain.thread_revision, brain.thread_partial, brain.thread_term, brain.quarantine,
    gate.label_change, gate.active_revision to gw_curate;
grant select (id, canonical_address, origin, current_revision, deleted_at) on brain.unit
    to gw_curate;
grant update (health) on brain.thread_partial to gw_curate;
grant select, insert, update on brain.thread, brain.label, brain.expected_artifact to gw_curate;
grant select, insert, update, delete on brain.thread_membership, brain.edge, brain.thread_label
    to gw_curate;
grant insert, delete on brain.thread_term to gw_curate;
grant insert, update on brain.quarantine to gw_curate;
grant execute on function brain.source_at_work(), brain.trusted_at_work(), brain.is_bound()
    to gw_curate;

-- --- the operators' journal --------------------------------------------------------------------

alter table gate.admin_access drop constraint admin_access_action_check;
alter table gate.admin_access add constraint admin_access_action_check check (action in
    ('live_bucketed', 'live_counts', 'live_ids', 'explain_unit', 'read_shadow', 'read_threads',
     'edit_threads'));
