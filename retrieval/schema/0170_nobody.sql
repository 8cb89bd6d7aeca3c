-- Callers without a name share one hash, and are nobody: what one of them asks is no search after
-- another one's pack, and what they say keeps no verdict alive. Else as in 0131 and 0141.

create or replace function brain.judge_threads(enough integer, window_span interval, pause interval)
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

create or replace function brain.note_extra_searches(within interval, since interval) returns integer
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with search as (
        select q.consumer, q.at, q.asked, q.query_hmac
        from brain.retrieval_answered q
        where q.kind = 'query' and q.noted_at > now() - since and q.consumer <> repeat('0', 64)
    ), noted as (
        insert into brain.retrieval_metric_event (id, at, kind, query_id, request_id, consumer,
            audience, profile, policy_digest, asked, mode, query_hmac, pack_id, thread_id)
        select distinct md5(p.pack_id::text || ' extra_search')::uuid, p.at, 'extra_search',
               p.query_id, p.request_id, p.consumer, p.audience, p.profile, p.policy_digest,
               p.asked, p.mode, p.query_hmac, p.pack_id, p.thread_id
        from search s
        cross join lateral (
            select e.at, e.query_id from brain.retrieval_metric_event e
            where e.kind = 'pack' and e.consumer = s.consumer
              and e.at < s.at and e.at >= s.at - within
            order by e.at desc limit 1) before
        join brain.retrieval_answered p
          on p.kind = 'pack' and p.query_id = before.query_id and p.at = before.at
        where (s.asked = 'raw' or s.query_hmac is distinct from p.query_hmac)
          and not exists (select from brain.retrieval_metric_event e
                          where e.query_id = p.query_id and e.kind = 'sufficient')
        on conflict do nothing
        returning 1
    )
    select count(*)::integer from noted
$$;
