-- Widening label changes: a write that would let a profile read an object that it could not read
-- before changes no label. It leaves a wish, which somebody approves or rejects.
--
-- Laws
--   Measured is what a transaction changes: the label in effect when it began against the one that
--   it would leave, under the grants of the active revision, with and without consent. Another
--   compartment than the shared one is another readership.
--   Narrowing takes effect at once. A change that opens for one profile and closes for another
--   closes at once: class -1, nobody, until somebody decides.
--   It does not matter how a label widens: own words, a thread's words that fill a blank, a link
--   that comes, goes or is judged. A tombstone does not reset a label.
--   An object's first label is its source's: there is nothing yet that it could widen. From the
--   end of the transaction in which it first had a class, every widening waits.
--   `wish` is what the source said last, where that is not what is in effect: six facets, tenant,
--   jurisdiction. While there is one, the class moves only down.
--   Bound is every login that is no member of the owner. The owner's sessions (migration, a
--   reviewer by hand) act on purpose; but a mere computing anew applies no wish, theirs neither.
--   A mapping that the active revision trusts widens what it labelled itself; the proof is the
--   mapping's content, not its name. One event a transaction says so.
--   Nobody writes gate.label_change but the functions below.

-- One row per wish. Never deleted; an open one is pending or rejected, and one object has one.
create table gate.label_change (
    id            uuid primary key default gen_random_uuid(),
    sort          text not null check (sort in ('unit', 'thread', 'label', 'artifact')),
    object_id     uuid not null,
    origin        text not null,
    mapping       text not null,
    author        text not null,
    from_label    text[] not null check (cardinality(from_label) = 8),
    from_class    smallint not null,
    to_label      text[] not null check (cardinality(to_label) = 8),
    to_class      smallint not null,
    -- profiles that would gain, under the revision in force when the wish was written
    gained        text[] not null,
    policy_digest text not null,
    -- the object is readable by nobody until this is decided
    closed        boolean not null,
    state         text not null check (state in ('pending', 'approved', 'rejected', 'superseded')),
    proposed_at   timestamptz not null default now(),
    decided_at    timestamptz,
    approver      text not null default '',
    approver_role text not null default '',
    reason        text not null default '',
    event_id      uuid references gate.security_event (id),
    check ((state = 'pending') = (decided_at is null))
);
create unique index label_change_open on gate.label_change (object_id)
    where state in ('pending', 'rejected');
create index label_change_object on gate.label_change (object_id);
create index label_change_unjournaled on gate.label_change (decided_at)
    where state = 'approved' and event_id is null;
create index label_change_origin on gate.label_change (origin)
    where state in ('pending', 'rejected');

-- Which mappings a revision lets widen, and what exactly they say. Written by activation.
create table gate.trusted_mapping (
    digest  text not null,
    mapping text not null,
    sha256  text not null check (sha256 ~ '^[0-9a-f]{64}$'),
    primary key (digest, mapping)
);

-- labelled_at: start of the transaction in which the object first had a class; what was stored
-- before this file counts as labelled. base_*: what was in effect when the transaction that began
-- at base_at first changed it. mapping: by which mapping the object was brought.
alter table brain.unit
    add column mapping text not null default '', add column wish text[],
    add column wish_class smallint, add column labelled_at timestamptz default '-infinity',
    add column base_at timestamptz, add column base_class smallint,
    add column base_tenant text, add column base_jurisdiction text;
alter table brain.thread
    add column mapping text not null default '', add column wish text[],
    add column wish_class smallint, add column labelled_at timestamptz default '-infinity',
    add column base_at timestamptz, add column base_class smallint,
    add column base_tenant text, add column base_jurisdiction text;
alter table brain.label
    add column mapping text not null default '', add column wish text[],
    add column wish_class smallint, add column labelled_at timestamptz default '-infinity',
    add column base_at timestamptz, add column base_class smallint,
    add column base_tenant text, add column base_jurisdiction text;
alter table brain.expected_artifact
    add column mapping text not null default '', add column wish text[],
    add column wish_class smallint, add column labelled_at timestamptz default '-infinity',
    add column base_at timestamptz, add column base_class smallint,
    add column base_tenant text, add column base_jurisdiction text;
alter table brain.unit alter column labelled_at drop default;
alter table brain.thread alter column labelled_at drop default;
alter table brain.label alter column labelled_at drop default;
alter table brain.expected_artifact alter column labelled_at drop default;

-- --- what a label opens ------------------------------------------------------------------------

-- The profiles that may read an object under the second label and not under the first, in order.
-- Class -1, and one that the masks do not have yet, is readable by nobody.
create function gate.gains(
    from_class smallint, from_tenant text, from_jurisdiction text,
    to_class smallint, to_tenant text, to_jurisdiction text
) returns text[]
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(g.profile order by g.profile), '{}')
    from gate.profile_grant g
    where g.digest = (select a.digest from gate.active_revision a)
      and case when $4 not between 0 and length(g.plain) - 1 then false
               when $2 in ('*', $5) and $3 in ('*', $6) and $1 between 0 and length(g.plain) - 1
               then get_bit(g.plain, $4) > get_bit(g.plain, $1)
                 or get_bit(g.consented, $4) > get_bit(g.consented, $1)
               else get_bit(g.consented, $4) = 1 -- plain lies within it
          end
$$;

-- brain.inherited (0003), by what threads say: in effect, or as their sources wish.
create function brain.inherited_words(units uuid[], wished boolean)
returns table (unit_id uuid, facet text, value text, contradictory boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with offered as (
        select m.unit_id, f.facet, f.value, m.status = 'active' as firm, k.rank,
               exists (select from gate.facet_word o
                       where o.facet = f.facet and o.rank is not null) as ordered
        from brain.thread_membership m
        join brain.thread t on t.id = m.thread_id and t.deleted_at is null
        cross join lateral (select wished and t.wish is not null as held) w
        cross join lateral (values
            ('visibility', case when w.held then t.wish[1] else t.visibility end),
            ('readiness', case when w.held then t.wish[2] else t.readiness end),
            ('publication_state', case when w.held then t.wish[3] else t.publication_state end),
            ('risk_class', case when w.held then t.wish[4] else t.risk_class end),
            ('authority', case when w.held then t.wish[5] else t.authority end)) f (facet, value)
        left join gate.facet_word k on k.facet = f.facet and k.word = f.value
        where m.unit_id = any (units) and m.status <> 'wrong_link' and f.value is not null
    )
    select o.unit_id, o.facet,
           case when not bool_or(o.firm) then null
                when o.ordered
                then (array_agg(o.value order by coalesce(o.rank, 2147483647) desc, o.value))[1]
                when count(distinct o.value) = 1 then min(o.value)
           end,
           bool_or(o.firm) and not o.ordered and count(distinct o.value) > 1
    from offered o
    group by o.unit_id, o.facet, o.ordered
$$;

create or replace function brain.inherited(units uuid[])
returns table (unit_id uuid, facet text, value text, contradictory boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select i.unit_id, i.facet, i.value, i.contradictory from brain.inherited_words(units, false) i
$$;

-- The class of a unit's label whose blanks its threads fill.
create function brain.class_of_filled(object_id uuid, label text[], wished boolean)
returns smallint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select gate.class_of(
        coalesce(label[1], max(i.value) filter (where i.facet = 'visibility')),
        coalesce(label[2], max(i.value) filter (where i.facet = 'readiness')),
        coalesce(label[3], max(i.value) filter (where i.facet = 'publication_state')),
        coalesce(label[4], max(i.value) filter (where i.facet = 'risk_class')),
        coalesce(label[5], max(i.value) filter (where i.facet = 'authority')),
        label[6])
    from brain.inherited_words(array[object_id], wished) i
$$;

-- The class of a whole label. A unit's blanks are filled from its threads as they are; but what a
-- thread's wish would close to the unit's readers is closed although the thread itself waits.
create function brain.class_of_label(sort text, object_id uuid, label text[]) returns smallint
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    present smallint;
    wished smallint;
begin
    if sort <> 'unit' or array_position(label[1:5], null) is null then
        return gate.class_of(label[1], label[2], label[3], label[4], label[5], label[6]);
    end if;
    present := brain.class_of_filled(object_id, label, false);
    if not exists (
        select from brain.thread_membership m
        join brain.thread t on t.id = m.thread_id
        where m.unit_id = object_id and t.wish is not null) then
        return present;
    end if;
    wished := brain.class_of_filled(object_id, label, true);
    return case
        when gate.gains(present, '*', '*', wished, '*', '*') = '{}' then wished
        when gate.gains(wished, '*', '*', present, '*', '*') = '{}' then present
        else -1 end;
end $$;

-- --- who may widen -----------------------------------------------------------------------------

-- Whether this session's statements wait for approval. The login counts, not the current role:
-- what the owner's functions do follows from a statement of the login.
create function brain.is_bound() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select not pg_has_role(session_user, 'gw_owner', 'member')
$$;

-- Whether the mapping at work is one that the active revision trusts, word for word. Definer:
-- ingest asks it, too.
create function brain.trusted_at_work() returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from gate.trusted_mapping t
        join gate.active_revision a on a.digest = t.digest
        where t.mapping = current_setting('gw.mapping', true)
          and t.sha256 = current_setting('gw.mapping_sha256', true))
$$;

-- --- the wish ----------------------------------------------------------------------------------

-- What was open for an object is over; a row of this same transaction was never seen by anyone.
create function brain.supersede_wish(of_object uuid) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    delete from gate.label_change c
    where c.object_id = of_object and c.state = 'pending' and c.proposed_at = now();
    update gate.label_change c set state = 'superseded', decided_at = coalesce(decided_at, now())
    where c.object_id = of_object and c.state in ('pending', 'rejected');
$$;

-- Whoever says the same again adds nothing, not even to what was rejected.
create function brain.note_wish(wished gate.label_change) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if wished.state = 'pending' then
        update gate.label_change c set closed = wished.closed
        where c.object_id = wished.object_id and c.state in ('pending', 'rejected')
          and c.to_label = wished.to_label and c.to_class = wished.to_class;
        if found then
            return;
        end if;
        perform brain.supersede_wish(wished.object_id);
    end if;
    insert into gate.label_change (sort, object_id, origin, mapping, author, from_label,
        from_class, to_label, to_class, gained, policy_digest, closed, state, decided_at, approver,
        reason)
    values (wished.sort, wished.object_id, wished.origin, wished.mapping,
        coalesce(nullif(current_setting('gw.author', true), ''), session_user),
        wished.from_label, wished.from_class, wished.to_label, wished.to_class, wished.gained,
        (select a.digest from gate.active_revision a), wished.closed, wished.state,
        wished.decided_at, coalesce(wished.approver, ''), coalesce(wished.reason, ''));
end $$;

-- In place of class_from_own and class_from_effective (0003): the class of an object, and whether
-- its label may become what a statement says.
create function brain.class_from_label() returns trigger
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
begin
    if tg_op = 'INSERT' then
        new.class_id := gate.class_of(said[1], said[2], said[3], said[4], said[5], said[6]);
        new.wish := null;
        new.wish_class := null;
        new.base_at := null;
        new.labelled_at := case when new.class_id >= 0 then now() end;
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

drop trigger class_from_own on brain.thread;
drop trigger class_from_own on brain.label;
drop trigger class_from_own on brain.expected_artifact;
drop trigger class_from_effective on brain.unit;
drop function brain.class_from_own();
drop function brain.class_from_effective();

create trigger class_from_label before insert or update on brain.unit
    for each row execute function brain.class_from_label('unit');
create trigger class_from_label before insert or update on brain.thread
    for each row execute function brain.class_from_label('thread');
create trigger class_from_label before insert or update on brain.label
    for each row execute function brain.class_from_label('label');
create trigger class_from_label before insert or update on brain.expected_artifact
    for each row execute function brain.class_from_label('artifact');

-- As in 0004, and for what threads wish.
create or replace function brain.after_thread_update() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    touched uuid[];
begin
    update brain.thread_term p
    set class_id = v.class_id, tenant = v.tenant, jurisdiction = v.jurisdiction
    from (select n.id, n.tenant, n.jurisdiction,
                 case when n.deleted_at is null then n.class_id else -1 end as class_id
          from new_rows n) v
    where p.thread_id = v.id
      and (p.class_id, p.tenant, p.jurisdiction) <> (v.class_id, v.tenant, v.jurisdiction);

    touched := array(
        select distinct m.unit_id from brain.thread_membership m
        where m.thread_id in (
            select n.id from new_rows n join old_rows o using (id)
            where (n.visibility, n.readiness, n.publication_state, n.risk_class, n.authority,
                   n.deleted_at is null, n.wish)
                is distinct from (o.visibility, o.readiness, o.publication_state, o.risk_class,
                                  o.authority, o.deleted_at is null, o.wish)));
    if cardinality(touched) > 0 then
        perform brain.relabel_units(touched);
    end if;

    touched := array(select n.id from new_rows n join old_rows o using (id)
                     where n.class_id = -1 or o.class_id = -1);
    if cardinality(touched) > 0 then
        perform brain.note_label_faults('thread', touched);
    end if;
    return null;
end $$;

-- Units whose own label, or whose wish, has a blank to fill.
create or replace function brain.relabel_units(units uuid[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with stale as (
        select u.id from brain.unit u
        where u.id = any (units)
          and (num_nulls(u.visibility, u.readiness, u.publication_state, u.risk_class,
                         u.authority) > 0
            or array_position(u.wish[1:5], null) is not null)
        order by u.id for no key update)
    update brain.unit u set class_id = u.class_id from stale where u.id = stale.id
$$;

-- --- ways around ---------------------------------------------------------------------------------

-- An object is what its address, or its term, or its thread says, for good: else a narrow label
-- could be left behind by renaming.
create function brain.refuse_renaming() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if brain.is_bound() then
        raise exception '% keeps its identity', tg_table_name
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;

create trigger keep_identity before update of id, canonical_address on brain.unit
    for each row execute function brain.refuse_renaming();
create trigger keep_identity before update of id, canonical_address on brain.thread
    for each row execute function brain.refuse_renaming();
create trigger keep_identity before update of id, term, version on brain.label
    for each row execute function brain.refuse_renaming();
create trigger keep_identity before update of id, thread_id on brain.expected_artifact
    for each row execute function brain.refuse_renaming();

-- A posting has its thread's label from the moment it is made; only the owner's cascade moves it.
revoke update on brain.thread_term from gw_ingest;

-- --- the journal -----------------------------------------------------------------------------------

alter table gate.security_event drop constraint security_event_kind_check;
alter table gate.security_event add constraint security_event_kind_check
    check (kind in ('wrong_audience_result', 'stale_index', 'label_widened'));
alter table gate.security_event drop constraint security_event_action_check;
alter table gate.security_event add constraint security_event_action_check
    check (action in ('withheld', 'refused', 'approved'));

-- One event about approved changes: opaque ids, classes, who gained, never a name or a word.
create function gate.journal_widening(changes uuid[], layer text, route text, who text)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    event uuid := gen_random_uuid();
begin
    insert into gate.security_event (id, kind, severity, request_id, trace_id, audience, profile,
        subject_hash, route, unit_ids, unit_count, class_ids, layer, policy_digest, action)
    with widened as (
        select c.object_id, c.to_class, c.gained, c.policy_digest,
               row_number() over (order by c.object_id) as place
        from (select distinct on (c.object_id) c.* from gate.label_change c
              where c.id = any (changes) order by c.object_id) c
    ), readers as (
        select distinct p.profile, p.audience
        from widened w cross join unnest(w.gained) g (profile)
        join gate.profile_role p on p.profile = g.profile
    ), names as (
        select string_agg(distinct audience, '+' order by audience) as audiences,
               string_agg(distinct profile, '+' order by profile) as profiles
        from readers
    )
    select event, 'label_widened', 'warning', event::text,
           replace(gen_random_uuid()::text, '-', ''),
           case when length(n.audiences) <= 200 then n.audiences else 'many' end,
           case when length(n.profiles) <= 200 then n.profiles else 'many' end,
           encode(sha256(convert_to(who, 'UTF8')), 'hex'), route,
           array(select w.object_id from widened w where w.place <= 50 order by w.object_id),
           (select count(*) from widened),
           array(select distinct w.to_class from widened w where w.place <= 50 order by 1),
           layer, (select max(w.policy_digest) from widened w), 'approved'
    from names n;
    update gate.label_change c set event_id = event where c.id = any (changes);
    return event;
end $$;

-- What trusted mappings widened in this transaction, in one event, as its last act.
create function gate.journal_trusted() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    changes uuid[];
begin
    if (select c.event_id from gate.label_change c where c.id = new.id) is null then
        changes := array(
            select c.id from gate.label_change c
            where c.state = 'approved' and c.event_id is null and c.decided_at = now()
              and c.proposed_at = now() and c.mapping = new.mapping);
        perform gate.journal_widening(changes, 'trusted_mapping', 'ingest', new.author);
    end if;
    return null;
end $$;

create constraint trigger journal_trusted after insert on gate.label_change
    deferrable initially deferred for each row when (new.state = 'approved')
    execute function gate.journal_trusted();

-- --- deciding --------------------------------------------------------------------------------------

-- The object of an open change, locked as ingest locks it: the object first, then the change.
create function gate.open_change(change uuid) returns gate.label_change
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    wanted gate.label_change;
begin
    select * into wanted from gate.label_change c where c.id = change;
    if not found then
        raise exception 'there is no such label change' using errcode = 'GW404';
    end if;
    execute format('select from brain.%I where id = $1 for no key update',
                   case wanted.sort when 'artifact' then 'expected_artifact' else wanted.sort end)
        using wanted.object_id;
    select * into wanted from gate.label_change c where c.id = change for update;
    if wanted.state not in ('pending', 'rejected') then
        raise exception 'the label change is %', wanted.state using errcode = 'GW409';
    end if;
    return wanted;
end $$;

-- Applies a wish, in one transaction with its event. `decided_for`: the profiles for which the
-- policy `decided_under` lets this approver open it. Raises when either is not so any more.
create function gate.approve_label_change(
    change uuid, approver text, approver_role text, reason text, decided_under text,
    decided_for text[]
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    wanted gate.label_change;
    now_held record;
    digest text;
    gaining text[];
    relation text;
begin
    -- a revision that is being activated is waited for, and one that comes waits
    select a.digest into digest from gate.active_revision a for share;
    if digest is distinct from decided_under then
        raise exception 'another policy is in force' using errcode = 'GW412';
    end if;
    wanted := gate.open_change(change);
    relation := case wanted.sort when 'artifact' then 'expected_artifact' else wanted.sort end;
    execute format('select class_id, tenant, jurisdiction, wish from brain.%I where id = $1',
                   relation) into now_held using wanted.object_id;
    if now_held.wish is distinct from wanted.to_label
        or brain.class_of_label(wanted.sort, wanted.object_id, wanted.to_label)
            is distinct from wanted.to_class then
        raise exception 'what is wished has changed' using errcode = 'GW409';
    end if;
    gaining := gate.gains(now_held.class_id, now_held.tenant, now_held.jurisdiction,
                          wanted.to_class, wanted.to_label[7], wanted.to_label[8]);
    if not gaining <@ decided_for then
        raise exception 'more profiles would gain than were decided on' using errcode = 'GW412';
    end if;
    update gate.label_change c
    set state = 'approved', decided_at = now(), gained = gaining, policy_digest = digest,
        approver = $2, approver_role = $3, reason = $4
    where c.id = change;
    -- what follows from it (units below a thread) is still the author's wish
    perform set_config('gw.author', wanted.author, true);
    execute format(
        'update brain.%I set visibility = $1[1], readiness = $1[2], publication_state = $1[3],'
        ' risk_class = $1[4], authority = $1[5], kind = $1[6], tenant = $1[7],'
        ' jurisdiction = $1[8], wish = null where id = $2', relation)
        using wanted.to_label, wanted.object_id;
    execute format('select class_id, wish from brain.%I where id = $1', relation)
        into now_held using wanted.object_id;
    if now_held.class_id is distinct from wanted.to_class or now_held.wish is not null then
        raise exception 'what is wished has changed' using errcode = 'GW409';
    end if;
    if gaining = '{}' then
        return null;
    end if;
    return gate.journal_widening(array[change], 'label_approval', 'labels.approve', $2);
end $$;

-- The label in effect stays as it is, and the wish is remembered: saying it again asks nobody.
create function gate.reject_label_change(
    change uuid, approver text, approver_role text, reason text
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    wanted gate.label_change := gate.open_change(change);
begin
    if wanted.state = 'rejected' then
        raise exception 'the label change is rejected' using errcode = 'GW409';
    end if;
    update gate.label_change c
    set state = 'rejected', decided_at = now(), approver = $2, approver_role = $3, reason = $4
    where c.id = change;
end $$;

create function gate.keep_label_change() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'DELETE' then
        if old.state <> 'pending' or old.proposed_at <> now() then
            raise exception 'a label change never goes away'
                using errcode = 'insufficient_privilege';
        end if;
        return old;
    end if;
    if (new.id, new.sort, new.object_id, new.origin, new.mapping, new.author, new.from_label,
        new.from_class, new.to_label, new.to_class, new.proposed_at)
        is distinct from
        (old.id, old.sort, old.object_id, old.origin, old.mapping, old.author, old.from_label,
         old.from_class, old.to_label, old.to_class, old.proposed_at)
        or (old.state in ('approved', 'superseded') and (to_jsonb(new) - 'event_id')
            is distinct from (to_jsonb(old) - 'event_id'))
        or (old.event_id is not null and new.event_id is distinct from old.event_id) then
        raise exception 'what was wished and decided never changes'
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;

create trigger keep_label_change before update or delete on gate.label_change
    for each row execute function gate.keep_label_change();
create trigger only_grows before truncate on gate.label_change
    for each statement execute function gate.refuse_rewriting();

-- --- what operators see ------------------------------------------------------------------------------

create or replace view brain.labelled as
    select 'unit' as sort, u.id, u.canonical_address as address, u.source, u.visibility, u.readiness,
           u.publication_state, u.risk_class, u.authority, u.kind, u.class_id, u.deleted_at,
           u.tenant, u.jurisdiction, u.wish is not null as held
    from brain.unit u
    union all
    select 'thread', t.id, t.canonical_address, '', t.visibility, t.readiness,
           t.publication_state, t.risk_class, t.authority, t.kind, t.class_id, t.deleted_at,
           t.tenant, t.jurisdiction, t.wish is not null
    from brain.thread t
    union all
    select 'label', l.id, l.tenant || '/' || l.term || '@' || l.version, '', l.visibility,
           l.readiness, l.publication_state, l.risk_class, l.authority, l.kind, l.class_id,
           l.deleted_at, l.tenant, l.jurisdiction, l.wish is not null
    from brain.label l
    union all
    select 'artifact', a.id, a.thread_id || '/' || a.lifecycle_stage || '/' || a.title, '',
           a.visibility, a.readiness, a.publication_state, a.risk_class, a.authority, a.kind,
           a.class_id, a.deleted_at, a.tenant, a.jurisdiction, a.wish is not null
    from brain.expected_artifact a;

-- Every change with its object as it is now, and whom it would open it to now.
create view gate.label_change_now as
    select c.id, c.sort, c.object_id, l.address, c.origin, c.mapping, c.author, c.from_label,
           c.from_class, c.to_label, c.to_class, c.gained, c.policy_digest, c.closed, c.state,
           c.proposed_at, c.decided_at, c.approver, c.approver_role, c.reason, c.event_id,
           l.deleted_at is not null as buried,
           case when c.state in ('pending', 'rejected')
                then gate.gains(l.class_id, l.tenant, l.jurisdiction,
                                c.to_class, c.to_label[7], c.to_label[8])
                else '{}' end as gains_now
    from gate.label_change c
    left join brain.labelled l on l.sort = c.sort and l.id = c.object_id;

-- A unit that was closed until somebody decides is in quarantine, like one with a bad word.
create or replace function brain.label_faults(of_sort text, ids uuid[])
returns table (object_id uuid, address text, source text, facet text, value text, reason text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with words as (
        select l.id, l.address, l.source, f.facet, f.position,
               coalesce(f.value, i.value) as value,
               case when coalesce(i.contradictory, false) and f.value is null then 'contradiction'
                    when coalesce(f.value, i.value) is null then 'blank'
                    when w.word is null then 'unknown_word'
                    when w.retired then 'retired_word'
               end as reason
        from brain.labelled l
        cross join lateral (values
            (1, 'visibility', l.visibility), (2, 'readiness', l.readiness),
            (3, 'publication_state', l.publication_state), (4, 'risk_class', l.risk_class),
            (5, 'authority', l.authority), (6, 'kind', l.kind)) f (position, facet, value)
        left join brain.inherited(case when of_sort = 'unit' then ids else '{}' end) i
               on i.unit_id = l.id and i.facet = f.facet
        left join gate.facet_word w on w.facet = f.facet and w.word = coalesce(f.value, i.value)
        where l.sort = of_sort and l.id = any (ids) and l.class_id = -1 and l.deleted_at is null
    )
    select id, address, source, facet, value, reason from words
    where reason in ('unknown_word', 'retired_word')
    union all
    select id, address, source, string_agg(facet, ',' order by position), '', reason from words
    where reason in ('blank', 'contradiction')
    group by id, address, source, reason
    union all
    select l.id, l.address, l.source, '', '', 'awaiting_approval' from brain.labelled l
    where l.sort = of_sort and l.id = any (ids) and l.class_id = -1 and l.deleted_at is null
      and (l.held or not exists (select from words w where w.id = l.id and w.reason is not null))
$$;

create or replace function brain.note_label_faults(of_sort text, ids uuid[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with faults as materialized (
        select f.object_id, left(f.address, 300) as address, left(f.source, 300) as source, f.facet,
               left(f.value, 200) as value, f.reason
        from brain.label_faults(of_sort, ids) f
    ), past as (
        select q.id, q.created_at = now() as unseen
        from brain.quarantine q
        where q.object_id = any (ids) and q.sort = of_sort and q.resolved_at is null
          and q.reason in ('unknown_word', 'retired_word', 'blank', 'contradiction',
                           'awaiting_approval')
          and not exists (
              select from faults f
              where f.object_id = q.object_id and f.facet = q.facet and f.value = q.value
                and f.reason = q.reason)
    ), removed as (
        delete from brain.quarantine q using past p where q.id = p.id and p.unseen
    ), closed as (
        update brain.quarantine q set resolved_at = now() from past p
        where q.id = p.id and not p.unseen
    )
    insert into brain.quarantine (sort, object_id, address, source, facet, value, reason)
    select of_sort, f.object_id, f.address, f.source, f.facet, f.value, f.reason from faults f
    on conflict (sort, address, facet, value, reason) where resolved_at is null do nothing
$$;

-- --- rights ------------------------------------------------------------------------------------------

alter table gate.label_change enable row level security;
alter table gate.label_change force row level security;
alter table gate.trusted_mapping enable row level security;
alter table gate.trusted_mapping force row level security;
create policy owner on gate.label_change to gw_owner using (true) with check (true);
create policy owner on gate.trusted_mapping to gw_owner using (true) with check (true);
-- ingest reports on what waits of its own source
create policy gw_ingest_select on gate.label_change for select to gw_ingest
    using (origin = nullif(current_setting('gw.origin', true), ''));
create policy gw_policy_all on gate.trusted_mapping for all to gw_policy
    using (true) with check (true);
create policy gw_label_select on gate.active_revision for select to gw_label using (true);

revoke all on gate.label_change, gate.trusted_mapping, gate.label_change_now from public;
revoke execute on function gate.gains(smallint, text, text, smallint, text, text),
    brain.inherited_words(uuid[], boolean), brain.class_of_filled(uuid, text[], boolean),
    brain.class_of_label(text, uuid, text[]), brain.is_bound(), brain.trusted_at_work(),
    brain.supersede_wish(uuid), brain.note_wish(gate.label_change), brain.class_from_label(),
    brain.refuse_renaming(), gate.journal_widening(uuid[], text, text, text),
    gate.journal_trusted(), gate.open_change(uuid),
    gate.approve_label_change(uuid, text, text, text, text, text[]),
    gate.reject_label_change(uuid, text, text, text), gate.keep_label_change()
    from public;

grant select on gate.label_change to gw_ingest;
grant execute on function brain.trusted_at_work(), brain.is_bound() to gw_ingest;
grant select, insert, update, delete on gate.trusted_mapping to gw_policy;
grant usage on schema brain, gate to gw_label;
grant select on gate.label_change_now, gate.active_revision to gw_label;
grant execute on function gate.gains(smallint, text, text, smallint, text, text),
    gate.approve_label_change(uuid, text, text, text, text, text[]),
    gate.reject_label_change(uuid, text, text, text)
    to gw_label;
