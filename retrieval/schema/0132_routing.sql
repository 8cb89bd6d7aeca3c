-- Where signals go: the decision backlog (D5), the segmentation health report (D3) and the governance
-- queue (Đ37), proposals for threads, capability intake (D4), and the outbox of the webhook. There is
-- no notification system here: other systems read these tables or take the webhook.
--
-- Laws
--   Only a gap that the whole corpus has (`absent`) goes anywhere: what an audience may not read is
--   no task for anybody. The functions below are the only writers, so the database holds that.
--   A gap is one row per destination, however often it is met; who closed it said why.
--   No subject, no address, no text of a question stands here. A word of questions is kept once five
--   different subjects have used it, or if it is a term of the controlled vocabulary.
--   A gap is charged to the subject that met it first. Callers without a name share one hash, so
--   all of them together have one subject's share.
--   Within an audience subjects take turns: everybody's best gap goes before anybody's second. The
--   best is what most subjects met. So many gaps of one displace nobody's first.
--   A gap that found no room waits while it is fresh (met yesterday or today); met again, it is
--   fresh again. What was routed once is kept up to date without any bound: it is a row already.
--   What waits is counted, by day and audience.
--   Nothing of this is read for an answer. Owners read it (gw_steward), callers never.

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

create table brain.decision_backlog (
    id           uuid primary key default gen_random_uuid(),
    dedup_key    text not null unique check (dedup_key ~ '^[0-9a-f]{64}$'),
    kind         text not null,
    audience     text not null,
    thread_id    uuid,
    artifact_id  uuid,
    query_hmac   text,
    -- the evidence: how often, by how many, on how many days, and the newest signals
    occurrences  bigint not null,
    subjects     integer not null,  -- the most on one day
    days         integer not null,
    signal_ids   uuid[] not null,
    first_at     timestamptz not null,
    last_at      timestamptz not null,
    state        text not null default 'open' check (state in ('open', 'done', 'rejected')),
    opened_at    timestamptz not null default now(),
    closed_at    timestamptz,
    closed_by    text check (closed_by <> ''),
    close_reason text check (close_reason <> ''),
    -- when it was last done; stays when it comes back
    done_at      timestamptz,
    -- how often it was met again after it was done
    returned     integer not null default 0,
    check ((state = 'open') = (closed_at is null)),
    check ((closed_at is null) = (closed_by is null)),
    check ((closed_at is null) = (close_reason is null))
);
create table brain.segmentation_health (like brain.decision_backlog including all);
create table gate.governance_queue (like brain.decision_backlog including all);

-- The words of gaps. `term_hmac` is a keyed hash; `word` is written when enough subjects used it.
create table brain.question_term (
    term_hmac text primary key check (term_hmac ~ '^[0-9a-f]{64}$'),
    word      text
);
create table brain.question_term_use (
    term_hmac text not null references brain.question_term (term_hmac) on delete cascade,
    consumer  text not null check (consumer ~ '^[0-9a-f]{64}$'),
    last_at   timestamptz not null default now(),
    primary key (term_hmac, consumer)
);
create table brain.gap_term (
    dedup_key text not null check (dedup_key ~ '^[0-9a-f]{64}$'),
    term_hmac text references brain.question_term (term_hmac) on delete cascade,
    label_id  uuid references brain.label (id) on delete cascade,
    check ((term_hmac is null) <> (label_id is null)),
    unique nulls not distinct (dedup_key, term_hmac, label_id)
);

-- A thread that should perhaps exist. Its words are those of `brain.proposal_words`.
create table brain.thread_proposal (
    id           uuid primary key default gen_random_uuid(),
    dedup_key    text not null unique references brain.decision_backlog (dedup_key),
    audience     text not null,
    state        text not null default 'open' check (state in ('open', 'done', 'rejected')),
    proposed_at  timestamptz not null default now(),
    closed_at    timestamptz,
    closed_by    text check (closed_by <> ''),
    close_reason text check (close_reason <> '')
);

-- What enrichment did not mend: a gap that came back after it was done needs retrieval itself.
create table brain.capability_intake (
    id           uuid primary key default gen_random_uuid(),
    dedup_key    text not null unique references brain.decision_backlog (dedup_key),
    kind         text not null,
    audience     text not null,
    returned     integer not null check (returned > 0),
    state        text not null default 'open' check (state in ('open', 'done', 'rejected')),
    opened_at    timestamptz not null default now(),
    closed_at    timestamptz,
    closed_by    text check (closed_by <> ''),
    close_reason text check (close_reason <> '')
);

-- The webhook: one message per destination, gap and day, sent until it is taken or given up.
create table brain.signal_outbox (
    id          uuid primary key default gen_random_uuid(),
    destination text not null
        check (destination in ('decision_backlog', 'segmentation_health', 'governance_queue')),
    dedup_key   text not null,
    day         date not null default (now() at time zone 'utc')::date,
    body        jsonb not null,
    made_at     timestamptz not null default now(),
    due_at      timestamptz not null default now(),
    attempts    integer not null default 0,
    state       text not null default 'pending' check (state in ('pending', 'sent', 'given_up')),
    last_code   text not null default '',
    unique (destination, dedup_key, day)
);
create index signal_outbox_pending on brain.signal_outbox (due_at) where state = 'pending';

create view brain.proposal_words as
select g.dedup_key,
       coalesce(array_agg(l.term order by l.term) filter (where l.term is not null), '{}') as labels,
       coalesce(array_agg(t.word order by t.word) filter (where t.word is not null), '{}') as words
from brain.gap_term g
left join brain.label l on l.id = g.label_id and l.deleted_at is null
left join brain.question_term t on t.term_hmac = g.term_hmac
group by g.dedup_key;

-- --- deriving signals ------------------------------------------------------------------------------

create function brain.gap_key(kind text, audience text, about text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select encode(sha256(convert_to(concat_ws(chr(10), kind, audience, about), 'UTF8')), 'hex') $$;

-- The signals of yesterday and today, counted anew: run twice, nothing changes. What has a question
-- is only counted here; whether the corpus has an answer, the worker finds out (`unknown` until
-- then). The rest is about a thread and is classified by what the thread really holds.
-- Who met a gap first is kept; a pack that the guard had made again is none.
create function brain.derive_signals(units_min integer) returns integer
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

-- Whether a thread is weak for everybody, or only for those who may not read most of it.
create function brain.thread_weakness(thread uuid, units_min integer) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when exists (
            select from brain.thread_partial p
            where p.thread_id = thread
              and p.health ->> 'status' in ('stale', 'overbroad', 'too_narrow', 'noisy_retrieval'))
        or exists (
            select from brain.thread_feedback_health f
            where f.thread_id = thread and f.status = 'noisy_retrieval')
        or (select count(*) from brain.thread_membership m
            join brain.unit u on u.id = m.unit_id and u.deleted_at is null
            where m.thread_id = thread and m.status = 'active') < units_min
        then 'absent' else 'not_for_audience' end
$$;

-- Whether a thread has what an artifact stands for, in the eyes of somebody who may read it all.
create function brain.artifact_absence(artifact uuid) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when exists (
        select from brain.expected_artifact a
        left join gate.unit_class wanted on wanted.class_id = a.class_id
        join brain.thread_membership m on m.thread_id = a.thread_id and m.status <> 'wrong_link'
        join brain.unit u on u.id = m.unit_id and u.deleted_at is null
        left join gate.unit_class has on has.class_id = u.class_id
        where a.id = artifact and u.lifecycle_stage = a.lifecycle_stage
          and (coalesce(wanted.kind, 'other') = 'other' or has.kind is null
               or has.kind = wanted.kind))
        then 'not_for_audience' else 'absent' end
$$;

-- --- routing ---------------------------------------------------------------------------------------

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

-- Definer: nobody else writes the destinations. Takes what is absent and repeated to all three, with
-- its evidence; opens again what was done and came back; proposes threads.
-- `by_subject`, `by_audience`: how many gaps of one subject and of one audience may come to the
-- destinations on a day.
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

-- --- rights ----------------------------------------------------------------------------------------

do $security$
declare
    target text;
begin
    foreach target in array array['brain.decision_backlog', 'brain.segmentation_health',
        'gate.governance_queue', 'brain.question_term', 'brain.question_term_use', 'brain.gap_term',
        'brain.thread_proposal', 'brain.capability_intake', 'brain.signal_outbox'] loop
        execute format('alter table %s enable row level security', target);
        execute format('alter table %s force row level security', target);
        execute format('create policy owner on %s to gw_owner using (true) with check (true)',
                       target);
        execute format('revoke all on %s from public', target);
    end loop;
    -- the desk of knowledge owners: reads, and closes with a reason
    foreach target in array array['brain.decision_backlog', 'brain.segmentation_health',
        'gate.governance_queue', 'brain.thread_proposal', 'brain.capability_intake'] loop
        execute format('create policy gw_steward_all on %s for all to gw_steward using (true)'
                       ' with check (true)', target);
        execute format('grant select, update (state, closed_at, closed_by, close_reason) on %s'
                       ' to gw_steward', target);
    end loop;
    grant update (done_at) on brain.decision_backlog, brain.segmentation_health,
        gate.governance_queue to gw_steward;
    -- the worker: words of gaps, and what is to be sent
    foreach target in array array['brain.question_term', 'brain.question_term_use',
        'brain.gap_term', 'brain.signal_outbox'] loop
        execute format('create policy gw_signal_all on %s for all to gw_signal using (true)'
                       ' with check (true)', target);
    end loop;
    -- it asks what any reader could find, of all there is
    for target in
        select format('%I.%I', n.nspname, c.relname) from pg_policy p
        join pg_class c on c.oid = p.polrelid join pg_namespace n on n.oid = c.relnamespace
        where p.polname = 'reader' and n.nspname in ('brain', 'gate')
          and not exists (select from pg_policy o where o.polrelid = c.oid
                          and o.polname in ('gw_signal_select', 'gw_signal_all'))
    loop
        execute format('create policy gw_signal_select on %s for select to gw_signal using (true)',
                       target);
        execute format('grant select on %s to gw_signal', target);
    end loop;
end $security$;
grant usage on schema gate to gw_signal, gw_steward;
-- a thread whose item was closed as done is judged anew (0131)
create policy gw_signal_select on brain.segmentation_health for select to gw_signal using (true);
grant select (thread_id, audience, kind, done_at) on brain.segmentation_health to gw_signal;
grant select, insert, update (word), delete on brain.question_term to gw_signal;
grant select, insert, update (last_at), delete on brain.question_term_use to gw_signal;
grant select, insert on brain.gap_term to gw_signal;
grant select, update (due_at, attempts, state, last_code), delete on brain.signal_outbox to gw_signal;
grant select on brain.retrieval_answered to gw_signal;
create policy gw_steward_select on brain.signal_outbox for select to gw_steward using (true);
grant select on brain.signal_outbox, brain.proposal_words to gw_steward;
-- what became of a gap, and not whose question met it
grant select (kind, asked, mode, audience, query_hmac, thread_id, noted_at)
    on brain.retrieval_answered to gw_steward;
revoke execute on function brain.gap_key(text, text, text), brain.derive_signals(integer),
    brain.thread_weakness(uuid, integer), brain.artifact_absence(uuid),
    brain.fresh_gaps(integer, integer, integer),
    brain.route_signals(integer, boolean, integer, integer) from public;
grant execute on function brain.gap_key(text, text, text), brain.derive_signals(integer),
    brain.thread_weakness(uuid, integer), brain.artifact_absence(uuid),
    brain.route_signals(integer, boolean, integer, integer) to gw_signal;
revoke all on brain.proposal_words from public;
alter table brain.signal_overflow enable row level security;
alter table brain.signal_overflow force row level security;
create policy owner on brain.signal_overflow to gw_owner using (true) with check (true);
create policy gw_steward_select on brain.signal_overflow for select to gw_steward using (true);
revoke all on brain.signal_overflow from public;
grant select on brain.signal_overflow to gw_steward;
