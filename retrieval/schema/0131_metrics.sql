-- The eight rates of seed 4.8, each defined once, and their rollup by day and audience; health from
-- feedback.
--
-- Laws
--   A rate is two counts. Both count what one day's answers led to, however late it was said.
--   What the guard refused, and what replaced it, is one answer: the last. If that was refused as well,
--   there was none.
--   Nobody is shown a rate but owners; the rollup belongs to gw_owner and is read by gw_steward.
--   Feedback changes health only when enough different, known subjects of one audience agree, not
--   more often than a pause, and for that audience only.

-- Questions and packs that stood: an answer that was made again replaces what came before it, and one
-- that was withheld is none.
create view brain.retrieval_answered as
select e.*
from brain.retrieval_metric_event e
left join (select request_id, consumer, max(noted_at) as last
           from brain.retrieval_metric_event where again group by request_id, consumer) r
    using (request_id, consumer)
where e.kind in ('query', 'pack') and (r.last is null or e.noted_at >= r.last)
  and not exists (select from brain.answer_withheld w where w.query_id = e.query_id);

-- One row per thing counted. `of` is what makes a row part of the denominator, `counts` of the
-- numerator. A question that asked for the vector path outright (`raw`) tells nothing of threads.
create view brain.retrieval_metric_count as
with said as (
    select query_id, pack_id, array_agg(distinct kind) as kinds
    from brain.retrieval_metric_event where kind not in ('query', 'pack')
    group by grouping sets ((query_id), (pack_id))
), question as (
    select q.at, q.audience, coalesce(s.kinds, '{}') as said,
           q.asked = 'auto' as resolved, q.mode in ('single', 'multi') as hit,
           q.mode <> 'none' as packed
    from brain.retrieval_answered q
    left join said s on s.query_id = q.id
    where q.kind = 'query'
), pack as (
    select p.at, p.audience, coalesce(s.kinds, '{}') as said, p.thread_id is not null as of_thread
    from brain.retrieval_answered p
    left join said s on s.pack_id = p.pack_id
    where p.kind = 'pack'
), counted as (
    select at, audience, m.metric, m.counts from question
    cross join lateral (values
        -- questions answered by a thread, of those that could be
        ('thread_hit_rate',          resolved,      hit),
        -- questions that no thread answered
        ('fallback_vector_rate',     resolved,      not hit),
        -- questions whose pack sufficed, of those where anybody said or searched on
        ('context_sufficiency_rate', said && '{sufficient,extra_search}'::text[],
                                     'sufficient' = any (said) and not 'extra_search' = any (said)),
        -- questions that a thread answered and that meant another one
        ('wrong_thread_rate',        hit,           'wrong_thread' = any (said)),
        -- questions that no thread of the whole corpus answers
        ('missing_thread_rate',      resolved,      'missing_thread' = any (said)),
        -- questions whose subject searched again, of those that were handed a pack
        ('agent_extra_search_rate',  packed,        'extra_search' = any (said))
    ) m (metric, "of", counts)
    where m."of"
    union all
    select at, audience, m.metric, m.counts from pack
    cross join lateral (values
        -- packs that held units beside the point
        ('noisy_context_rate',       true,          'noisy_context' = any (said)),
        -- packs of threads that their reader did not want
        ('user_reject_rate',         of_thread,     'rejected_thread' = any (said))
    ) m (metric, "of", counts)
    where m."of"
)
select (at at time zone 'utc')::date as day, audience, metric,
       count(*) filter (where counts) as numerator, count(*) as denominator
from counted
group by 1, 2, 3;

-- Seed: retrieval_metric_aggregate.
create materialized view brain.retrieval_metric_aggregate as
select * from brain.retrieval_metric_count;
create unique index retrieval_metric_aggregate_key
    on brain.retrieval_metric_aggregate (day, audience, metric);

-- Definer: only its owner may refresh a materialized view.
create function brain.refresh_metrics() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    refresh materialized view concurrently brain.retrieval_metric_aggregate;
end $$;

-- --- health from feedback --------------------------------------------------------------------------

-- What readers of one audience found of a thread. An audience sees its own row, and only of a thread
-- that the caller may see.
create table brain.thread_feedback_health (
    thread_id  uuid not null references brain.thread (id) on delete cascade,
    audience   text not null,
    status     text not null check (status in ('noisy_retrieval', 'healthy')),
    -- how many different subjects say so
    subjects   integer not null check (subjects > 0),
    checked_at timestamptz not null,
    changed_at timestamptz not null,
    primary key (thread_id, audience)
);

-- A subject counts once, with what it said last within the window. A verdict needs `enough`
-- subjects, and more of them than say otherwise, and changes at most once per pause. It stays until
-- as many say otherwise, until nobody has said anything for the window, or until an owner closes
-- the thread's item of the health report as done (0132): from then on it has another hearing. Not
-- until the thread changes: a change of something hidden must show nowhere.
-- Callers without a name share one hash, and are nobody: what they say keeps no verdict alive.
create function brain.judge_threads(enough integer, window_span interval, pause interval)
returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    changed integer;
begin
    if enough is null or enough < 2 or window_span is null or pause is null then
        raise exception 'one subject alone changes no health'
            using errcode = 'invalid_parameter_value';
    end if;
    delete from brain.thread_feedback_health h using brain.segmentation_health b
    where b.thread_id = h.thread_id and b.audience = h.audience and b.kind = 'noisy_thread'
      and b.done_at > h.changed_at;
    with last_word as (
        select distinct on (e.thread_id, e.audience, e.consumer)
               e.thread_id, e.audience, e.kind = 'sufficient' as good
        from brain.retrieval_metric_event e
        where e.kind in ('noisy_context', 'wrong_thread', 'sufficient')
          and e.noted_at > now() - window_span
          and not exists (select from brain.segmentation_health b
                          where b.thread_id = e.thread_id and b.audience = e.audience
                            and b.kind = 'noisy_thread' and b.done_at > e.noted_at)
          and exists (select from brain.thread t where t.id = e.thread_id)
          and e.consumer <> repeat('0', 64)
        order by e.thread_id, e.audience, e.consumer, e.noted_at desc, e.kind
    ), votes as (
        select thread_id, audience, count(*) filter (where good) as good,
               count(*) filter (where not good) as bad
        from last_word group by thread_id, audience
    )
    insert into brain.thread_feedback_health as h
        (thread_id, audience, status, subjects, checked_at, changed_at)
    select v.thread_id, v.audience,
           case when v.bad > v.good then 'noisy_retrieval' else 'healthy' end,
           greatest(v.good, v.bad), now(), now()
    from votes v
    where greatest(v.good, v.bad) >= enough
    on conflict (thread_id, audience) do update
        set status = excluded.status, subjects = excluded.subjects, checked_at = now(),
            changed_at = now()
        where h.status <> excluded.status and h.changed_at <= now() - pause;
    get diagnostics changed = row_count;
    delete from brain.thread_feedback_health h
    where h.changed_at <= now() - window_span
      and not exists (select from brain.retrieval_metric_event e
                      where e.thread_id = h.thread_id and e.audience = h.audience
                        and e.kind in ('noisy_context', 'wrong_thread', 'sufficient')
                        and e.consumer <> repeat('0', 64)
                        and e.noted_at > now() - window_span);
    return changed;
end $$;

-- --- rights ----------------------------------------------------------------------------------------

alter table brain.thread_feedback_health enable row level security;
alter table brain.thread_feedback_health force row level security;
create policy owner on brain.thread_feedback_health to gw_owner using (true) with check (true);
create policy gw_signal_all on brain.thread_feedback_health for all to gw_signal
    using (true) with check (true);
create policy gw_steward_select on brain.thread_feedback_health for select to gw_steward using (true);
create policy reader on gate.profile_role for select to gw_reader using (role = current_user);
create policy reader on brain.thread_feedback_health for select to gw_reader
    using (audience = (select p.audience from gate.profile_role p where p.role = current_user)
           and exists (select from brain.thread t where t.id = thread_id));
revoke all on brain.thread_feedback_health, brain.retrieval_answered, brain.retrieval_metric_count,
    brain.retrieval_metric_aggregate from public;
grant select (role, audience) on gate.profile_role to gw_reader;
grant select (thread_id, audience, status, checked_at) on brain.thread_feedback_health to gw_reader;
grant select, insert, update, delete on brain.thread_feedback_health to gw_signal;
grant select on brain.thread_feedback_health, brain.retrieval_metric_aggregate to gw_steward;
revoke execute on function brain.refresh_metrics(),
    brain.judge_threads(integer, interval, interval) from public;
grant execute on function brain.refresh_metrics() to gw_metric;
grant execute on function brain.judge_threads(integer, interval, interval) to gw_signal;
