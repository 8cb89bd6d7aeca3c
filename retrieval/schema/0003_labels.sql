-- How a label becomes a class: looked up in one place, by trigger, never written by hand.
--
-- Laws
--   A value that an object declares stands alone. A blank (null) of a unit is filled from its
--   threads; an empty string is not a blank, it is an unknown word.
--   Several threads: where the vocabulary declares an order the stricter value wins (an unknown
--   word is stricter than all); disagreement on another facet fills nothing.
--   A thread's kind is `thread` and never fills a unit's.
--   A link marked wrong_link fills nothing. One that needs a human can only restrict: it counts
--   as soon as an active link fills the same facet.
--   Whatever is not exactly one live class is class -1 and has an open quarantine row.
--
-- Concurrency: whoever computes a unit's class from threads holds those threads FOR SHARE, so a
-- withdrawal that commits meanwhile is waited for and then seen.

create table gate.facet_word (
    facet   text not null check (facet in
        ('visibility', 'readiness', 'publication_state', 'risk_class', 'authority', 'kind')),
    word    text not null check (word <> ''),
    -- position in the declared order, loosest first; null where the facet has none
    rank    integer,
    retired boolean not null default false,
    primary key (facet, word)
);

create index quarantine_object on brain.quarantine (object_id) where resolved_at is null;

-- The class of six words, or -1.
create function gate.class_of(
    visibility text, readiness text, publication_state text, risk_class text, authority text,
    kind text
) returns smallint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce((
        select c.class_id from gate.unit_class c
        where c.visibility = $1 and c.readiness = $2 and c.publication_state = $3
          and c.risk_class = $4 and c.authority = $5 and c.kind = $6 and not c.retired), -1::smallint)
$$;

-- What the threads of some units offer for each facet but kind. `value` is null when nothing
-- firm is offered or when the offers contradict each other.
create function brain.inherited(units uuid[])
returns table (unit_id uuid, facet text, value text, contradictory boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with offered as (
        select m.unit_id, f.facet, f.value, m.status = 'active' as firm, w.rank,
               exists (select from gate.facet_word o
                       where o.facet = f.facet and o.rank is not null) as ordered
        from brain.thread_membership m
        join brain.thread t on t.id = m.thread_id and t.deleted_at is null
        cross join lateral (values
            ('visibility', t.visibility), ('readiness', t.readiness),
            ('publication_state', t.publication_state), ('risk_class', t.risk_class),
            ('authority', t.authority)) f (facet, value)
        left join gate.facet_word w on w.facet = f.facet and w.word = f.value
        where m.unit_id = any (units) and m.status <> 'wrong_link' and f.value is not null
    )
    select o.unit_id, o.facet,
           case when not bool_or(o.firm) then null
                when o.ordered
                then (array_agg(o.value order by coalesce(o.rank, 2147483647) desc, o.value))[1]
                when count(distinct o.value) = 1 then min(o.value)
           end,
           bool_or(o.firm) and not o.ordered and count(distinct o.value) > 1
    from offered o
    group by o.unit_id, o.facet, o.ordered
$$;

-- Threads, labels and artifacts: their own facets only.
create function brain.class_from_own() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    new.class_id := gate.class_of(new.visibility, new.readiness, new.publication_state,
                                  new.risk_class, new.authority, new.kind);
    return new;
end $$;

create trigger class_from_own before insert or update on brain.thread
    for each row execute function brain.class_from_own();
create trigger class_from_own before insert or update on brain.label
    for each row execute function brain.class_from_own();
create trigger class_from_own before insert or update on brain.expected_artifact
    for each row execute function brain.class_from_own();

-- Units: own facets, blanks filled. A new unit has no threads yet (the link needs the unit).
create function brain.class_from_effective() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    filled record;
begin
    if tg_op = 'INSERT' or num_nulls(new.visibility, new.readiness, new.publication_state,
                                     new.risk_class, new.authority) = 0 then
        new.class_id := gate.class_of(new.visibility, new.readiness, new.publication_state,
                                      new.risk_class, new.authority, new.kind);
        return new;
    end if;
    perform from brain.thread t
        where t.id in (select m.thread_id from brain.thread_membership m where m.unit_id = new.id)
        order by t.id for share;
    select max(i.value) filter (where i.facet = 'visibility') as visibility,
           max(i.value) filter (where i.facet = 'readiness') as readiness,
           max(i.value) filter (where i.facet = 'publication_state') as publication_state,
           max(i.value) filter (where i.facet = 'risk_class') as risk_class,
           max(i.value) filter (where i.facet = 'authority') as authority
        into filled from brain.inherited(array[new.id]) i;
    new.class_id := gate.class_of(
        coalesce(new.visibility, filled.visibility),
        coalesce(new.readiness, filled.readiness),
        coalesce(new.publication_state, filled.publication_state),
        coalesce(new.risk_class, filled.risk_class),
        coalesce(new.authority, filled.authority), new.kind);
    return new;
end $$;

create trigger class_from_effective before insert or update on brain.unit
    for each row execute function brain.class_from_effective();

-- Computes anew the class of the units among these that have a blank to fill.
create function brain.relabel_units(units uuid[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with stale as (
        select u.id from brain.unit u
        where u.id = any (units)
          and num_nulls(u.visibility, u.readiness, u.publication_state, u.risk_class,
                        u.authority) > 0
        order by u.id for no key update)
    update brain.unit u set class_id = u.class_id from stale where u.id = stale.id
$$;

-- Everything that carries a label, under one set of columns (for the owner's functions only).
create view brain.labelled as
    select 'unit' as sort, u.id, u.canonical_address as address, u.source, u.visibility, u.readiness,
           u.publication_state, u.risk_class, u.authority, u.kind, u.class_id, u.deleted_at
    from brain.unit u
    union all
    select 'thread', t.id, t.canonical_address, '', t.visibility, t.readiness,
           t.publication_state, t.risk_class, t.authority, t.kind, t.class_id, t.deleted_at
    from brain.thread t
    union all
    select 'label', l.id, l.tenant || '/' || l.term || '@' || l.version, '', l.visibility,
           l.readiness, l.publication_state, l.risk_class, l.authority, l.kind, l.class_id,
           l.deleted_at
    from brain.label l
    union all
    select 'artifact', a.id, a.thread_id || '/' || a.lifecycle_stage || '/' || a.title, '',
           a.visibility, a.readiness, a.publication_state, a.risk_class, a.authority, a.kind,
           a.class_id, a.deleted_at
    from brain.expected_artifact a;

-- Why objects of one sort have class -1: one row per bad word, one for all blanks together.
create function brain.label_faults(of_sort text, ids uuid[])
returns table (object_id uuid, address text, source text, facet text, value text, reason text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with words as (
        select l.id, l.address, l.source, f.facet, f.position,
               coalesce(f.value, i.value) as value,
               case when coalesce(i.contradictory, false) and f.value is null then 'contradiction'
                    when coalesce(f.value, i.value) is null then 'blank'
                    when w.word is null then 'unknown_word'
                    when w.retired then 'retired_word'
               end as reason
        from brain.labelled l
        cross join lateral (values
            (1, 'visibility', l.visibility), (2, 'readiness', l.readiness),
            (3, 'publication_state', l.publication_state), (4, 'risk_class', l.risk_class),
            (5, 'authority', l.authority), (6, 'kind', l.kind)) f (position, facet, value)
        left join brain.inherited(case when of_sort = 'unit' then ids else '{}' end) i
               on i.unit_id = l.id and i.facet = f.facet
        left join gate.facet_word w on w.facet = f.facet and w.word = coalesce(f.value, i.value)
        where l.sort = of_sort and l.id = any (ids) and l.class_id = -1 and l.deleted_at is null
    )
    select id, address, source, facet, value, reason from words
    where reason in ('unknown_word', 'retired_word')
    union all
    select id, address, source, string_agg(facet, ',' order by position), '', reason from words
    where reason in ('blank', 'contradiction')
    group by id, address, source, reason
$$;

-- Brings the quarantine rows of these objects up to date: closes what no longer holds (a row of
-- this same transaction was never seen by anyone and is removed), opens what does now. Reasons
-- that ingest gave are not ours to close.
create function brain.note_label_faults(of_sort text, ids uuid[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with faults as materialized (
        select f.object_id, left(f.address, 300) as address, left(f.source, 300) as source, f.facet,
               left(f.value, 200) as value, f.reason
        from brain.label_faults(of_sort, ids) f
    ), past as (
        select q.id, q.created_at = now() as unseen
        from brain.quarantine q
        where q.object_id = any (ids) and q.sort = of_sort and q.resolved_at is null
          and q.reason in ('unknown_word', 'retired_word', 'blank', 'contradiction')
          and not exists (
              select from faults f
              where f.object_id = q.object_id and f.facet = q.facet and f.value = q.value
                and f.reason = q.reason)
    ), removed as (
        delete from brain.quarantine q using past p where q.id = p.id and p.unseen
    ), closed as (
        update brain.quarantine q set resolved_at = now() from past p
        where q.id = p.id and not p.unseen
    )
    insert into brain.quarantine (sort, object_id, address, source, facet, value, reason)
    select of_sort, f.object_id, f.address, f.source, f.facet, f.value, f.reason from faults f
    on conflict (sort, address, facet, value, reason) where resolved_at is null do nothing
$$;

-- After the words or classes themselves changed: threads first, units read them.
create function brain.relabel_all() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    update brain.thread set class_id = class_id;
    update brain.label set class_id = class_id;
    update brain.expected_artifact set class_id = class_id;
    update brain.unit set class_id = class_id;
end $$;
