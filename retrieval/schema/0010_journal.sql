-- What the journal needs beyond 0005: its readers' rights, and escalations that nobody can lose.
-- Who may switch a trigger off (the owner, on purpose) can still change rows; that is what the
-- chain of seals is for: it shows.

-- gw_seal also reads what an event must have caused, so that `gateway events verify` can say it.
grant select on gate.escalation, gate.consumer_contract_log to gw_seal;
create policy gw_seal_select on gate.escalation for select to gw_seal using (true);
create policy gw_seal_select on gate.consumer_contract_log for select to gw_seal using (true);

-- An escalation is opened and closed; what it is about never changes, and it never goes away.
create trigger only_grows before delete or truncate on gate.escalation
    for each statement execute function gate.refuse_rewriting();
create function gate.keep_escalation() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if (new.id, new.event_id, new.queue, new.created_at)
        is distinct from (old.id, old.event_id, old.queue, old.created_at) then
        raise exception 'only the state of an escalation may change'
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;
revoke execute on function gate.keep_escalation() from public;
create trigger keep_escalation before update on gate.escalation
    for each row execute function gate.keep_escalation();
