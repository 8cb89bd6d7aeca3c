-- Asked every second by every gateway: when no override has run out, nothing is written and no
-- trigger runs.
create or replace function gate.end_overrides() returns integer
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
