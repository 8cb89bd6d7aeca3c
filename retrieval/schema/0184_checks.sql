-- Health checks of threads, by a schedule or by a command: when, of what, by which limits, and what
-- was found. The worker that leads reads here when the next one is due. A check goes with the events of
-- its time, as gaps do (0183); the last one of all sources, and of each, stays however old it is.

create table brain.thread_check (
    id         uuid primary key default gen_random_uuid(),
    checked_at timestamptz not null,
    made_by    text not null check (made_by in ('schedule', 'command', 'migration')),
    -- null: of all sources
    source     text,
    limits     jsonb not null,
    -- verdict -> parts of threads
    found      jsonb not null
);
create index thread_check_time on brain.thread_check (checked_at);

alter table brain.thread_check enable row level security;
alter table brain.thread_check force row level security;
create policy owner on brain.thread_check to gw_owner using (true) with check (true);
create policy gw_curate_insert on brain.thread_check for insert to gw_curate with check (true);
create policy gw_signal_select on brain.thread_check for select to gw_signal using (true);
create policy gw_steward_select on brain.thread_check for select to gw_steward using (true);
revoke all on brain.thread_check from public;
grant insert on brain.thread_check to gw_curate;
grant select on brain.thread_check to gw_signal, gw_steward;

-- the schedule begins: nothing was checked, and the first check comes when its time has passed
insert into brain.thread_check (checked_at, made_by, limits, found)
values (now(), 'migration', '{}', '{}');

-- Definer: neither who checks nor who reads may take a record away.
create function brain.forget_checks(events_kept integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    gone integer;
begin
    if events_kept is null or events_kept < 1 then
        raise exception 'keep at least one month' using errcode = 'invalid_parameter_value';
    end if;
    delete from brain.thread_check c
    where c.checked_at < now() - make_interval(months => events_kept)
      and exists (select from brain.thread_check later
                  where later.source is not distinct from c.source
                    and later.checked_at > c.checked_at);
    get diagnostics gone = row_count;
    return gone;
end $$;
revoke execute on function brain.forget_checks(integer) from public;
grant execute on function brain.forget_checks(integer) to gw_metric;
