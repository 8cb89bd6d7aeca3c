-- A narrowing reaches every unit that a thread fills, also one that was linked just now.
--
-- Laws
--   Whoever changes a thread sees all of its links that are committed by then: after the row is
--   its own, each statement of the cascade looks anew. A snapshot of an earlier moment would not
--   see a unit that was linked since, and leave it as open as the thread has been.

create function brain.refuse_snapshot() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'a thread is changed at isolation level read committed only'
            using errcode = 'invalid_transaction_state';
    end if;
    return null;
end $$;
revoke execute on function brain.refuse_snapshot() from public;

create trigger refuse_snapshot before update on brain.thread
    for each statement execute function brain.refuse_snapshot();
