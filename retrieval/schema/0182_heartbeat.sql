-- Whether somebody works on signals, and what was left out of them. One row: the worker that leads
-- writes it, of several the last.
--
-- Laws
--   The clock is the database's, for who writes and for who judges.
--   Nobody who answers callers reads it but for operators: no answer waits for signals.

create table brain.signal_worker (
    only_row boolean primary key default true check (only_row),
    beat_at  timestamptz not null,
    -- when the pass under way or the next one is to be over
    due_at   timestamptz not null,
    -- questions that nobody looked at, ever since: their subject had had its turn; the turn was full
    past_subject bigint not null default 0 check (past_subject >= 0),
    past_turn    bigint not null default 0 check (past_turn >= 0)
);

-- `ok`; `signals_behind`: the leader lives and its pass is late; `signals_down`: none gave a sign
-- for as long as `quiet`, or ever.
create function gate.signal_state(quiet interval) returns text
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        (select case when w.beat_at < clock_timestamp() - quiet then 'signals_down'
                     when w.due_at < clock_timestamp() then 'signals_behind'
                     else 'ok' end
         from brain.signal_worker w), 'signals_down')
$$;

-- What is missing among signals because there was no room: today's gaps by audience, and all
-- questions ever by what had no room for them. No word, no subject.
create function gate.signals_left_out() returns table (what text, whose text, number bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select 'gap', o.audience, o.gaps::bigint from brain.signal_overflow o
    where o.day = (now() at time zone 'utc')::date
    union all
    select 'question', q.reason, q.questions
    from brain.signal_worker w
    cross join lateral (values ('subject', w.past_subject), ('turn', w.past_turn)) q (reason, questions)
$$;

alter table brain.signal_worker enable row level security;
alter table brain.signal_worker force row level security;
create policy owner on brain.signal_worker to gw_owner using (true) with check (true);
create policy gw_signal_all on brain.signal_worker for all to gw_signal using (true) with check (true);
revoke all on brain.signal_worker from public;
grant select, insert, update (beat_at, due_at, past_subject, past_turn)
    on brain.signal_worker to gw_signal;
revoke execute on function gate.signal_state(interval), gate.signals_left_out() from public;
grant execute on function gate.signal_state(interval), gate.signals_left_out() to gw_watch;
