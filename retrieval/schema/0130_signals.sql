-- What retrieval handed out, what came of it, and the signals that are drawn from it (the seed's
-- sections 4.8 and 4.9, layer "Não").
--
-- Laws
--   Nothing here is read for an answer: no row changes what anybody is shown. A caller can read its
--   own deliveries and no other row.
--   No question is kept. `query_hmac` is a keyed hash of its words: it tells that the same was asked
--   again and nothing else. `consumer` is a keyed hash of the subject.
--   The login that serves may insert and nothing else.
--   `at` is the time of the answer that a row is about, also for what was said about it later: so
--   numerator and denominator of a rate are of one day, and saying the same twice is one row.
--   What the guard kept back was delivered to nobody: it can be cited and spoken about by nobody, and
--   is in no rate and no signal.
--   A wrong-audience result is no signal: it stands in gate.security_event only (seed gap 7).

-- One row per context pack: what its subject may cite and speak about.
create table brain.pack_delivery (
    pack_id         uuid not null,
    -- the answer that the pack stood in: several packs of one answer share it
    query_id        uuid not null,
    request_id      text not null,
    subject_id      text not null check (subject_id <> ''),
    audience        text not null,
    profile         text not null,
    policy_digest   text not null,
    consumer        text not null check (consumer ~ '^[0-9a-f]{64}$'),
    mode            text not null check (mode in ('single', 'multi', 'fallback')),
    fallback_reason text check (fallback_reason in ('missing_thread', 'weak_thread', 'raw_requested')),
    -- null for a pack that was asked for by name: there was no question
    query_hmac      text check (query_hmac ~ '^[0-9a-f]{64}$'),
    thread_id       uuid,
    unit_ids        uuid[] not null,
    addresses       text[] not null,
    revisions       integer[] not null,
    suspect_ids     uuid[] not null,
    gap_ids         uuid[] not null,
    delivered_at    timestamptz not null default now(),
    primary key (pack_id, delivered_at),
    check (cardinality(unit_ids) = cardinality(addresses)),
    check (cardinality(unit_ids) = cardinality(revisions))
) partition by range (delivered_at);
create index pack_delivery_subject on brain.pack_delivery (subject_id, delivered_at);
create index pack_delivery_time on brain.pack_delivery (delivered_at);

-- Answers that were written down and never left: the guard refused them or had them made again.
create table brain.answer_withheld (
    query_id   uuid primary key,
    subject_id text not null check (subject_id <> ''),
    noted_at   timestamptz not null default now()
);
create index answer_withheld_time on brain.answer_withheld (noted_at);

-- Seed: retrieval_metric_event. The eight rates of 0131 are counts over these rows.
create table brain.retrieval_metric_event (
    id            uuid not null,
    at            timestamptz not null,
    noted_at      timestamptz not null default now(),
    kind          text not null check (kind in (
        'query',           -- a question was answered
        'pack',            -- a context pack was handed out
        'extra_search', 'rejected_thread', 'noisy_context', 'wrong_thread', 'sufficient',
        'missing_thread'   -- the whole corpus has no thread for it (classification `absent`)
    )),
    query_id      uuid not null,
    request_id    text not null,
    consumer      text not null check (consumer ~ '^[0-9a-f]{64}$'),
    audience      text not null,
    profile       text not null,
    policy_digest text not null,
    -- how was asked: `reference` is a pack by its thread
    asked         text not null check (asked in ('auto', 'raw', 'reference')),
    mode          text not null check (mode in ('single', 'multi', 'fallback', 'none')),
    -- this answer replaced an earlier one of the same request, which the guard had refused
    again         boolean not null default false,
    query_hmac    text check (query_hmac ~ '^[0-9a-f]{64}$'),
    pack_id       uuid,
    thread_id     uuid,
    unit_id       uuid,
    -- candidates that were too weak to answer from
    weak_ids      uuid[] not null default '{}',
    primary key (id, at)
) partition by range (at);
create index retrieval_metric_event_noted on brain.retrieval_metric_event (noted_at);
create index retrieval_metric_event_query on brain.retrieval_metric_event (query_id);
create index retrieval_metric_event_question on brain.retrieval_metric_event (query_hmac, audience)
    where kind = 'query';
create index retrieval_metric_event_again on brain.retrieval_metric_event (request_id, consumer)
    where again;

-- Seed: search_gap_signal. One row per gap and day.
create table brain.search_gap_signal (
    id             uuid primary key default gen_random_uuid(),
    day            date not null,
    dedup_key      text not null check (dedup_key ~ '^[0-9a-f]{64}$'),
    kind           text not null check (kind in ('search_gap', 'missing_thread', 'weak_thread',
                       'noisy_thread', 'expected_artifact_missing')),
    audience       text not null,
    -- over the whole corpus: nothing there, something that this audience may not read, or not asked
    classification text not null check (classification in ('absent', 'not_for_audience', 'unknown')),
    thread_id      uuid,
    artifact_id    uuid,
    query_hmac     text check (query_hmac ~ '^[0-9a-f]{64}$'),
    occurrences    integer not null check (occurrences > 0),
    subjects       integer not null check (subjects between 1 and occurrences),
    first_at       timestamptz not null,
    last_at        timestamptz not null,
    state          text not null default 'open' check (state in ('open', 'routed', 'closed')),
    unique (dedup_key, day)
);

-- --- partitions: one a month, made ahead, dropped when their time is over --------------------------

-- Definer: only the owner may make and drop tables. A partition is a table that nobody was granted
-- anything on; it is reached through its parent, whose policies then hold.
create function brain.keep_partitions(events_kept integer, deliveries_kept integer, ahead integer)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    parent record;
    part record;
    month timestamp;
    name text;
    changed integer := 0;
    this_month constant timestamp := date_trunc('month', now() at time zone 'utc');
begin
    if least(events_kept, deliveries_kept, ahead) < 1 or events_kept is null
        or deliveries_kept is null or ahead is null then
        raise exception 'keep and prepare at least one month'
            using errcode = 'invalid_parameter_value';
    end if;
    perform pg_advisory_xact_lock(hashtext('brain.keep_partitions'));
    for parent in select * from (values
        ('retrieval_metric_event', events_kept), ('pack_delivery', deliveries_kept)) p (name, kept)
    loop
        for step in 0..ahead loop
            month := this_month + make_interval(months => step);
            name := format('%s_%s', parent.name, to_char(month, 'YYYYMM'));
            continue when to_regclass(format('brain.%I', name)) is not null;
            -- attaching waits for nobody who reads or inserts; `partition of` would
            execute format('create table brain.%I (like brain.%I including all)', name, parent.name);
            execute format('alter table brain.%I enable row level security', name);
            execute format('alter table brain.%I force row level security', name);
            execute format('alter table brain.%I attach partition brain.%I for values from (%L) to (%L)',
                parent.name, name, month at time zone 'utc',
                (month + interval '1 month') at time zone 'utc');
            changed := changed + 1;
        end loop;
        for part in
            select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = format('brain.%I', parent.name)::regclass
              and right(c.relname, 6) < to_char(this_month - make_interval(months => parent.kept),
                                                'YYYYMM')
        loop
            execute format('drop table brain.%I', part.relname);
            changed := changed + 1;
        end loop;
    end loop;
    delete from brain.search_gap_signal
        where last_at < now() - make_interval(months => events_kept);
    -- later than what it speaks of, which goes with the last day of its month
    delete from brain.answer_withheld
        where noted_at < now() - make_interval(months => greatest(events_kept, deliveries_kept) + 2);
    return changed;
end $$;
select brain.keep_partitions(1, 1, 3);

-- --- rights ----------------------------------------------------------------------------------------

do $security$
declare
    target text;
begin
    foreach target in array array['pack_delivery', 'answer_withheld', 'retrieval_metric_event',
        'search_gap_signal'] loop
        execute format('alter table brain.%I enable row level security', target);
        execute format('alter table brain.%I force row level security', target);
        execute format('create policy owner on brain.%I to gw_owner using (true) with check (true)',
                       target);
        execute format('create policy gw_signal_select on brain.%I for select to gw_signal using (true)',
                       target);
        execute format('revoke all on brain.%I from public', target);
        execute format('grant select on brain.%I to gw_signal', target);
    end loop;
end $security$;
grant usage on schema brain to gw_ledger, gw_signal, gw_metric, gw_steward;

-- A caller finds its own deliveries, whatever it names; nothing tells others' and what was withheld
-- from none.
create policy reader on brain.answer_withheld for select to gw_reader
    using (subject_id = nullif(current_setting('gw.subject', true), ''));
grant select (query_id, subject_id) on brain.answer_withheld to gw_reader;
create policy reader on brain.pack_delivery for select to gw_reader
    using (subject_id = nullif(current_setting('gw.subject', true), '')
           and not exists (select from brain.answer_withheld w
                           where w.query_id = pack_delivery.query_id));
grant select on brain.pack_delivery to gw_reader;

create policy gw_ledger_insert on brain.pack_delivery for insert to gw_ledger with check (true);
create policy gw_ledger_insert on brain.retrieval_metric_event for insert to gw_ledger
    with check (kind <> 'missing_thread');
create policy gw_ledger_insert on brain.answer_withheld for insert to gw_ledger with check (true);
grant insert on brain.pack_delivery, brain.retrieval_metric_event to gw_ledger;
grant insert (query_id, subject_id) on brain.answer_withheld to gw_ledger;

create policy gw_signal_insert on brain.retrieval_metric_event for insert to gw_signal
    with check (kind = 'missing_thread');
grant insert on brain.retrieval_metric_event to gw_signal;
create policy gw_signal_insert on brain.search_gap_signal for insert to gw_signal with check (true);
create policy gw_signal_update on brain.search_gap_signal for update to gw_signal
    using (true) with check (true);
grant insert, update (classification, occurrences, subjects, last_at, state)
    on brain.search_gap_signal to gw_signal;

create policy gw_steward_select on brain.search_gap_signal for select to gw_steward using (true);
create policy gw_steward_update on brain.search_gap_signal for update to gw_steward
    using (true) with check (true);
grant select, update (state) on brain.search_gap_signal to gw_steward;

revoke execute on function brain.keep_partitions(integer, integer, integer) from public;
grant execute on function brain.keep_partitions(integer, integer, integer) to gw_metric;
