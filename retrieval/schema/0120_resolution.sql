-- What threads are found by beside their own words: centroids, and labels of the vocabulary.
--
-- Laws
--   A partial's vector sum is over exactly the units that the partial counts, each at its current
--   revision. A change of those takes the sum away in its own transaction: nobody is ever led by a
--   unit that has left. The index worker makes it anew, and only from a full set of vectors.
--   A change of one (class, tenant, jurisdiction) touches no row of another.
--   A label is posted under the terms of its words, like a thread: integer equality is leakproof.
--   A membership knows when its status was last judged.

-- --- centroids -----------------------------------------------------------------------------

alter table brain.thread_partial
    drop column vector_sum,
    -- which units at which revisions are counted, as a hash
    add column members text not null default '',
    -- little-endian int64, the sum of stored vectors (int16); null = to be made
    add column vector_sum bytea,
    -- names the content of vector_sum: equal keys, equal sums
    add column vector_key uuid,
    add check ((vector_sum is null) = (vector_key is null));
create index thread_partial_bare on brain.thread_partial (thread_id) where vector_sum is null;

create or replace function brain.recount_threads(threads uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from brain.thread t where t.id = any (threads) order by t.id for no key update;
    with fresh as materialized (
        select m.thread_id, u.class_id, u.tenant, u.jurisdiction, count(*)::integer as unit_count,
               bit_or(brain.stage_bit(u.lifecycle_stage)) as stage_bits,
               max(u.active_at) as last_activity,
               md5(string_agg(u.id::text || ':' || u.current_revision, ',' order by u.id))
                   as members
        from brain.thread_membership m
        join brain.unit u on u.id = m.unit_id
        where m.thread_id = any (threads) and m.status <> 'wrong_link'
          and u.deleted_at is null and u.class_id >= 0
        group by m.thread_id, u.class_id, u.tenant, u.jurisdiction
    ), gone as (
        delete from brain.thread_partial p
        where p.thread_id = any (threads) and not exists (
            select from fresh f
            where f.thread_id = p.thread_id and f.class_id = p.class_id
              and f.tenant = p.tenant and f.jurisdiction = p.jurisdiction)
    )
    insert into brain.thread_partial as p
        (thread_id, class_id, tenant, jurisdiction, unit_count, stage_bits, last_activity, members)
    select f.* from fresh f
    on conflict (thread_id, class_id, tenant, jurisdiction) do update
        set unit_count = excluded.unit_count, stage_bits = excluded.stage_bits,
            last_activity = excluded.last_activity, members = excluded.members,
            vector_sum = case when p.members = excluded.members then p.vector_sum end,
            vector_key = case when p.members = excluded.members then p.vector_key end
        where (p.unit_count, p.stage_bits, p.last_activity, p.members)
            is distinct from (excluded.unit_count, excluded.stage_bits, excluded.last_activity,
                              excluded.members);
end $$;

-- As in 0004; a new revision is another content of the thread, too.
create or replace function brain.after_unit_update() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    touched uuid[];
begin
    perform brain.announce(array(
        select n.id from new_rows n join old_rows o using (id)
        where n.deleted_at is not null and o.deleted_at is null), 'delete');
    perform brain.announce(array(
        select n.id from new_rows n join old_rows o using (id)
        where n.deleted_at is null
          and (o.deleted_at is not null or n.current_revision <> o.current_revision)), 'content');
    perform brain.announce(array(
        select n.id from new_rows n join old_rows o using (id)
        where n.deleted_at is null and o.deleted_at is null
          and n.current_revision = o.current_revision
          and (n.class_id, n.tenant, n.jurisdiction) <> (o.class_id, o.tenant, o.jurisdiction)),
        'label');

    touched := array(
        select n.id from new_rows n join old_rows o using (id)
        where (n.class_id, n.tenant, n.jurisdiction, n.deleted_at is null, n.current_revision)
           <> (o.class_id, o.tenant, o.jurisdiction, o.deleted_at is null, o.current_revision));
    if cardinality(touched) > 0 then
        insert into brain.corpus_partial as p (class_id, tenant, jurisdiction, units)
        select d.class_id, d.tenant, d.jurisdiction, sum(d.sign)
        from (select class_id, tenant, jurisdiction, deleted_at, -1 as sign from old_rows
              where id = any (touched)
              union all
              select class_id, tenant, jurisdiction, deleted_at, 1 from new_rows
              where id = any (touched)) d
        where d.class_id >= 0 and d.deleted_at is null
        group by 1, 2, 3 having sum(d.sign) <> 0 order by 1, 2, 3
        on conflict (class_id, tenant, jurisdiction) do update set units = p.units + excluded.units;

        insert into brain.lexicon_partial as p (term, class_id, tenant, jurisdiction, df)
        select t.term, d.class_id, d.tenant, d.jurisdiction, sum(d.sign)
        from (select id, current_revision, class_id, tenant, jurisdiction, deleted_at, -1 as sign
              from old_rows where id = any (touched)
              union all
              select id, current_revision, class_id, tenant, jurisdiction, deleted_at, 1
              from new_rows where id = any (touched)) d
        join brain.unit_revision r on r.unit_id = d.id and r.revision = d.current_revision
        cross join unnest(r.lexical_terms) t (term)
        where d.class_id >= 0 and d.deleted_at is null
        group by 1, 2, 3, 4 having sum(d.sign) <> 0 order by 1, 2, 3, 4
        on conflict (term, class_id, tenant, jurisdiction) do update set df = p.df + excluded.df;
    end if;

    touched := array(
        select distinct m.thread_id from brain.thread_membership m
        where m.unit_id in (
            select n.id from new_rows n join old_rows o using (id)
            where (n.class_id, n.tenant, n.jurisdiction, n.deleted_at is null, n.active_at,
                   n.lifecycle_stage, n.current_revision)
               <> (o.class_id, o.tenant, o.jurisdiction, o.deleted_at is null, o.active_at,
                   o.lifecycle_stage, o.current_revision)));
    if cardinality(touched) > 0 then
        perform brain.recount_threads(touched);
    end if;

    touched := array(select n.id from new_rows n join old_rows o using (id)
                     where n.class_id = -1 or o.class_id = -1);
    if cardinality(touched) > 0 then
        perform brain.note_label_faults('unit', touched);
    end if;
    return null;
end $$;

select brain.recount_threads(array(select t.id from brain.thread t));

-- --- labels --------------------------------------------------------------------------------

-- A label is named by any of its phrases (its term, its aliases), and a phrase by all of its words:
-- `position` counts them, `words` is how many there are; a word may stand under several terms (as
-- typed, folded). Term -1 = the worker has still to post the label.
create table brain.label_term (
    term     integer not null,
    label_id uuid not null references brain.label (id) on delete cascade,
    phrase   smallint not null,
    position smallint not null,
    words    smallint not null,
    primary key (term, label_id, phrase, position)
);
create index label_term_label on brain.label_term (label_id);

create function brain.await_posting() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    changed uuid[];
begin
    if tg_op = 'INSERT' then
        changed := array(select n.id from new_rows n);
    else
        -- grouped, not joined: see 0181
        changed := array(
            select s.id
            from (select o.id, to_jsonb(o) -> 'aliases' as aliases from old_rows o
                  union all
                  select n.id, to_jsonb(n) -> 'aliases' from new_rows n) s
            group by s.id having count(distinct coalesce(s.aliases, 'null')) > 1);
        delete from brain.label_term p
            using unnest(changed) c (id) where p.label_id = c.id;
    end if;
    insert into brain.label_term (term, label_id, phrase, position, words)
    select -1, c.id, 0, 0, 0 from unnest(changed) c (id) order by c.id;
    return null;
end $$;
create trigger await_posting_insert after insert on brain.label
    referencing new table as new_rows
    for each statement execute function brain.await_posting();
create trigger await_posting_update after update on brain.label
    referencing old table as old_rows new table as new_rows
    for each statement execute function brain.await_posting();
insert into brain.label_term (term, label_id, phrase, position, words)
    select -1, l.id, 0, 0, 0 from brain.label l;

create index thread_label_thread on brain.thread_label (thread_id);

-- --- memberships ---------------------------------------------------------------------------

alter table brain.thread_membership add column judged_at timestamptz not null default now();

create function brain.note_judgement() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    new.judged_at := now();
    return new;
end $$;
create trigger note_judgement before update of status on brain.thread_membership
    for each row when (old.status is distinct from new.status)
    execute function brain.note_judgement();

-- --- rights --------------------------------------------------------------------------------

alter table brain.label_term enable row level security;
alter table brain.label_term force row level security;
create policy owner on brain.label_term to gw_owner using (true) with check (true);
create policy reader on brain.label_term for select to gw_reader
    using (exists (select from brain.label l where l.id = label_id));
create policy gw_index_all on brain.label_term for all to gw_index using (true) with check (true);
create policy gw_index_select on brain.label for select to gw_index using (true);
create policy gw_index_select on brain.thread_membership for select to gw_index using (true);
create policy gw_index_select on brain.thread_partial for select to gw_index using (true);
create policy gw_index_update on brain.thread_partial for update to gw_index
    using (true) with check (true);

revoke all on brain.label_term from public;
revoke execute on function brain.await_posting(), brain.note_judgement() from public;
grant select on brain.label_term to gw_reader;
grant select, insert, update, delete on brain.label_term to gw_index;
grant select on brain.label, brain.thread_membership, brain.thread_partial to gw_index;
grant update (vector_model, vector_sum, vector_key) on brain.thread_partial to gw_index;
