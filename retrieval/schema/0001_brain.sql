-- The record of truth for governed objects (the seed's layer "Não", brain).
-- Labels are written as facet words and looked up once, by trigger (0003), in gate.unit_class:
-- nobody writes a class id by hand. class_id -1 = unlabelled, unknown or contradictory: in no list.
-- tenant and jurisdiction are compartments: '*' is the explicit value "shared", never a default.

create schema brain;
create schema gate;

create table brain.thread (
    id                uuid primary key,
    canonical_address text not null unique check (canonical_address <> ''),
    title             text not null,
    aliases           text[] not null default '{}',
    description       text not null default '',
    purpose           text not null default '',
    visibility        text,
    readiness         text,
    publication_state text,
    risk_class        text,
    authority         text,
    kind              text,
    class_id          smallint not null default -1,
    tenant            text not null check (tenant <> ''),
    jurisdiction      text not null check (jurisdiction <> ''),
    status            text not null default 'active' check (status in ('active', 'retired')),
    content_hash      text not null default '',
    updated_at        timestamptz not null default now(),
    deleted_at        timestamptz
);

create table brain.unit (
    id                uuid primary key,
    canonical_address text not null unique check (canonical_address <> ''),
    title             text not null,
    -- declared facets; null = blank, filled from the unit's threads (0003), never guessed
    visibility        text,
    readiness         text,
    publication_state text,
    risk_class        text,
    authority         text,
    kind              text,
    class_id          smallint not null default -1,
    tenant            text not null check (tenant <> ''),
    jurisdiction      text not null check (jurisdiction <> ''),
    lifecycle_stage   text not null default 'other'
        check (lifecycle_stage in ('law', 'design', 'code', 'test', 'report', 'incident', 'other')),
    language          text not null default '',
    source            text not null default '',
    current_revision  integer not null check (current_revision >= 1),
    content_hash      text not null,
    active_at         timestamptz not null default now(),
    updated_at        timestamptz not null default now(),
    deleted_at        timestamptz
);
create index unit_class on brain.unit (class_id);

create table brain.unit_revision (
    unit_id         uuid not null references brain.unit (id) on delete cascade,
    revision        integer not null check (revision >= 1),
    title           text not null,
    body            text not null,
    body_sha256     text not null,
    -- the lexical form that both the index and our own scoring use: term ids (sorted, unsigned
    -- 31 bit) and their BM25 document weights with a fixed average length (no corpus statistics)
    lexical_terms   integer[] not null default '{}',
    lexical_weights real[] not null default '{}',
    created_at      timestamptz not null default now(),
    primary key (unit_id, revision),
    check (cardinality(lexical_terms) = cardinality(lexical_weights))
);

-- One vector per unit revision and model: little-endian int16, value * 32767, unit length.
-- Integers make our own scores exact, whatever the order of the additions.
create table brain.embedding (
    unit_id  uuid not null,
    revision integer not null,
    model    text not null,
    vector   bytea not null,
    primary key (unit_id, revision, model),
    foreign key (unit_id, revision) references brain.unit_revision (unit_id, revision) on delete cascade
);

create table brain.thread_membership (
    thread_id  uuid not null references brain.thread (id) on delete cascade,
    unit_id    uuid not null references brain.unit (id) on delete cascade,
    role       text not null check (role in ('canonical', 'supporting', 'report')),
    confidence real not null default 1 check (confidence between 0 and 1),
    status     text not null default 'active' check (status in ('active', 'needs_human', 'wrong_link')),
    added_by   text not null default '',
    created_at timestamptz not null default now(),
    primary key (thread_id, unit_id)
);
create index thread_membership_unit on brain.thread_membership (unit_id);

create table brain.edge (
    id              uuid primary key,
    src             uuid not null references brain.unit (id) on delete cascade,
    dst             uuid not null references brain.unit (id) on delete cascade,
    relation        text not null check (relation ~ '^[a-z_]{1,40}$'),
    confidence      real not null default 1 check (confidence between 0 and 1),
    source_revision integer not null default 1,
    unique (src, dst, relation)
);
create index edge_dst on brain.edge (dst);

-- Controlled vocabulary. A label is a governed object: its word alone may tell something.
create table brain.label (
    id                uuid primary key,
    term              text not null,
    version           integer not null default 1,
    visibility        text,
    readiness         text,
    publication_state text,
    risk_class        text,
    authority         text,
    kind              text,
    class_id          smallint not null default -1,
    tenant            text not null check (tenant <> ''),
    jurisdiction      text not null check (jurisdiction <> ''),
    deleted_at        timestamptz,
    unique (term, version, tenant)
);
create table brain.unit_label (
    label_id uuid not null references brain.label (id) on delete cascade,
    unit_id  uuid not null references brain.unit (id) on delete cascade,
    primary key (label_id, unit_id)
);
create table brain.thread_label (
    label_id  uuid not null references brain.label (id) on delete cascade,
    thread_id uuid not null references brain.thread (id) on delete cascade,
    primary key (label_id, thread_id)
);

-- What a thread should hold one day. Governed itself: "an incident report is expected" is a fact.
create table brain.expected_artifact (
    id                uuid primary key,
    thread_id         uuid not null references brain.thread (id) on delete cascade,
    title             text not null,
    lifecycle_stage   text not null
        check (lifecycle_stage in ('law', 'design', 'code', 'test', 'report', 'incident', 'other')),
    visibility        text,
    readiness         text,
    publication_state text,
    risk_class        text,
    authority         text,
    kind              text,
    class_id          smallint not null default -1,
    tenant            text not null check (tenant <> ''),
    jurisdiction      text not null check (jurisdiction <> ''),
    deleted_at        timestamptz,
    unique (thread_id, lifecycle_stage, title)
);

-- Additive parts per (thread, class, compartment): a reader's sums run over permitted keys only,
-- so nothing hidden steers a centroid, a coverage or a recency. Kept by recompute (0003).
create table brain.thread_partial (
    thread_id     uuid not null references brain.thread (id) on delete cascade,
    class_id      smallint not null,
    tenant        text not null,
    jurisdiction  text not null,
    unit_count    integer not null,
    stage_bits    integer not null default 0,
    last_activity timestamptz,
    vector_model  text not null default '',
    vector_sum    bigint[] not null default '{}',
    health        jsonb not null default '{}',
    primary key (thread_id, class_id, tenant, jurisdiction)
);

-- Keyword postings of threads (title, aliases, description): integer equality is leakproof, so the
-- index works under row-level security, where a text-search operator would turn it off.
create table brain.thread_term (
    term         integer not null,
    thread_id    uuid not null references brain.thread (id) on delete cascade,
    weight       real not null,
    class_id     smallint not null,
    tenant       text not null,
    jurisdiction text not null,
    primary key (term, thread_id)
);
create index thread_term_thread on brain.thread_term (thread_id);

-- Document frequencies per (term, class, compartment): the inverse document frequency a caller's
-- query gets is a sum over permitted keys, never a global one (which leaks through scores).
create table brain.lexicon_partial (
    term         integer not null,
    class_id     smallint not null,
    tenant       text not null,
    jurisdiction text not null,
    df           integer not null,
    primary key (term, class_id, tenant, jurisdiction)
);
create table brain.corpus_partial (
    class_id     smallint not null,
    tenant       text not null,
    jurisdiction text not null,
    units        integer not null,
    primary key (class_id, tenant, jurisdiction)
);

-- What ingest could not label. Nothing is coerced, nothing is lost.
create table brain.quarantine (
    id          uuid primary key default gen_random_uuid(),
    sort        text not null check (sort in ('unit', 'thread', 'artifact', 'label', 'record')),
    object_id   uuid,
    address     text not null default '',
    source      text not null default '',
    facet       text not null default '',
    value       text not null default '',
    reason      text not null,
    created_at  timestamptz not null default now(),
    resolved_at timestamptz
);
create unique index quarantine_open on brain.quarantine (sort, address, facet, value, reason)
    where resolved_at is null;

-- Postgres -> Qdrant. The worker always writes the *current* truth of the unit, so a late or
-- repeated row can never bring an older revision or a deleted unit back.
create table brain.outbox (
    seq        bigint generated always as identity primary key,
    unit_id    uuid not null,
    op         text not null check (op in ('content', 'label', 'delete')),
    created_at timestamptz not null default clock_timestamp(),
    done_at    timestamptz
);
create index outbox_pending on brain.outbox (unit_id) where done_at is null;
create index outbox_order on brain.outbox (seq) where done_at is null;
