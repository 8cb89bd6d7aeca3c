-- What follows from a change of units or threads, in time that grows with their number and not with
-- its square.
--
-- Laws
--   What 0004, 0060 and 0120 say of it holds: the same rows are written.
--   The two transition tables are never joined. The planner knows nothing of their size and takes
--   one row after the other through the whole of the second. Their union is grouped by unit: what
--   differs has a minimum below its maximum, and what stayed the same takes itself away.
--   An array of units is joined to a table by its key, never compared with all of the table's rows.

create or replace function brain.after_unit_update() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    buried uuid[];
    rewritten uuid[];
    relabelled uuid[];
    regrouped uuid[];  -- what their threads count of them has changed
    faulty uuid[];
begin
    with side as (
        select o.id, true as former, o.deleted_at is not null as gone, o.class_id, o.tenant,
               o.jurisdiction, o.current_revision, o.active_at, o.lifecycle_stage
        from old_rows o
        union all
        select n.id, false, n.deleted_at is not null, n.class_id, n.tenant, n.jurisdiction,
               n.current_revision, n.active_at, n.lifecycle_stage
        from new_rows n
    ), change as (
        select s.id, bool_or(s.gone and s.former) as was_gone,
               bool_or(s.gone and not s.former) as is_gone,
               min(s.current_revision) < max(s.current_revision) as revised,
               min(s.class_id) < max(s.class_id) or min(s.tenant) < max(s.tenant)
                   or min(s.jurisdiction) < max(s.jurisdiction) as relabelled,
               min(s.active_at) < max(s.active_at)
                   or min(s.lifecycle_stage) < max(s.lifecycle_stage) as moved,
               min(s.class_id) = -1 as faulty
        from side s group by s.id
    )
    select coalesce(array_agg(c.id) filter (where c.is_gone and not c.was_gone), '{}'),
           coalesce(array_agg(c.id) filter (where not c.is_gone and (c.was_gone or c.revised)), '{}'),
           coalesce(array_agg(c.id) filter (where c.relabelled and not c.is_gone
                                            and not c.was_gone and not c.revised), '{}'),
           coalesce(array_agg(c.id) filter (where c.relabelled or c.was_gone <> c.is_gone
                                            or c.revised or c.moved), '{}'),
           coalesce(array_agg(c.id) filter (where c.faulty), '{}')
        into buried, rewritten, relabelled, regrouped, faulty from change c;
    perform brain.announce(buried, 'delete');
    perform brain.announce(rewritten, 'content');
    perform brain.announce(relabelled, 'label');

    if cardinality(buried) + cardinality(rewritten) + cardinality(relabelled) > 0 then
        insert into brain.corpus_partial as p (class_id, tenant, jurisdiction, units)
        select d.class_id, d.tenant, d.jurisdiction, sum(d.sign)
        from (select o.class_id, o.tenant, o.jurisdiction, -1 as sign from old_rows o
              where o.class_id >= 0 and o.deleted_at is null
              union all
              select n.class_id, n.tenant, n.jurisdiction, 1 from new_rows n
              where n.class_id >= 0 and n.deleted_at is null) d
        group by 1, 2, 3 having sum(d.sign) <> 0 order by 1, 2, 3
        on conflict (class_id, tenant, jurisdiction) do update set units = p.units + excluded.units;

        insert into brain.lexicon_partial as p (term, class_id, tenant, jurisdiction, df)
        select t.term, d.class_id, d.tenant, d.jurisdiction, sum(d.sign)
        from (select s.id, s.current_revision, s.class_id, s.tenant, s.jurisdiction,
                     sum(s.sign) as sign
              from (select o.id, o.current_revision, o.class_id, o.tenant, o.jurisdiction,
                           -1 as sign
                    from old_rows o where o.class_id >= 0 and o.deleted_at is null
                    union all
                    select n.id, n.current_revision, n.class_id, n.tenant, n.jurisdiction, 1
                    from new_rows n where n.class_id >= 0 and n.deleted_at is null) s
              group by 1, 2, 3, 4, 5 having sum(s.sign) <> 0) d
        join brain.unit_revision r on r.unit_id = d.id and r.revision = d.current_revision
        cross join unnest(r.lexical_terms) t (term)
        group by 1, 2, 3, 4 having sum(d.sign) <> 0 order by 1, 2, 3, 4
        on conflict (term, class_id, tenant, jurisdiction) do update set df = p.df + excluded.df;
    end if;

    if cardinality(regrouped) > 0 then
        perform brain.recount_threads(array(
            select distinct m.thread_id from unnest(regrouped) u (id)
            join brain.thread_membership m on m.unit_id = u.id));
    end if;
    if cardinality(faulty) > 0 then
        perform brain.note_label_faults('unit', faulty);
    end if;
    return null;
end $$;

create or replace function brain.after_thread_update() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    relabelled uuid[];  -- what their units inherit has changed
    faulty uuid[];
begin
    update brain.thread_term p
    set class_id = v.class_id, tenant = v.tenant, jurisdiction = v.jurisdiction
    from (select n.id, n.tenant, n.jurisdiction,
                 case when n.deleted_at is null then n.class_id else -1 end as class_id
          from new_rows n) v
    where p.thread_id = v.id
      and (p.class_id, p.tenant, p.jurisdiction) <> (v.class_id, v.tenant, v.jurisdiction);

    with side as (
        select o.id, o.class_id, to_jsonb(array[o.visibility, o.readiness, o.publication_state,
                   o.risk_class, o.authority]) as words, o.deleted_at is null as there, o.wish
        from old_rows o
        union all
        select n.id, n.class_id, to_jsonb(array[n.visibility, n.readiness, n.publication_state,
                   n.risk_class, n.authority]), n.deleted_at is null, n.wish
        from new_rows n
    ), change as (
        select s.id, count(distinct jsonb_build_array(s.words, s.there, s.wish)) > 1 as relabelled,
               min(s.class_id) = -1 as faulty
        from side s group by s.id
    )
    select coalesce(array_agg(c.id) filter (where c.relabelled), '{}'),
           coalesce(array_agg(c.id) filter (where c.faulty), '{}')
        into relabelled, faulty from change c;
    if cardinality(relabelled) > 0 then
        perform brain.relabel_units(array(
            select distinct m.unit_id from unnest(relabelled) t (id)
            join brain.thread_membership m on m.thread_id = t.id));
    end if;
    if cardinality(faulty) > 0 then
        perform brain.note_label_faults('thread', faulty);
    end if;
    return null;
end $$;
