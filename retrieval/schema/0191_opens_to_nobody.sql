-- What opens to nobody yet: an override may be approved before any policy lets somebody read its words.

-- As in 0060, and: whom nothing opened to is told in a word of its own, not as too many to name.
create or replace function gate.journal_widening(changes uuid[], layer text, route text, who text)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    event uuid := gen_random_uuid();
begin
    insert into gate.security_event (id, kind, severity, request_id, trace_id, audience, profile,
        subject_hash, route, unit_ids, unit_count, class_ids, layer, policy_digest, action)
    with widened as (
        select c.object_id, c.to_class, c.gained, c.policy_digest,
               row_number() over (order by c.object_id) as place
        from (select distinct on (c.object_id) c.* from gate.label_change c
              where c.id = any (changes) order by c.object_id) c
    ), readers as (
        select distinct p.profile, p.audience
        from widened w cross join unnest(w.gained) g (profile)
        join gate.profile_role p on p.profile = g.profile
    ), names as (
        select coalesce(string_agg(distinct audience, '+' order by audience), 'nobody')
                   as audiences,
               coalesce(string_agg(distinct profile, '+' order by profile), 'nobody') as profiles
        from readers
    )
    select event, 'label_widened', 'warning', event::text,
           replace(gen_random_uuid()::text, '-', ''),
           case when length(n.audiences) <= 200 then n.audiences else 'many' end,
           case when length(n.profiles) <= 200 then n.profiles else 'many' end,
           encode(sha256(convert_to(who, 'UTF8')), 'hex'), route,
           array(select w.object_id from widened w where w.place <= 50 order by w.object_id),
           (select count(*) from widened),
           array(select distinct w.to_class from widened w where w.place <= 50 order by 1),
           layer, (select max(w.policy_digest) from widened w), 'approved'
    from names n;
    update gate.label_change c set event_id = event where c.id = any (changes);
    return event;
end $$;

-- A decision that leaves out what it decides, for whom or by whom is none: it changes nothing.
alter function gate.approve_label_change(uuid, text, text, text, text, text[]) strict;
alter function gate.reject_label_change(uuid, text, text, text) strict;
alter function gate.approve_override(uuid, text, text, text, text, text[]) strict;
alter function gate.close_override(uuid, text, text, text, text) strict;
