-- How far ingest has read a knowledge base that lives in another database: the highest revision of
-- each of its views that was taken whole. Written in the transaction of the links, so that a run
-- that was killed reads on from where the last whole one ended.
create table brain.ingest_mark (
    origin   text not null check (origin ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    -- database and schema of the views; another place under the same name begins anew
    place    text not null check (place <> ''),
    view     text not null check (view in ('unit', 'thread', 'edge', 'term')),
    revision bigint not null,
    read_at  timestamptz not null default now(),
    primary key (origin, place, view)
);

alter table brain.ingest_mark enable row level security;
alter table brain.ingest_mark force row level security;
create policy owner on brain.ingest_mark to gw_owner using (true) with check (true);
create policy gw_ingest_all on brain.ingest_mark for all to gw_ingest
    using (origin = nullif(current_setting('gw.origin', true), ''))
    with check (origin = nullif(current_setting('gw.origin', true), ''));
revoke all on brain.ingest_mark from public;
grant select, insert, update on brain.ingest_mark to gw_ingest;
