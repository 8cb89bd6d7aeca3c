-- What becomes of gaps that nobody meets any more: their items and their words go with the events
-- that they were drawn from.
--
-- An item goes when it was last met, closed or done before that: a gap that is met again later is a
-- new one, also if it was rejected once.

create function brain.forget_gaps(events_kept integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    horizon constant timestamptz := now() - make_interval(months => events_kept);
    target text;
    gone integer := 0;
    touched integer;
begin
    if events_kept is null or events_kept < 1 then
        raise exception 'keep at least one month' using errcode = 'invalid_parameter_value';
    end if;
    -- as route_signals, which would bring back what goes here
    perform pg_advisory_xact_lock(hashtext('brain.route_signals'));
    foreach target in array array['brain.thread_proposal', 'brain.capability_intake'] loop
        execute format('delete from %s i using brain.decision_backlog b'
                       ' where b.dedup_key = i.dedup_key'
                       ' and greatest(b.last_at, b.closed_at, b.done_at) < $1', target)
            using horizon;
    end loop;
    foreach target in array array['brain.decision_backlog', 'brain.segmentation_health',
        'gate.governance_queue'] loop
        execute format('delete from %s b where greatest(b.last_at, b.closed_at, b.done_at) < $1',
                       target) using horizon;
        get diagnostics touched = row_count;
        gone := gone + touched;
    end loop;
    delete from brain.gap_term t
    where not exists (select from brain.search_gap_signal s where s.dedup_key = t.dedup_key)
      and not exists (select from brain.decision_backlog b where b.dedup_key = t.dedup_key);
    delete from brain.signal_overflow o where o.day < (horizon at time zone 'utc')::date;
    return gone;
end $$;
create index gap_term_gap on brain.gap_term (dedup_key);
revoke execute on function brain.forget_gaps(integer) from public;
grant execute on function brain.forget_gaps(integer) to gw_metric;
