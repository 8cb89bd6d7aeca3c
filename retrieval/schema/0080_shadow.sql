-- A candidate policy beside the live one: what it says, and where it would decide otherwise.
--
-- Laws
--   At most one candidate runs; what it says never changes, it only ends, and it never goes away.
--   A candidate opens nothing: no policy of row-level security and no mask reads these tables.
--   Counts hold words of policies and class ids only: no caller, no id, no address, no text. They
--   are added to, never set, so that several gateways may write them.

create table gate.policy_candidate (
    run        bigint generated always as identity primary key,
    digest     text not null check (digest ~ '^[0-9a-f]{64}$'),
    -- path -> text of every file that the digest covers
    files      jsonb not null check (jsonb_typeof(files) = 'object'),
    -- how many requests are kept as examples per point, direction and profile
    sample     smallint not null check (sample between 0 and 20),
    started_at timestamptz not null default now(),
    started_by text not null check (started_by <> ''),
    reason     text not null check (reason <> ''),
    ended_at   timestamptz,
    ended_by   text,
    check ((ended_at is null) = (ended_by is null))
);
create unique index policy_candidate_running on gate.policy_candidate ((true))
    where ended_at is null;

create function gate.keep_candidate() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if (to_jsonb(new) - 'ended_at' - 'ended_by') is distinct from
        (to_jsonb(old) - 'ended_at' - 'ended_by') or old.ended_at is not null then
        raise exception 'a candidate only ends, and what it says never changes'
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;
revoke execute on function gate.keep_candidate() from public;
create trigger keep_candidate before update on gate.policy_candidate
    for each row execute function gate.keep_candidate();
create trigger only_grows before delete or truncate on gate.policy_candidate
    for each statement execute function gate.refuse_rewriting();

-- One row per thing counted; `key` is a hash over the words behind it. `compared` counts look-ups
-- in both policies (the denominator), `fault` a comparison that failed.
create table gate.shadow_count (
    run             bigint not null references gate.policy_candidate (run),
    live_digest     text not null check (live_digest ~ '^[0-9a-f]{64}$'),
    key             text not null check (key ~ '^[0-9a-f]{64}$'),
    outcome         text not null
        check (outcome in ('compared', 'opens', 'closes', 'moves', 'fault')),
    point           text not null
        check (point in ('placement', 'route', 'narrowing', 'purpose', 'unit', '')),
    profile         text not null,
    asked           text not null,
    live            text not null,
    candidate       text not null,
    live_rules      text[] not null,
    candidate_rules text[] not null,
    class_id        smallint not null,
    consent         boolean not null,
    seen            bigint not null check (seen > 0),
    primary key (run, live_digest, key)
);

create table gate.shadow_sample (
    run         bigint not null references gate.policy_candidate (run),
    live_digest text not null check (live_digest ~ '^[0-9a-f]{64}$'),
    point       text not null,
    outcome     text not null check (outcome in ('opens', 'closes', 'moves')),
    profile     text not null,
    slot        smallint not null check (slot between 0 and 19),
    route       text not null,
    class_ids   smallint[] not null check (cardinality(class_ids) <= 50),
    primary key (run, live_digest, point, outcome, profile, slot)
);

do $security$
declare
    target text;
begin
    foreach target in array
        array['gate.policy_candidate', 'gate.shadow_count', 'gate.shadow_sample'] loop
        execute format('alter table %s enable row level security', target);
        execute format('alter table %s force row level security', target);
        execute format('create policy owner on %s to gw_owner using (true) with check (true)',
                       target);
        execute format('create policy gw_policy_select on %s for select to gw_policy using (true)',
                       target);
        execute format('create policy gw_watch_select on %s for select to gw_watch using (true)',
                       target);
        execute format('revoke all on %s from public', target);
        execute format('grant select on %s to gw_policy, gw_watch', target);
    end loop;
end $security$;

-- Whoever may activate a policy may try one.
create policy gw_policy_insert on gate.policy_candidate for insert to gw_policy with check (true);
create policy gw_policy_update on gate.policy_candidate for update to gw_policy
    using (true) with check (true);
grant insert, update (ended_at, ended_by) on gate.policy_candidate to gw_policy;

-- Gateways count.
create policy gw_watch_insert on gate.shadow_count for insert to gw_watch with check (true);
create policy gw_watch_update on gate.shadow_count for update to gw_watch
    using (true) with check (true);
create policy gw_watch_insert on gate.shadow_sample for insert to gw_watch with check (true);
grant insert, update (seen) on gate.shadow_count to gw_watch;
grant insert on gate.shadow_sample to gw_watch;
