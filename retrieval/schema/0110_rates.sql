-- The allowances of routes, for gateways that share them.
--
-- Laws
--   One row per caller and route, made and judged by one statement; the clock is the database's.
--   A key is a hash: no subject, no address, no route stands here.
--   What a crash forgets is at most one burst, so nothing waits for the disk (unlogged). A row whose
--   time has come says nothing any more and may go.
--   It opens nothing: no policy of row-level security and no mask reads it.

create unlogged table gate.rate_state (
    key    text primary key check (key ~ '^[0-9a-f]{64}$'),
    -- when the allowance is whole again (the theoretical arrival time of GCRA)
    due    timestamptz not null,
    -- what the last request was told: zero when it passed
    wait   interval not null
) with (fillfactor = 50);  -- room to change a row in its page

alter table gate.rate_state enable row level security;
alter table gate.rate_state force row level security;
create policy owner on gate.rate_state to gw_owner using (true) with check (true);
create policy gw_rate_all on gate.rate_state for all to gw_rate using (true) with check (true);
-- how many share an allowance
create policy gw_rate_select on gate.replica for select to gw_rate using (true);

revoke all on gate.rate_state from public;
grant usage on schema gate to gw_rate;
grant select, insert, update, delete on gate.rate_state to gw_rate;
grant select (seen_at) on gate.replica to gw_rate;
