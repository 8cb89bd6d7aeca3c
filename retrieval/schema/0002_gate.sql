-- Policy as the database enforces it, consents, and the journal (the seed's layer "Cổng", gate).

-- The class registry: one row per facet tuple, ids from policies/rules/classes.lock (append-only).
create table gate.unit_class (
    class_id          smallint primary key check (class_id >= 0),
    visibility        text not null,
    readiness         text not null,
    publication_state text not null,
    risk_class        text not null,
    authority         text not null,
    kind              text not null,
    retired           boolean not null default false,
    unique (visibility, readiness, publication_state, risk_class, authority, kind)
);

-- Which database role stands for which profile, and to which audience's login it is granted.
create table gate.profile_role (
    profile  text primary key,
    role     name not null unique,
    audience text not null
);

-- One row per (revision, profile): which classes are readable, as bit masks (bit i = class i).
create table gate.profile_grant (
    digest    text not null,
    role      name not null,
    profile   text not null,
    plain     bit varying not null,
    consented bit varying not null,
    primary key (digest, role)
);
create table gate.active_revision (
    one          boolean primary key default true check (one),
    digest       text not null,
    generation   bigint not null,
    activated_at timestamptz not null default now()
);

-- Seed: audience_filter_policy. Every revision that was ever active, in its compiled forms.
create table gate.audience_filter_policy (
    digest       text not null,
    generation   bigint not null unique,
    allowed      jsonb not null,
    activated_by text not null default '',
    activated_at timestamptz not null default now(),
    primary key (digest, generation)
);

create table gate.consent (
    id         uuid primary key default gen_random_uuid(),
    subject_id text not null check (subject_id <> ''),
    purpose    text not null check (purpose <> ''),
    unit_id    uuid references brain.unit (id) on delete cascade,
    thread_id  uuid references brain.thread (id) on delete cascade,
    approver   text not null check (approver <> ''),
    granted_at timestamptz not null default now(),
    expires_at timestamptz not null,
    revoked_at timestamptz,
    check ((unit_id is null) <> (thread_id is null)),
    check (expires_at > granted_at)
);
create index consent_live on gate.consent (subject_id, purpose) where revoked_at is null;

-- Security events, never mixed with quality signals (seed gap 7). Append-only; no content, no
-- address, no query: opaque ids, class, digest and the layer that leaked.
create table gate.security_event (
    id            uuid primary key,
    occurred_at   timestamptz not null default clock_timestamp(),
    kind          text not null check (kind in ('wrong_audience_result', 'stale_index')),
    severity      text not null check (severity in ('critical', 'warning')),
    request_id    text not null,
    trace_id      text not null,
    audience      text not null,
    profile       text not null,
    subject_hash  text not null,
    route         text not null,
    unit_ids      uuid[] not null check (cardinality(unit_ids) between 1 and 50),
    unit_count    integer not null check (unit_count >= cardinality(unit_ids)),
    class_ids     smallint[] not null,
    layer         text not null,
    policy_digest text not null,
    action        text not null check (action in ('withheld', 'refused'))
);
create index security_event_time on gate.security_event (occurred_at);

-- The chain over the events, written by one sealer within a second.
create table gate.security_event_seal (
    position  bigint primary key,
    event_id  uuid not null unique references gate.security_event (id),
    prev_hash text not null,
    hash      text not null,
    sealed_at timestamptz not null default clock_timestamp()
);

-- Rows for governance (Đ37) and risk review (Đ32), in the transaction of the event they belong to.
create table gate.escalation (
    id         uuid primary key default gen_random_uuid(),
    event_id   uuid not null references gate.security_event (id),
    queue      text not null check (queue in ('governance', 'risk_review')),
    state      text not null default 'open' check (state in ('open', 'closed')),
    created_at timestamptz not null default now(),
    unique (event_id, queue)
);

-- Seed: consumer_contract_log. A reference to the event, and later contract violations.
create table gate.consumer_contract_log (
    id          uuid primary key default gen_random_uuid(),
    occurred_at timestamptz not null default now(),
    kind        text not null check (kind ~ '^[a-z_]{1,40}$'),
    request_id  text not null,
    event_id    uuid references gate.security_event (id),
    detail      jsonb not null default '{}'
);
