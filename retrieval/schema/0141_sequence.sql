-- An extra search: whoever was handed a pack, did not call it sufficient, and soon searched again
-- (seed section 4.13, rule 4). Nobody has to tell of it: the sequence of its own questions does.
--
-- Laws
--   Only the answer before counts as left, and only by another question or by the raw mode: the
--   same question asked again is no search beside the pack.
--   A pass can be repeated: one row per pack, whatever was found before.
--   It is drawn from hashes after the answers have left, and changes none.
--   Callers without a name share one hash, and are nobody: what one of them asks is no search after
--   another one's pack.

create index retrieval_metric_event_consumer on brain.retrieval_metric_event (consumer, at)
    where kind = 'pack';

-- Definer: the worker may write gaps, and no event in a consumer's name.
create function brain.note_extra_searches(within interval, since interval) returns integer
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
              and not exists (select from brain.answer_withheld w where w.query_id = e.query_id)
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
revoke execute on function brain.note_extra_searches(interval, interval) from public;
grant execute on function brain.note_extra_searches(interval, interval) to gw_signal;
