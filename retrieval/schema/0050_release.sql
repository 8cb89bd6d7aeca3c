-- Releases of the policy, and the gateways that serve them.
--
-- Laws
--   A release is written once, whole: its files, its signatures, its base. Only its state moves,
--   and only forward: staged -> active -> past, or staged -> abandoned. It never goes away.
--   At most one release is staged and at most one is active.
--   What is stored here is not believed: a gateway verifies the signatures of what it reads.
--   A replica's row is its own word about itself, renewed while it lives; it opens nothing.

create table gate.policy_release (
    generation      bigint primary key check (generation >= 1),
    environment     text not null check (environment ~ '^[a-z][a-z0-9_-]{0,62}$'),
    digest          text not null check (digest ~ '^[0-9a-f]{64}$'),
    base_generation bigint check (base_generation >= 1 and base_generation < generation),
    base_digest     text check (base_digest ~ '^[0-9a-f]{64}$'),
    change          text not null check (change in ('none', 'narrowing', 'widening')),
    -- the manifest and its signatures (general JSON serialisation); null = a development release
    jws             jsonb,
    -- path -> text of every file that the digest covers
    files           jsonb not null check (jsonb_typeof(files) = 'object'),
    state           text not null default 'staged'
        check (state in ('staged', 'active', 'past', 'abandoned')),
    staged_at       timestamptz not null default now(),
    activated_at    timestamptz,
    activated_by    text not null default '',
    reason          text not null default '',
    check ((base_generation is null) = (base_digest is null)),
    check ((state in ('active', 'past')) = (activated_at is not null))
);
create unique index policy_release_staged on gate.policy_release ((true)) where state = 'staged';
create unique index policy_release_active on gate.policy_release ((true)) where state = 'active';

create function gate.keep_release() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if (to_jsonb(new) - 'state' - 'activated_at' - 'activated_by')
        is distinct from (to_jsonb(old) - 'state' - 'activated_at' - 'activated_by')
        or (old.state, new.state) not in
            (('staged', 'active'), ('staged', 'abandoned'), ('active', 'past'))
        or (old.activated_at is not null and (new.activated_at, new.activated_by)
            is distinct from (old.activated_at, old.activated_by))
    then
        raise exception 'a release only moves forward, and what it says never changes'
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;
revoke execute on function gate.keep_release() from public;
create trigger keep_release before update on gate.policy_release
    for each row execute function gate.keep_release();
create trigger only_grows before delete or truncate on gate.policy_release
    for each statement execute function gate.refuse_rewriting();

-- Who serves what. A row that was not renewed for 15 seconds is of a dead one.
create table gate.replica (
    id                uuid primary key,
    host              text not null default '',
    started_at        timestamptz not null default now(),
    seen_at           timestamptz not null default now(),
    digest            text not null,
    generation        bigint not null,
    staged_generation bigint,
    staged_state      text check (staged_state in ('preparing', 'prepared', 'refused')),
    staged_code       text,
    candidate_digest  text,
    check ((staged_generation is null) = (staged_state is null))
);

alter table gate.policy_release enable row level security;
alter table gate.policy_release force row level security;
alter table gate.replica enable row level security;
alter table gate.replica force row level security;
create policy owner on gate.policy_release to gw_owner using (true) with check (true);
create policy owner on gate.replica to gw_owner using (true) with check (true);
create policy gw_policy_all on gate.policy_release for all to gw_policy
    using (true) with check (true);
create policy gw_policy_select on gate.replica for select to gw_policy using (true);
create policy gw_watch_select on gate.policy_release for select to gw_watch using (true);
create policy gw_watch_select on gate.active_revision for select to gw_watch using (true);
create policy gw_watch_all on gate.replica for all to gw_watch using (true) with check (true);

revoke all on gate.policy_release, gate.replica from public;
grant usage on schema gate to gw_watch;
grant select, insert, update (state, activated_at, activated_by) on gate.policy_release
    to gw_policy;
grant select on gate.replica to gw_policy;
grant select on gate.policy_release, gate.active_revision to gw_watch;
grant select, insert, update, delete on gate.replica to gw_watch;
