-- Health checks of threads, by a schedule or by a command: when, of what, by which limits, and what
-- was found. The worker that leads reads here when the next one is due. A row a day: none is pruned.

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
