-- How far an interrupted ingest came. The row is committed with the batch that it speaks of, and
-- removed when the run is complete. It holds counts and places, never a text.
create table brain.ingest_checkpoint (
    run_key      text primary key,
    records_done bigint not null check (records_done >= 0),
    report       jsonb not null,
    updated_at   timestamptz not null default now()
);

alter table brain.ingest_checkpoint enable row level security;
alter table brain.ingest_checkpoint force row level security;
create policy owner on brain.ingest_checkpoint to gw_owner using (true) with check (true);
create policy gw_ingest_all on brain.ingest_checkpoint for all to gw_ingest
    using (true) with check (true);
revoke all on brain.ingest_checkpoint from public;
grant select, insert, update, delete on brain.ingest_checkpoint to gw_ingest;
