-- What follows from a change, in the transaction of the change: classes of units below a thread,
-- outbox rows, partials, postings, quarantine. All by statement, over transition tables, so that
-- a batch costs a few set operations and not one per row.
--
-- Laws
--   Only units that are live and classed count: deleted ones and class -1 are in no partial.
--   thread_partial   = recomputed for the threads touched, under their row locks.
--   corpus_partial   = live classed units per (class, tenant, jurisdiction), kept by difference.
--   lexicon_partial  = terms of their current revisions, per the same key, kept by difference.
--                      A row may stay with df 0.
--   thread_term      = carries its thread's class and compartments; -1 once that is deleted.
--   outbox           = one row per change that an index must learn; it names no content.
-- A unit can be removed for good only after its tombstone (deleted_at), so that nothing that a
-- cascade removes was still counted.

create function brain.stage_bit(stage text) returns integer
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select 1 << (array_position(
        array['law', 'design', 'code', 'test', 'report', 'incident', 'other'], stage) - 1)
$$;

-- The outbox rows of one change. A row that this very transaction already wrote is enough; one of
-- an earlier transaction is not, because the worker may have read the old truth by now.
create function brain.announce(units uuid[], of_op text) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    insert into brain.outbox (unit_id, op)
    select distinct u, of_op from unnest(units) u
    where not exists (
        select from brain.outbox o
        where o.unit_id = u and o.op = of_op and o.done_at is null
          and o.xmin = pg_current_xact_id()::xid)
    order by u
$$;

create function brain.recount_threads(threads uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from brain.thread t where t.id = any (threads) order by t.id for no key update;
    with fresh as materialized (
        select m.thread_id, u.class_id, u.tenant, u.jurisdiction, count(*)::integer as unit_count,
               bit_or(brain.stage_bit(u.lifecycle_stage)) as stage_bits,
               max(u.active_at) as last_activity
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
        (thread_id, class_id, tenant, jurisdiction, unit_count, stage_bits, last_activity)
    select f.* from fresh f
    on conflict (thread_id, class_id, tenant, jurisdiction) do update
        set unit_count = excluded.unit_count, stage_bits = excluded.stage_bits,
            last_activity = excluded.last_activity
        where (p.unit_count, p.stage_bits, p.last_activity)
            is distinct from (excluded.unit_count, excluded.stage_bits, excluded.last_activity);
end $$;

-- --- units ---------------------------------------------------------------------------------

create function brain.after_unit_insert() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform brain.announce(array(select n.id from new_rows n where n.deleted_at is null), 'content');
    insert into brain.corpus_partial as p (class_id, tenant, jurisdiction, units)
    select n.class_id, n.tenant, n.jurisdiction, count(*)
    from new_rows n
    where n.class_id >= 0 and n.deleted_at is null
    group by 1, 2, 3 order by 1, 2, 3
    on conflict (class_id, tenant, jurisdiction) do update set units = p.units + excluded.units;
    if exists (select from new_rows n where n.class_id = -1) then
        perform brain.note_label_faults(
            'unit', array(select n.id from new_rows n where n.class_id = -1));
    end if;
    return null;
end $$;

create function brain.after_unit_update() returns trigger
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
                   n.lifecycle_stage)
               <> (o.class_id, o.tenant, o.jurisdiction, o.deleted_at is null, o.active_at,
                   o.lifecycle_stage)));
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

create function brain.refuse_unburied() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if old.deleted_at is null then
        raise exception 'unit % has no tombstone', old.id
            using errcode = 'restrict_violation', hint = 'set deleted_at first';
    end if;
    return old;
end $$;

create trigger derive_insert after insert on brain.unit
    referencing new table as new_rows
    for each statement execute function brain.after_unit_insert();
create trigger derive_update after update on brain.unit
    referencing old table as old_rows new table as new_rows
    for each statement execute function brain.after_unit_update();
create trigger refuse_unburied before delete on brain.unit
    for each row execute function brain.refuse_unburied();

-- --- revisions and vectors -------------------------------------------------------------------

create function brain.after_revision_change() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    touched uuid[] := '{}';
begin
    if tg_op <> 'INSERT' then
        insert into brain.lexicon_partial as p (term, class_id, tenant, jurisdiction, df)
        select t.term, u.class_id, u.tenant, u.jurisdiction, -count(*)
        from old_rows r
        join brain.unit u on u.id = r.unit_id and u.current_revision = r.revision
        cross join unnest(r.lexical_terms) t (term)
        where u.class_id >= 0 and u.deleted_at is null
        group by 1, 2, 3, 4 order by 1, 2, 3, 4
        on conflict (term, class_id, tenant, jurisdiction) do update set df = p.df + excluded.df;
    end if;
    if tg_op <> 'DELETE' then
        insert into brain.lexicon_partial as p (term, class_id, tenant, jurisdiction, df)
        select t.term, u.class_id, u.tenant, u.jurisdiction, count(*)
        from new_rows r
        join brain.unit u on u.id = r.unit_id and u.current_revision = r.revision
        cross join unnest(r.lexical_terms) t (term)
        where u.class_id >= 0 and u.deleted_at is null
        group by 1, 2, 3, 4 order by 1, 2, 3, 4
        on conflict (term, class_id, tenant, jurisdiction) do update set df = p.df + excluded.df;
        touched := array(
            select u.id from new_rows r
            join brain.unit u on u.id = r.unit_id and u.current_revision = r.revision
            where u.deleted_at is null);
        perform brain.announce(touched, 'content');
    end if;
    return null;
end $$;

create trigger derive_insert after insert on brain.unit_revision
    referencing new table as new_rows
    for each statement execute function brain.after_revision_change();
create trigger derive_update after update on brain.unit_revision
    referencing old table as old_rows new table as new_rows
    for each statement execute function brain.after_revision_change();
create trigger derive_delete after delete on brain.unit_revision
    referencing old table as old_rows
    for each statement execute function brain.after_revision_change();

create function brain.after_embedding_change() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if session_user = 'gw_index' then
        return null; -- it writes the point in the same transaction as the vector
    end if;
    perform brain.announce(array(
        select u.id from new_rows e
        join brain.unit u on u.id = e.unit_id and u.current_revision = e.revision
        where u.deleted_at is null), 'content');
    return null;
end $$;

create trigger derive_insert after insert on brain.embedding
    referencing new table as new_rows
    for each statement execute function brain.after_embedding_change();
create trigger derive_update after update on brain.embedding
    referencing new table as new_rows
    for each statement execute function brain.after_embedding_change();

-- --- threads ---------------------------------------------------------------------------------

create function brain.after_membership_change() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    units uuid[] := '{}';
    threads uuid[] := '{}';
begin
    if tg_op <> 'INSERT' then
        units := array(select distinct unit_id from old_rows);
        threads := array(select distinct thread_id from old_rows);
    end if;
    if tg_op <> 'DELETE' then
        units := units || array(select distinct unit_id from new_rows);
        threads := threads || array(select distinct thread_id from new_rows);
    end if;
    -- before any unit: a thread that is being withdrawn right now is waited for
    perform from brain.thread t where t.id = any (threads) order by t.id for no key update;
    perform brain.relabel_units(units);
    perform brain.recount_threads(threads);
    return null;
end $$;

create trigger derive_insert after insert on brain.thread_membership
    referencing new table as new_rows
    for each statement execute function brain.after_membership_change();
create trigger derive_update after update on brain.thread_membership
    referencing old table as old_rows new table as new_rows
    for each statement execute function brain.after_membership_change();
create trigger derive_delete after delete on brain.thread_membership
    referencing old table as old_rows
    for each statement execute function brain.after_membership_change();

create function brain.after_thread_insert() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from new_rows n where n.class_id = -1) then
        perform brain.note_label_faults(
            'thread', array(select n.id from new_rows n where n.class_id = -1));
    end if;
    return null;
end $$;

create function brain.after_thread_update() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    touched uuid[];
begin
    update brain.thread_term p
    set class_id = v.class_id, tenant = v.tenant, jurisdiction = v.jurisdiction
    from (select n.id, n.tenant, n.jurisdiction,
                 case when n.deleted_at is null then n.class_id else -1 end as class_id
          from new_rows n) v
    where p.thread_id = v.id
      and (p.class_id, p.tenant, p.jurisdiction) <> (v.class_id, v.tenant, v.jurisdiction);

    touched := array(
        select distinct m.unit_id from brain.thread_membership m
        where m.thread_id in (
            select n.id from new_rows n join old_rows o using (id)
            where (n.visibility, n.readiness, n.publication_state, n.risk_class, n.authority,
                   n.deleted_at is null)
                is distinct from (o.visibility, o.readiness, o.publication_state, o.risk_class,
                                  o.authority, o.deleted_at is null)));
    if cardinality(touched) > 0 then
        perform brain.relabel_units(touched);
    end if;

    touched := array(select n.id from new_rows n join old_rows o using (id)
                     where n.class_id = -1 or o.class_id = -1);
    if cardinality(touched) > 0 then
        perform brain.note_label_faults('thread', touched);
    end if;
    return null;
end $$;

create trigger derive_insert after insert on brain.thread
    referencing new table as new_rows
    for each statement execute function brain.after_thread_insert();
create trigger derive_update after update on brain.thread
    referencing old table as old_rows new table as new_rows
    for each statement execute function brain.after_thread_update();

-- A posting is written without a label; it gets its thread's.
create function brain.label_posting() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    select case when t.deleted_at is null then t.class_id else -1 end, t.tenant, t.jurisdiction
        into strict new.class_id, new.tenant, new.jurisdiction
        from brain.thread t where t.id = new.thread_id for share;
    return new;
end $$;

create trigger label_posting before insert on brain.thread_term
    for each row execute function brain.label_posting();

-- --- labels and artifacts: quarantine only ---------------------------------------------------

create function brain.after_label_write() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform brain.note_label_faults(tg_argv[0], array(select n.id from new_rows n));
    return null;
end $$;

create trigger derive_insert after insert on brain.label
    referencing new table as new_rows
    for each statement execute function brain.after_label_write('label');
create trigger derive_update after update on brain.label
    referencing new table as new_rows
    for each statement execute function brain.after_label_write('label');
create trigger derive_insert after insert on brain.expected_artifact
    referencing new table as new_rows
    for each statement execute function brain.after_label_write('artifact');
create trigger derive_update after update on brain.expected_artifact
    referencing new table as new_rows
    for each statement execute function brain.after_label_write('artifact');
