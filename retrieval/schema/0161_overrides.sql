-- Overrides: a unit is read more widely than its label says, for a time, because somebody else than
-- who asked approved it (architecture, section 5; data model 5.1).
--
-- Laws
--   An override only loosens: from the class that the unit's own words and its threads give it to
--   another one that closes nothing to anybody, and it does so for that very class. Whatever gives
--   the unit another class (its own words, a thread, a wish that waits) ends it.
--   It is approved like a label change: by a role that the policy allows for every profile that
--   gains, under the revision in force, with one event.
--   Its end is at once, by the clock or by a word: a unit whose override has run out is read by
--   nobody until its class is computed anew (a second), and then by whom its label says.
--   What was said while it lasted is measured without it: nothing stays open when it ends.
--   Nobody writes gate.label_override but the functions below.

create table gate.label_override (
    id            uuid primary key default gen_random_uuid(),
    unit_id       uuid not null references brain.unit (id) on delete cascade,
    origin        text not null,
    author        text not null check (author <> ''),
    wanted        text not null check (length(wanted) between 3 and 500),
    from_class    smallint not null,
    to_class      smallint not null,
    tenant        text not null,
    jurisdiction  text not null,
    asked_at      timestamptz not null default now(),
    expires_at    timestamptz not null,
    state         text not null default 'pending'
        check (state in ('pending', 'approved', 'rejected', 'revoked', 'ended')),
    decided_at    timestamptz,
    ended_at      timestamptz,
    approver      text not null default '',
    approver_role text not null default '',
    reason        text not null default '',
    gained        text[] not null default '{}',
    policy_digest text not null,
    event_id      uuid references gate.security_event (id),
    check (expires_at > asked_at and expires_at <= asked_at + interval '366 days'),
    check ((state = 'pending') = (decided_at is null and ended_at is null))
);
create unique index label_override_open on gate.label_override (unit_id)
    where state in ('pending', 'approved');

-- By which override the class in effect is looser than the label, and until when.
alter table brain.unit
    add column override_id uuid, add column override_until timestamptz;
create index unit_overridden on brain.unit (override_until) where override_until is not null;

-- --- the class ---------------------------------------------------------------------------------

alter function brain.class_of_label(text, uuid, text[]) rename to class_of_said;

-- The approved override that holds for a unit under this label now; nulls when there is none.
create function brain.override_of(object_id uuid, label text[]) returns gate.label_override
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select o.* from gate.label_override o
    where o.unit_id = $1 and o.state = 'approved' and o.expires_at > now()
      and o.tenant = label[7] and o.jurisdiction = label[8]
      and o.from_class = brain.class_of_said('unit', $1, label)
$$;

-- The class that a label gives an object, an override included.
create function brain.class_of_label(sort text, object_id uuid, label text[]) returns smallint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    loosened smallint;
begin
    if sort = 'unit' then
        loosened := (brain.override_of(object_id, label)).to_class;
    end if;
    return coalesce(loosened, brain.class_of_said(sort, object_id, label));
end $$;

-- As in 0060, and: an override counts, and is no ground for anything that outlasts it.
create or replace function brain.class_from_label() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    sort constant text := tg_argv[0];
    bound constant boolean := brain.is_bound();
    said text[] := array[new.visibility, new.readiness, new.publication_state, new.risk_class,
                         new.authority, new.kind, new.tenant, new.jurisdiction];
    held text[];       -- the label in effect, as it was before this statement
    said_class smallint;
    base record;       -- what was in effect when the transaction began
    restated boolean;
    free boolean;
    trusted boolean := false;
    change gate.label_change;
    overriding gate.label_override; -- what loosens the class that results
begin
    if tg_op = 'INSERT' then
        new.class_id := gate.class_of(said[1], said[2], said[3], said[4], said[5], said[6]);
        new.wish := null;
        new.wish_class := null;
        new.base_at := null;
        new.labelled_at := case when new.class_id >= 0 then now() end;
        if sort = 'unit' then
            new.override_id := null;
            new.override_until := null;
        end if;
        if bound then
            new.mapping := coalesce(current_setting('gw.mapping', true), '');
        end if;
        return new;
    end if;

    held := array[old.visibility, old.readiness, old.publication_state, old.risk_class,
                  old.authority, old.kind, old.tenant, old.jurisdiction];
    restated := said is distinct from held or new.wish is distinct from old.wish;
    if old.wish is not null and new.wish is not distinct from old.wish
        and (bound or not restated) then
        -- a part of the label is said anew, or nothing; the rest is still wished
        said := array(
            select case when o.word is distinct from h.word then o.word else w.word end
            from unnest(said) with ordinality o (word, place)
            join unnest(held) with ordinality h (word, place) using (place)
            join unnest(old.wish) with ordinality w (word, place) using (place)
            order by place);
    end if;
    if sort = 'unit' and (array_position(said[1:5], null) is not null
                          or array_position(held[1:5], null) is not null) then
        perform from brain.thread t
            where t.id in (select m.thread_id from brain.thread_membership m
                           where m.unit_id = new.id)
            order by t.id for share;
    end if;
    said_class := brain.class_of_label(sort, new.id, said);
    if old.base_at = now() then
        select old.base_class as class, old.base_tenant as tenant,
               old.base_jurisdiction as jurisdiction into base;
    else
        select old.class_id as class, old.tenant as tenant, old.jurisdiction as jurisdiction
            into base;
    end if;
    if sort = 'unit' then
        overriding := brain.override_of(new.id, said);
        if old.override_id is not null and overriding.id is null then
            -- what is measured is what would be in effect without it
            select o.from_class as class, held[7] as tenant, held[8] as jurisdiction into base
            from gate.label_override o where o.id = old.override_id;
        end if;
    end if;
    -- bookkeeping is nobody's to write
    new.labelled_at := old.labelled_at;
    new.base_at := old.base_at;
    new.base_class := old.base_class;
    new.base_tenant := old.base_tenant;
    new.base_jurisdiction := old.base_jurisdiction;
    if bound then
        new.mapping := old.mapping;
    end if;

    free := old.labelled_at is null or old.labelled_at = now()
        or (not bound and (restated or old.wish is null));
    if free or (said_class, said[7], said[8]) = (base.class, base.tenant, base.jurisdiction) then
        change.gained := '{}';
    else
        change.gained := gate.gains(base.class, base.tenant, base.jurisdiction,
                                    said_class, said[7], said[8]);
    end if;
    if change.gained <> '{}' then
        trusted := bound and old.mapping = current_setting('gw.mapping', true)
            and brain.trusted_at_work();
        free := trusted or exists (
            select from gate.label_change c
            where c.object_id = new.id and c.state = 'approved' and c.decided_at = now()
              and c.to_label = said and c.to_class = said_class);
    else
        free := true;
    end if;

    if free then
        new.class_id := said_class;
        new.wish := null;
        new.wish_class := null;
        if old.wish is not null then
            perform brain.supersede_wish(new.id);
        end if;
    else
        new.wish := said;
        new.wish_class := said_class;
        -- what is in effect may have narrowed meanwhile, through a thread or a retired word
        new.class_id := brain.class_of_label(sort, new.id, held);
        if gate.gains(base.class, base.tenant, base.jurisdiction,
                      new.class_id, held[7], held[8]) <> '{}' then
            new.class_id := case
                when gate.gains(new.class_id, held[7], held[8],
                                base.class, base.tenant, base.jurisdiction) = '{}' then base.class
                else -1 end;
        end if;
        if gate.gains(said_class, said[7], said[8],
                      new.class_id, held[7], held[8]) <> '{}' then
            new.class_id := -1; -- what is wished is closed to somebody who reads it now
        end if;
        said := held;
    end if;
    if sort = 'unit' then
        overriding := brain.override_of(new.id, said);
        if overriding.to_class is distinct from new.class_id then
            overriding := null;
        end if;
        new.override_id := overriding.id;
        new.override_until := overriding.expires_at;
        if old.override_id is distinct from new.override_id then
            update gate.label_override o set state = 'ended', ended_at = now()
            where o.id = old.override_id and o.state = 'approved';
        end if;
    end if;
    new.visibility := said[1];
    new.readiness := said[2];
    new.publication_state := said[3];
    new.risk_class := said[4];
    new.authority := said[5];
    new.kind := said[6];
    new.tenant := said[7];
    new.jurisdiction := said[8];

    if trusted or (new.wish, new.wish_class, new.class_id)
        is distinct from (old.wish, old.wish_class, old.class_id) and not free then
        change.sort := sort;
        change.object_id := new.id;
        change.origin := new.origin;
        change.mapping := new.mapping;
        change.from_label := held;
        change.from_class := base.class;
        change.to_label := case when free then said else new.wish end;
        change.to_class := said_class;
        change.closed := not free and new.class_id = -1;
        change.state := case when trusted then 'approved' else 'pending' end;
        change.decided_at := case when trusted then now() end;
        change.approver := case when trusted then 'mapping:' || new.mapping end;
        change.reason := case when trusted then 'the policy trusts this mapping' end;
        perform brain.note_wish(change);
    end if;
    if new.base_at is distinct from now()
        and (new.class_id, new.tenant, new.jurisdiction)
            is distinct from (old.class_id, old.tenant, old.jurisdiction) then
        new.base_at := now();
        new.base_class := base.class;
        new.base_tenant := base.tenant;
        new.base_jurisdiction := base.jurisdiction;
    end if;
    if old.labelled_at is null or old.labelled_at = now() then
        new.labelled_at := case when new.class_id >= 0 then now() end;
    end if;
    return new;
end $$;

-- --- the end, by the clock ------------------------------------------------------------------------

create policy override_lasts on brain.unit as restrictive for select to gw_reader, gw_guard
    using (override_until is null or override_until > now());

-- Gives back their own class to units whose override has run out; how many those were. Asked every
-- second by every gateway: when none has run out, nothing is written and no trigger runs.
create function gate.end_overrides() returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    lapsed uuid[] := array(
        select u.id from brain.unit u where u.override_until <= now()
        order by u.id for no key update skip locked);
begin
    if cardinality(lapsed) > 0 then
        update brain.unit set class_id = class_id where id = any (lapsed);
    end if;
    if exists (select from gate.label_override o
               where o.state = 'pending' and o.expires_at <= now()) then
        update gate.label_override set state = 'ended', ended_at = now()
        where state = 'pending' and expires_at <= now();
    end if;
    return cardinality(lapsed);
end $$;

-- As in 0005; a unit whose override has run out waits for its class as for an outbox row.
create or replace function brain.refused_units(ids uuid[])
returns table (unit_id uuid, class_id smallint, pending_seconds double precision)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select i.id, coalesce(u.class_id, -1::smallint), coalesce(
           (select extract(epoch from clock_timestamp() - min(o.created_at))
            from brain.outbox o where o.unit_id = i.id and o.done_at is null),
           case when u.override_until <= clock_timestamp()
                then extract(epoch from clock_timestamp() - u.override_until) end)::double precision
    from unnest(ids) i (id)
    left join brain.unit u on u.id = i.id
$$;

-- --- asking and deciding --------------------------------------------------------------------------

create function brain.label_of_unit(of_unit uuid) returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select array[u.visibility, u.readiness, u.publication_state, u.risk_class, u.authority, u.kind,
                 u.tenant, u.jurisdiction]
    from brain.unit u where u.id = of_unit
$$;

-- Asks that a unit be read as if these facets of its class had other words (null: as they are).
create function gate.ask_override(
    of_unit uuid, words text[], author text, wanted text, lasting interval
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    subject record;
    before smallint;
    after smallint;
    ident uuid;
begin
    select u.origin, u.tenant, u.jurisdiction, u.wish into subject from brain.unit u
    where u.id = of_unit and u.deleted_at is null for no key update;
    if not found then
        raise exception 'there is no such unit' using errcode = 'GW404';
    end if;
    if subject.wish is not null then
        raise exception 'a label change of the unit waits' using errcode = 'GW409';
    end if;
    before := brain.class_of_said('unit', of_unit, brain.label_of_unit(of_unit));
    select gate.class_of(coalesce(words[1], c.visibility), coalesce(words[2], c.readiness),
            coalesce(words[3], c.publication_state), coalesce(words[4], c.risk_class),
            coalesce(words[5], c.authority), c.kind)
        into after from gate.unit_class c where c.class_id = before;
    if coalesce(after, -1) < 0 then
        raise exception 'there is no such class' using errcode = 'GW422';
    end if;
    if gate.gains(after, subject.tenant, subject.jurisdiction,
                  before, subject.tenant, subject.jurisdiction) <> '{}' then
        raise exception 'an override only loosens' using errcode = 'GW422';
    end if;
    insert into gate.label_override (unit_id, origin, author, wanted, from_class, to_class, tenant,
        jurisdiction, expires_at, policy_digest)
    values (of_unit, subject.origin, $3, $4, before, after, subject.tenant, subject.jurisdiction,
        now() + lasting, (select a.digest from gate.active_revision a))
    on conflict do nothing returning id into ident;
    if ident is null then
        raise exception 'the unit has an override, or one was asked for'
            using errcode = 'GW409';
    end if;
    return ident;
end $$;

-- The override, locked as the trigger locks it: the unit first. Raises when its state is another.
create function gate.open_override(of_id uuid, states text[]) returns gate.label_override
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    wanted gate.label_override;
begin
    select * into wanted from gate.label_override o where o.id = of_id;
    if not found then
        raise exception 'there is no such override' using errcode = 'GW404';
    end if;
    perform from brain.unit u where u.id = wanted.unit_id for no key update;
    select * into wanted from gate.label_override o where o.id = of_id for update;
    if wanted.state <> all (states) then
        raise exception 'the override is %', wanted.state using errcode = 'GW409';
    end if;
    return wanted;
end $$;

-- Puts an override into effect, in one transaction with its event. See approve_label_change.
create function gate.approve_override(
    of_id uuid, approver text, approver_role text, reason text, decided_under text,
    decided_for text[]
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    wanted gate.label_override;
    digest text;
    gaining text[];
    label text[];
    change uuid;
    event uuid;
begin
    select a.digest into digest from gate.active_revision a for share;
    if digest is distinct from decided_under then
        raise exception 'another policy is in force' using errcode = 'GW412';
    end if;
    wanted := gate.open_override(of_id, array['pending']);
    label := brain.label_of_unit(wanted.unit_id);
    if wanted.expires_at <= now()
        or exists (select from brain.unit u where u.id = wanted.unit_id
                   and (u.wish is not null or u.deleted_at is not null))
        or brain.class_of_said('unit', wanted.unit_id, label) is distinct from wanted.from_class
        or (label[7], label[8]) is distinct from (wanted.tenant, wanted.jurisdiction)
        or gate.gains(wanted.to_class, wanted.tenant, wanted.jurisdiction,
                      wanted.from_class, wanted.tenant, wanted.jurisdiction) <> '{}' then
        raise exception 'the unit has changed, or the time is over' using errcode = 'GW409';
    end if;
    gaining := gate.gains(wanted.from_class, wanted.tenant, wanted.jurisdiction,
                          wanted.to_class, wanted.tenant, wanted.jurisdiction);
    if not gaining <@ decided_for then
        raise exception 'more profiles would gain than were decided on' using errcode = 'GW412';
    end if;
    update gate.label_override o
    set state = 'approved', decided_at = now(), gained = gaining, policy_digest = digest,
        approver = $2, approver_role = $3, reason = $4
    where o.id = of_id;
    insert into gate.label_change (sort, object_id, origin, mapping, author, from_label, from_class,
        to_label, to_class, gained, policy_digest, closed, state, decided_at, approver,
        approver_role, reason)
    values ('unit', wanted.unit_id, wanted.origin, '', wanted.author, label, wanted.from_class,
        label, wanted.to_class, gaining, digest, false, 'approved', now(), $2, $3,
        'override ' || of_id || ': ' || $4)
    returning id into change;
    event := gate.journal_widening(array[change], 'label_override', 'overrides.approve', $2);
    update gate.label_override o set event_id = event where o.id = of_id;
    update brain.unit set class_id = class_id where id = wanted.unit_id;
    if not exists (select from brain.unit u where u.id = wanted.unit_id
                   and u.override_id = of_id and u.class_id = wanted.to_class) then
        raise exception 'the unit has changed' using errcode = 'GW409';
    end if;
    return event;
end $$;

-- Takes an override back, or refuses one that was asked for: `becomes` revoked or rejected.
create function gate.close_override(
    of_id uuid, becomes text, approver text, approver_role text, reason text
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    wanted gate.label_override := gate.open_override(of_id,
        case becomes when 'revoked' then array['pending', 'approved'] else array['pending'] end);
begin
    if becomes not in ('revoked', 'rejected') then
        raise exception 'an override is revoked or rejected' using errcode = 'GW422';
    end if;
    update gate.label_override o
    set state = becomes, ended_at = now(), decided_at = coalesce(o.decided_at, now()),
        approver = case when o.state = 'approved' then o.approver else $3 end,
        approver_role = case when o.state = 'approved' then o.approver_role else $4 end,
        reason = case when o.state = 'approved' then o.reason || '; revoked by ' || $3 || ': ' || $5
                      else $5 end
    where o.id = of_id;
    update brain.unit set class_id = class_id
    where id = wanted.unit_id and override_id = of_id;
end $$;

create function gate.keep_override() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'DELETE' then
        if exists (select from brain.unit u where u.id = old.unit_id) then
            raise exception 'an override never goes away' using errcode = 'insufficient_privilege';
        end if;
        return old;
    end if;
    if (new.id, new.unit_id, new.origin, new.author, new.wanted, new.from_class, new.to_class,
        new.tenant, new.jurisdiction, new.asked_at, new.expires_at)
        is distinct from
        (old.id, old.unit_id, old.origin, old.author, old.wanted, old.from_class, old.to_class,
         old.tenant, old.jurisdiction, old.asked_at, old.expires_at)
        or old.state in ('rejected', 'revoked', 'ended')
        or (old.state = 'approved' and new.state not in ('approved', 'revoked', 'ended')) then
        raise exception 'what was asked and decided never changes'
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;

create trigger keep_override before update or delete on gate.label_override
    for each row execute function gate.keep_override();
create trigger only_grows before truncate on gate.label_override
    for each statement execute function gate.refuse_rewriting();

-- Every override with its unit, the words of both classes, and whom it opens the unit to now.
create view gate.label_override_now as
    select o.id, o.state, o.unit_id, u.canonical_address as address, o.origin, o.author, o.wanted,
           array[f.visibility, f.readiness, f.publication_state, f.risk_class, f.authority]
               as from_words,
           array[t.visibility, t.readiness, t.publication_state, t.risk_class, t.authority]
               as to_words,
           o.gained, o.asked_at, o.expires_at, o.decided_at, o.ended_at, o.approver,
           o.approver_role, o.reason, o.event_id, u.override_id is not distinct from o.id
               and o.expires_at > now() as in_effect,
           case when o.state = 'pending'
                then gate.gains(o.from_class, o.tenant, o.jurisdiction,
                                o.to_class, o.tenant, o.jurisdiction)
                else '{}' end as gains_now
    from gate.label_override o
    join brain.unit u on u.id = o.unit_id
    left join gate.unit_class f on f.class_id = o.from_class
    left join gate.unit_class t on t.class_id = o.to_class;

-- --- rights ------------------------------------------------------------------------------------------

alter table gate.label_override enable row level security;
alter table gate.label_override force row level security;
create policy owner on gate.label_override to gw_owner using (true) with check (true);
revoke all on gate.label_override, gate.label_override_now from public;
revoke execute on function brain.class_of_label(text, uuid, text[]),
    brain.override_of(uuid, text[]), gate.end_overrides(), brain.label_of_unit(uuid),
    gate.ask_override(uuid, text[], text, text, interval), gate.open_override(uuid, text[]),
    gate.approve_override(uuid, text, text, text, text, text[]),
    gate.close_override(uuid, text, text, text, text), gate.keep_override()
    from public;
grant select on gate.label_override_now to gw_label;
grant execute on function gate.ask_override(uuid, text[], text, text, interval),
    gate.approve_override(uuid, text, text, text, text, text[]),
    gate.close_override(uuid, text, text, text, text), gate.end_overrides()
    to gw_label;
grant select (override_id, override_until) on brain.unit to gw_guard;
