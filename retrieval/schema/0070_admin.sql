-- Operators: what they may ask of the running gateway is decided by policy (rules/admin.csv);
-- what they asked, and why, stays here.
--
-- Laws
--   A use is one row, written before its answer leaves, and it never changes or goes away.
--   A row says who (a hash), what, why, under which policy, and how much was told: numbers, words
--   of policies and ids. No title, no text, no address.
--   Live numbers are counted by a login of their own, which sees of a unit its class and whether
--   it was removed: not even its id. Which units they are is read as the operator's own profile.

create table gate.admin_access (
    id            uuid primary key,
    occurred_at   timestamptz not null default clock_timestamp(),
    request_id    text not null,
    trace_id      text not null check (trace_id ~ '^[0-9a-f]{32}$'),
    subject_hash  text not null check (subject_hash ~ '^[0-9a-f]{64}$'),
    issuer        text not null check (issuer <> ''),
    roles         text[] not null,
    action        text not null check (action in
        ('live_bucketed', 'live_counts', 'live_ids', 'explain_unit', 'read_shadow')),
    effect        text not null check (effect in ('allow', 'deny')),
    rules         text[] not null,
    reason        text not null check (length(reason) between 1 and 500),
    policy_digest text not null check (policy_digest ~ '^[0-9a-f]{64}$'),
    -- the policy that was asked about, where that is another one
    about_digest  text check (about_digest ~ '^[0-9a-f]{64}$'),
    -- what was asked about and how much was told: `{"profiles": 2, "units": 41, "ids": 0}`
    told          jsonb not null check (jsonb_typeof(told) = 'object' and length(told::text) <= 4000)
);
create index admin_access_time on gate.admin_access (occurred_at);

alter table gate.admin_access enable row level security;
alter table gate.admin_access force row level security;
create policy owner on gate.admin_access to gw_owner using (true) with check (true);
create policy gw_journal_insert on gate.admin_access for insert to gw_journal with check (true);
create policy gw_seal_select on gate.admin_access for select to gw_seal using (true);
create trigger only_grows before update or delete or truncate on gate.admin_access
    for each statement execute function gate.refuse_rewriting();
revoke all on gate.admin_access from public;
grant insert on gate.admin_access to gw_journal;
grant select on gate.admin_access to gw_seal;

-- The index on brain.unit (class_id) is enough: 1 ms for 60 classes of 100,000 units, 54 for all.
grant usage on schema brain, gate to gw_live;
grant select (class_id, deleted_at) on brain.unit, brain.thread to gw_live;
grant select (one, digest) on gate.active_revision to gw_live;
create policy gw_live_select on brain.unit for select to gw_live using (true);
create policy gw_live_select on brain.thread for select to gw_live using (true);
create policy gw_live_select on gate.active_revision for select to gw_live using (true);
