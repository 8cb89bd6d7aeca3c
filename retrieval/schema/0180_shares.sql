-- Nobody floods the queues: how many gaps a day may bring to the destinations, for an audience and
-- for one subject; and only what was delivered makes a signal.
--
-- Laws
--   A gap is charged to the subject that met it first. Callers without a name share one hash, so
--   all of them together have one subject's share.
--   Within an audience subjects take turns: everybody's best gap goes before anybody's second. The
--   best is what most subjects met. So many gaps of one displace nobody's first.
--   A gap that found no room waits while it is fresh (met yesterday or today); met again, it is
--   fresh again. What was routed once is kept up to date without any bound: it is a row already.
--   What waits is counted, by day and audience.

alter table brain.search_gap_signal
    -- who met the gap first that day; null in rows of before
    add column met_by text check (met_by ~ '^[0-9a-f]{64}$');
-- whom a gap is charged to is nothing for owners: it would tell what one person asked
revoke select on brain.search_gap_signal from gw_steward;
grant select (id, day, dedup_key, kind, audience, classification, thread_id, artifact_id, query_hmac,
    occurrences, subjects, first_at, last_at, state) on brain.search_gap_signal to gw_steward;

-- How many gaps found no room, at most at one time of the day.
create table brain.signal_overflow (
    day      date not null,
    audience text not null,
    gaps     integer not null check (gaps > 0),
    primary key (day, audience)
);

-- As in 0132, and: who met a gap first; no pack that the guard had made again.
create or replace function brain.derive_signals(units_min integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    since constant timestamptz := (date_trunc('day', now() at time zone 'utc') - interval '1 day')
                                  at time zone 'utc';
    changed integer;
begin
    with delivered as (
        select d.audience, d.consumer, d.delivered_at, d.thread_id, d.unit_ids, d.suspect_ids,
               d.gap_ids
        from brain.retrieval_answered a
        join brain.pack_delivery d on d.pack_id = a.pack_id and d.delivered_at = a.at
        where a.kind = 'pack' and a.thread_id is not null and a.noted_at >= since
    ), met as (
        -- questions that no thread answered; nothing at all was found
        select unnest(case e.mode when 'none' then '{missing_thread,search_gap}'::text[]
                                  else '{missing_thread}' end) as kind,
               e.audience, e.consumer, e.noted_at, e.query_hmac, null::uuid as thread_id,
               null::uuid as artifact_id
        from brain.retrieval_answered e
        where e.kind = 'query' and e.asked = 'auto' and e.noted_at >= since
          and e.mode in ('fallback', 'none') and e.weak_ids = '{}'
        union all
        -- threads that were found and not answered from
        select 'weak_thread', e.audience, e.consumer, e.noted_at, null, w.id, null
        from brain.retrieval_answered e cross join lateral unnest(e.weak_ids) w (id)
        where e.kind = 'query' and e.noted_at >= since
        union all
        -- threads that hold little, or little that is sure
        select 'weak_thread', d.audience, d.consumer, d.delivered_at, null, d.thread_id, null
        from delivered d
        where cardinality(d.unit_ids) < units_min
           or cardinality(d.suspect_ids) * 2 >= cardinality(d.unit_ids)
        union all
        -- packs that their readers called beside the point
        select 'noisy_thread', e.audience, e.consumer, e.noted_at, null, e.thread_id, null
        from brain.retrieval_metric_event e
        where e.kind in ('noisy_context', 'wrong_thread') and e.thread_id is not null
          and e.noted_at >= since
        union all
        select 'expected_artifact_missing', d.audience, d.consumer, d.delivered_at, null,
               d.thread_id, g.id
        from delivered d cross join lateral unnest(d.gap_ids) g (id)
    ), counted as (
        select kind, audience, (noted_at at time zone 'utc')::date as day, query_hmac, thread_id,
               artifact_id, count(*) as occurrences, count(distinct consumer) as subjects,
               min(noted_at) as first_at, max(noted_at) as last_at,
               (array_agg(consumer order by noted_at, consumer))[1] as met_by
        from met group by 1, 2, 3, 4, 5, 6
    )
    insert into brain.search_gap_signal as s (day, dedup_key, kind, audience, classification,
        thread_id, artifact_id, query_hmac, occurrences, subjects, first_at, last_at, met_by)
    select c.day, brain.gap_key(c.kind, c.audience,
                                coalesce(c.query_hmac, concat_ws('/', c.thread_id, c.artifact_id))),
           c.kind, c.audience,
           case when c.query_hmac is not null then 'unknown'
                when c.kind = 'noisy_thread' then 'absent'
                when c.kind = 'weak_thread' then brain.thread_weakness(c.thread_id, units_min)
                else brain.artifact_absence(c.artifact_id) end,
           c.thread_id, c.artifact_id, c.query_hmac, c.occurrences, c.subjects, c.first_at,
           c.last_at, c.met_by
    from counted c
    on conflict (dedup_key, day) do update
        set occurrences = excluded.occurrences, subjects = excluded.subjects,
            last_at = excluded.last_at,
            classification = case excluded.classification
                when 'unknown' then s.classification else excluded.classification end
        where (s.occurrences, s.subjects, s.last_at) is distinct from
              (excluded.occurrences, excluded.subjects, excluded.last_at);
    get diagnostics changed = row_count;
    return changed;
end $$;

-- The repeated gaps that no destination has, each with whether there is room for it today.
create function brain.fresh_gaps(repeated integer, by_subject integer, by_audience integer)
returns table (dedup_key text, audience text, room boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with today as (
        select date_trunc('day', now() at time zone 'utc') at time zone 'utc' as began
    ), gap as (
        select s.dedup_key, s.audience, sum(s.occurrences) as occurrences,
               max(s.subjects) as subjects, max(s.last_at) as last_at,
               (array_agg(coalesce(s.met_by, s.dedup_key) order by s.day))[1] as met_by
        from brain.search_gap_signal s
        where s.classification = 'absent' and s.state <> 'closed'
        group by s.dedup_key, s.audience
        having sum(s.occurrences) >= repeated
    ), routed as (
        select g.audience, g.met_by, count(*) as gaps
        from gap g join brain.decision_backlog b on b.dedup_key = g.dedup_key, today
        where b.opened_at >= today.began
        group by g.audience, g.met_by
    ), fresh as (
        select g.dedup_key, g.audience, g.subjects, g.occurrences, coalesce(r.gaps, 0)
                   + row_number() over (partition by g.audience, g.met_by
                       order by g.subjects desc, g.occurrences desc, g.dedup_key) as turn
        from today, gap g
        left join routed r on r.audience = g.audience and r.met_by = g.met_by
        where g.last_at >= today.began - interval '1 day'
          and not exists (select from brain.decision_backlog b where b.dedup_key = g.dedup_key)
    ), placed as (
        select f.dedup_key, f.audience, f.turn, row_number() over (partition by f.audience
                   order by f.turn, f.subjects desc, f.occurrences desc, f.dedup_key) as place
        from fresh f
    ), taken as (
        select r.audience, sum(r.gaps) as gaps from routed r group by r.audience
    )
    select p.dedup_key, p.audience,
           p.turn <= by_subject and p.place + coalesce(t.gaps, 0) <= by_audience
    from placed p left join taken t on t.audience = p.audience
$$;

-- In place of 0132's, whose laws hold. `by_subject`, `by_audience`: how many gaps of one subject and
-- of one audience may come to the destinations on a day.
drop function brain.route_signals(integer, boolean);
create function brain.route_signals(
    repeated integer, notify boolean, by_subject integer, by_audience integer
) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    target record;
    admitted text[];
    moved integer := 0;
    touched integer;
begin
    if repeated is null or repeated < 1 or notify is null then
        raise exception 'a gap is repeated from once on' using errcode = 'invalid_parameter_value';
    end if;
    if by_subject is null or by_audience is null or least(by_subject, by_audience) < 1 then
        raise exception 'there is room for one gap a day' using errcode = 'invalid_parameter_value';
    end if;
    perform pg_advisory_xact_lock(hashtext('brain.route_signals'));
    with fresh as (
        select f.dedup_key, f.audience, f.room
        from brain.fresh_gaps(repeated, by_subject, by_audience) f
    ), counted as (
        insert into brain.signal_overflow as o (day, audience, gaps)
        select (now() at time zone 'utc')::date, f.audience, count(*) from fresh f
        where not f.room group by f.audience
        on conflict (day, audience) do update set gaps = greatest(o.gaps, excluded.gaps)
    )
    select coalesce(array_agg(f.dedup_key) filter (where f.room), '{}') into admitted from fresh f;
    for target in select * from (values ('brain', 'decision_backlog'),
        ('brain', 'segmentation_health'), ('gate', 'governance_queue')) t (space, name)
    loop
        execute format($route$
            with gap as (
                select s.dedup_key, s.kind, s.audience, s.thread_id, s.artifact_id, s.query_hmac,
                       sum(s.occurrences) as occurrences, max(s.subjects) as subjects,
                       count(*) as days, min(s.first_at) as first_at, max(s.last_at) as last_at,
                       (array_agg(s.id order by s.last_at desc))[:20] as signal_ids
                from brain.search_gap_signal s
                where s.classification = 'absent' and s.state <> 'closed'
                  and s.dedup_key in (select b.dedup_key from brain.decision_backlog b
                                      union all select unnest($3))
                group by 1, 2, 3, 4, 5, 6
                having sum(s.occurrences) >= $1
            ), changed as (
                insert into %1$I.%2$I as b (dedup_key, kind, audience, thread_id, artifact_id,
                    query_hmac, occurrences, subjects, days, signal_ids, first_at, last_at)
                select dedup_key, kind, audience, thread_id, artifact_id, query_hmac, occurrences,
                       subjects, days, signal_ids, first_at, last_at
                from gap
                on conflict (dedup_key) do update
                    set occurrences = excluded.occurrences, subjects = excluded.subjects,
                        days = excluded.days, signal_ids = excluded.signal_ids,
                        last_at = excluded.last_at,
                        state = case when b.state = 'done' and excluded.last_at > b.closed_at
                                     then 'open' else b.state end,
                        returned = b.returned
                            + (b.state = 'done' and excluded.last_at > b.closed_at)::integer,
                        closed_at = case when b.state = 'done' and excluded.last_at > b.closed_at
                                         then null else b.closed_at end,
                        closed_by = case when b.state = 'done' and excluded.last_at > b.closed_at
                                         then null else b.closed_by end,
                        close_reason = case when b.state = 'done' and excluded.last_at > b.closed_at
                                            then null else b.close_reason end
                    where b.last_at < excluded.last_at or b.occurrences <> excluded.occurrences
                returning b.*, b.xmax = 0 as fresh
            ), told as (
                insert into brain.signal_outbox (destination, dedup_key, body)
                select %2$L, c.dedup_key, jsonb_build_object('type', 'signal.' || %2$L, 'id', c.id,
                    'kind', c.kind, 'audience', c.audience, 'thread_id', c.thread_id,
                    'artifact_id', c.artifact_id, 'occurrences', c.occurrences,
                    'subjects', c.subjects, 'days', c.days, 'returned', c.returned,
                    'first_at', c.first_at, 'last_at', c.last_at)
                from changed c
                where $2 and c.state = 'open'
                on conflict do nothing
            )
            select count(*) from changed
        $route$, target.space, target.name) into touched using repeated, notify, admitted;
        moved := moved + touched;
    end loop;
    update brain.search_gap_signal s set state = 'routed'
    where s.state = 'open' and s.classification = 'absent'
      and exists (select from brain.decision_backlog b where b.dedup_key = s.dedup_key);
    insert into brain.thread_proposal (dedup_key, audience)
    select b.dedup_key, b.audience from brain.decision_backlog b
    where b.kind = 'missing_thread' and b.state = 'open'
    on conflict do nothing;
    insert into brain.capability_intake as i (dedup_key, kind, audience, returned)
    select b.dedup_key, b.kind, b.audience, b.returned from brain.decision_backlog b
    where b.returned > 0
    on conflict (dedup_key) do update set returned = excluded.returned
        where i.returned <> excluded.returned;
    return moved;
end $$;

alter table brain.signal_overflow enable row level security;
alter table brain.signal_overflow force row level security;
create policy owner on brain.signal_overflow to gw_owner using (true) with check (true);
create policy gw_steward_select on brain.signal_overflow for select to gw_steward using (true);
revoke all on brain.signal_overflow from public;
grant select on brain.signal_overflow to gw_steward;
revoke execute on function brain.fresh_gaps(integer, integer, integer),
    brain.route_signals(integer, boolean, integer, integer) from public;
grant execute on function brain.route_signals(integer, boolean, integer, integer) to gw_signal;
