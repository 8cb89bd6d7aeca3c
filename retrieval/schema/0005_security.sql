-- Who may touch what: grants and row-level security. Fixed DDL: a change of policy changes rows
-- of gate.profile_grant, never a line here (`alter policy` waits behind every open transaction).
--
-- Laws
--   Everything belongs to gw_owner, which nobody logs in as; row-level security is forced on it
--   too, and it reads by an explicit policy.
--   gw_reader is what a profile's role (gw_p_...) inherits. A login inherits nothing: before
--   `set role` it has no access at all, and it can only set roles of its own audience.
--   A row is readable if the current role's mask of the *active* revision has the bit of its
--   class, or the consented mask has it and a live consent of gw.subject for gw.purpose names it,
--   and its compartments are shared or the caller's own.
--   A setting that was never made (null) or is left over from a reused connection ('') makes
--   nothing readable. `between 0 and length - 1` stands before get_bit: class -1 would raise.
--   What does not depend on the row stands in an uncorrelated sub-select: once per statement.
--   A partial counts many units, so no consent opens one: consented units are added one by one.
--
-- The congruence suite holds these terms equal to policies.decision.Scope.permits.

alter table gate.profile_grant
    add check (length(plain) = length(consented) and length(plain) > 0),
    add check ((plain & consented) = plain);

-- --- consent ---------------------------------------------------------------------------------

-- Every object that a live consent names: the unit, or the thread itself and its units. A link
-- that is not sure extends no consent.
create view gate.consented_unit as
    select c.subject_id, c.purpose, c.unit_id
    from gate.consent c
    where c.unit_id is not null and c.revoked_at is null
      and c.granted_at <= now() and c.expires_at > now()
    union
    select c.subject_id, c.purpose, o.object_id
    from gate.consent c
    join brain.thread t on t.id = c.thread_id and t.deleted_at is null
    cross join lateral (
        select t.id as object_id
        union all
        select m.unit_id from brain.thread_membership m
        where m.thread_id = t.id and m.status = 'active') o
    where c.revoked_at is null and c.granted_at <= now() and c.expires_at > now();

-- Definer: a reader must not read anybody's consents, and links have policies of their own.
create function gate.consented_objects() returns setof uuid
language sql stable security definer rows 20
set search_path = pg_catalog, pg_temp
as $$
    select v.unit_id from gate.consented_unit v
    where v.subject_id = nullif(current_setting('gw.subject', true), '')
      and v.purpose = nullif(current_setting('gw.purpose', true), '')
$$;

-- What hydration may learn about ids that an index offered and row-level security refused: the
-- class, and how long the index has been waiting for an update of it. Never content.
create function brain.refused_units(ids uuid[])
returns table (unit_id uuid, class_id smallint, pending_seconds double precision)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select i.id, coalesce(u.class_id, -1::smallint),
           (select extract(epoch from clock_timestamp() - min(o.created_at))
            from brain.outbox o where o.unit_id = i.id and o.done_at is null)::double precision
    from unnest(ids) i (id)
    left join brain.unit u on u.id = i.id
$$;

-- --- row-level security ----------------------------------------------------------------------

do $security$
declare
    name text;
    settings constant text :=
        $q$(select nullif(current_setting('gw.tenants', true), '') is not null
               and nullif(current_setting('gw.jurisdictions', true), '') is not null)$q$;
    compartments constant text :=
        $q$(tenant = '*' or tenant = any
            ((select nullif(current_setting('gw.tenants', true), '')::text[])::text[]))
        and (jurisdiction = '*' or jurisdiction = any
            ((select nullif(current_setting('gw.jurisdictions', true), '')::text[])::text[]))$q$;
    -- `|| ''` makes a plain copy: get_bit would else decompress a stored mask for every row
    mask constant text :=
        $q$(select g.%s || B'' from gate.profile_grant g where g.role = current_user
            and g.digest = (select a.digest from gate.active_revision a))$q$;
    guard constant text := format('class_id between 0 and (select length(g.plain) - 1
        from gate.profile_grant g where g.role = current_user
        and g.digest = (select a.digest from gate.active_revision a))');
    plain text := format('get_bit(%s, class_id) = 1', format(mask, 'plain'));
    consented text := format('get_bit(%s, class_id) = 1', format(mask, 'consented'));
    shape constant text := '%s and %s and case when %s then %s else false end';
    counted text := format(shape, settings, compartments, guard, plain);
    governed text := format(shape, settings, compartments, guard, format(
        '%s or (%s and %%I in (select gate.consented_objects()))', plain, consented));
    live constant text := ' and deleted_at is null';
    unit_of constant text := 'exists (select from brain.unit u where u.id = %I)';
    thread_of constant text := 'exists (select from brain.thread t where t.id = thread_id)';
    label_of constant text := 'exists (select from brain.label l where l.id = label_id)';
    current_of constant text := 'exists (select from brain.unit u
        where u.id = unit_id and u.current_revision = revision)';
begin
    for name in
        select format('%I.%I', n.nspname, c.relname)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname in ('brain', 'gate') and c.relkind in ('r', 'p')
    loop
        execute format('alter table %s enable row level security', name);
        execute format('alter table %s force row level security', name);
        execute format(
            'create policy owner on %s to gw_owner using (true) with check (true)', name);
    end loop;

    execute format('create policy reader on brain.unit for select to gw_reader using (%s)',
                   format(governed, 'id') || live);
    execute format('create policy reader on brain.thread for select to gw_reader using (%s)',
                   format(governed, 'id') || live);
    execute format('create policy reader on brain.label for select to gw_reader using (%s)',
                   format(governed, 'id') || live);
    execute format('create policy reader on brain.expected_artifact for select to gw_reader'
                   ' using (%s and %s)', format(governed, 'id') || live, thread_of);
    execute format('create policy reader on brain.thread_term for select to gw_reader using (%s)',
                   format(governed, 'thread_id'));
    execute format('create policy reader on brain.thread_partial for select to gw_reader'
                   ' using (%s and %s)', counted, thread_of);
    execute format('create policy reader on brain.lexicon_partial for select to gw_reader'
                   ' using (%s)', counted);
    execute format('create policy reader on brain.corpus_partial for select to gw_reader'
                   ' using (%s)', counted);
    execute format('create policy reader on brain.unit_revision for select to gw_reader'
                   ' using (%s)', current_of);
    execute format('create policy reader on brain.embedding for select to gw_reader using (%s)',
                   current_of);
    execute format('create policy reader on brain.thread_membership for select to gw_reader'
                   ' using (%s and %s)', format(unit_of, 'unit_id'), thread_of);
    execute format('create policy reader on brain.edge for select to gw_reader'
                   ' using (%s and %s)', format(unit_of, 'src'), format(unit_of, 'dst'));
    execute format('create policy reader on brain.unit_label for select to gw_reader'
                   ' using (%s and %s)', label_of, format(unit_of, 'unit_id'));
    execute format('create policy reader on brain.thread_label for select to gw_reader'
                   ' using (%s and %s)', label_of, thread_of);
end $security$;

create policy reader on gate.profile_grant for select to gw_reader using (role = current_user);
create policy reader on gate.active_revision for select to gw_reader using (true);
create policy reader on gate.unit_class for select to gw_reader using (true);

revoke all on all tables in schema brain, gate from public;
revoke execute on all functions in schema brain, gate from public;
revoke all on schema brain, gate from public;

grant usage on schema brain, gate to gw_reader;
grant select on brain.unit, brain.unit_revision, brain.embedding, brain.thread,
    brain.thread_membership, brain.edge, brain.label, brain.unit_label, brain.thread_label,
    brain.expected_artifact, brain.thread_partial, brain.thread_term, brain.lexicon_partial,
    brain.corpus_partial, gate.profile_grant, gate.active_revision, gate.unit_class
    to gw_reader;
grant execute on function gate.consented_objects(), brain.refused_units(uuid[]) to gw_reader;

-- --- the stations ----------------------------------------------------------------------------
-- Each role gets the verbs that its station needs, by grant; its policies only say "all rows".

do $stations$
declare
    station record;
begin
    for station in
        select * from (values
            ('gw_guard', 'select', 'brain.unit brain.thread brain.expected_artifact'
                ' gate.active_revision'),
            ('gw_ingest', 'all', 'brain.unit brain.unit_revision brain.embedding brain.thread'
                ' brain.thread_membership brain.edge brain.label brain.unit_label'
                ' brain.thread_label brain.expected_artifact brain.thread_term brain.quarantine'),
            ('gw_ingest', 'select', 'gate.facet_word gate.unit_class gate.active_revision'
                ' brain.outbox'),
            ('gw_index', 'select', 'brain.unit brain.unit_revision'),
            ('gw_index', 'all', 'brain.embedding brain.outbox'),
            ('gw_policy', 'all', 'gate.profile_grant gate.active_revision'
                ' gate.audience_filter_policy gate.consent'),
            ('gw_policy', 'select', 'gate.profile_role gate.unit_class gate.facet_word'),
            ('gw_journal', 'insert', 'gate.security_event gate.escalation'
                ' gate.consumer_contract_log'),
            ('gw_seal', 'select', 'gate.security_event'),
            ('gw_seal', 'all', 'gate.security_event_seal')
        ) s (role, verb, tables)
    loop
        execute format('grant usage on schema brain, gate to %I', station.role);
        declare
            target text;
        begin
            foreach target in array string_to_array(station.tables, ' ') loop
                execute format('create policy %I on %s for %s to %I %s',
                    station.role || '_' || station.verb, target, station.verb, station.role,
                    case station.verb when 'select' then 'using (true)'
                                      when 'insert' then 'with check (true)'
                                      else 'using (true) with check (true)' end);
            end loop;
        end;
    end loop;
end $stations$;

-- The label registry: what a verdict needs and nothing that can be read.
grant select (id, class_id, tenant, jurisdiction, deleted_at)
    on brain.unit, brain.thread, brain.expected_artifact to gw_guard;
grant select on gate.consented_unit, gate.active_revision to gw_guard;

grant select, insert, update on brain.unit, brain.thread, brain.label, brain.expected_artifact,
    brain.embedding, brain.quarantine to gw_ingest;
grant select, insert, update, delete on brain.thread_membership, brain.edge, brain.unit_label,
    brain.thread_label, brain.thread_term to gw_ingest;
-- a revision's words are history; its lexical form may be made anew
grant select, insert, update (lexical_terms, lexical_weights) on brain.unit_revision to gw_ingest;
grant select on gate.facet_word, gate.unit_class, gate.active_revision, brain.outbox to gw_ingest;

grant select on brain.unit, brain.unit_revision to gw_index;
grant select, insert, update on brain.embedding to gw_index;
grant select, delete, update (done_at) on brain.outbox to gw_index;

grant select, insert, update, delete on gate.profile_grant to gw_policy;
grant select, insert, update on gate.active_revision to gw_policy;
grant select, insert on gate.audience_filter_policy to gw_policy;
grant select, insert, update (expires_at, revoked_at) on gate.consent to gw_policy;
grant select on gate.profile_role, gate.unit_class, gate.facet_word to gw_policy;

grant insert on gate.security_event, gate.escalation, gate.consumer_contract_log to gw_journal;
grant select on gate.security_event to gw_seal;
grant select, insert on gate.security_event_seal to gw_seal;

-- --- the journal only grows -------------------------------------------------------------------

create function gate.refuse_rewriting() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception '% only grows', tg_table_name using errcode = 'insufficient_privilege';
end $$;
revoke execute on function gate.refuse_rewriting() from public;

create trigger only_grows before update or delete or truncate on gate.security_event
    for each statement execute function gate.refuse_rewriting();
create trigger only_grows before update or delete or truncate on gate.security_event_seal
    for each statement execute function gate.refuse_rewriting();
create trigger only_grows before update or delete or truncate on gate.consumer_contract_log
    for each statement execute function gate.refuse_rewriting();
