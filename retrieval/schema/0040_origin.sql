-- Whose an object is: the source that brought it, and that alone may change it afterwards.
--
-- Laws
--   `origin` is written once, when ingest inserts the object; another source's record changes,
--   removes, relabels and links nothing of it. What a unit or a thread has (revisions, vectors,
--   postings, memberships, labels, artifacts) is its own; an edge belongs to where it starts.
--   A membership needs a unit and a thread of one origin: a thread fills its units' blanks, and a
--   consent for a thread opens them.
--   Ingest says for whom it works in gw.origin. Nothing said is nobody, and nobody may write.
--   What was stored before this file is 'unclaimed' (no column tells reliably who brought it).
--   That is no source's name; a source takes such an object only under gw.adopt, object by object.
--   The owner and its functions (classes, partials) and reviewers under it are not bound.

alter table brain.unit add column origin text not null default 'unclaimed'
    check (origin ~ '^[a-z0-9][a-z0-9._-]{0,63}$');
alter table brain.thread add column origin text not null default 'unclaimed'
    check (origin ~ '^[a-z0-9][a-z0-9._-]{0,63}$');
alter table brain.label add column origin text not null default 'unclaimed'
    check (origin ~ '^[a-z0-9][a-z0-9._-]{0,63}$');
alter table brain.expected_artifact add column origin text not null default 'unclaimed'
    check (origin ~ '^[a-z0-9][a-z0-9._-]{0,63}$');

-- The source for which the session works. Raises when it is none.
create function brain.source_at_work() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    named text := nullif(current_setting('gw.origin', true), '');
begin
    if named is null or named = 'unclaimed' then
        raise exception 'no source is at work' using errcode = 'insufficient_privilege',
            hint = 'set gw.origin to the name of the source';
    end if;
    return named;
end $$;

-- Objects. Runs with the rights of whoever writes: that is how the owner's functions are told
-- from ingest.
create function brain.keep_origin() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    named text;
begin
    if pg_has_role(current_user, 'gw_owner', 'usage') then
        return new;
    end if;
    named := brain.source_at_work();
    if tg_op = 'INSERT' then
        if new.origin = 'unclaimed' then
            new.origin := named;
        end if;
    elsif old.origin <> named
        and (old.origin <> 'unclaimed' or current_setting('gw.adopt', true) is distinct from 'on')
    then
        raise exception '% belongs to another source', tg_table_name
            using errcode = 'insufficient_privilege';
    end if;
    if new.origin <> named then
        raise exception '% would belong to another source', tg_table_name
            using errcode = 'insufficient_privilege';
    end if;
    return new;
end $$;

create trigger keep_origin before insert or update on brain.unit
    for each row execute function brain.keep_origin();
create trigger keep_origin before insert or update on brain.thread
    for each row execute function brain.keep_origin();
create trigger keep_origin before insert or update on brain.label
    for each row execute function brain.keep_origin();
create trigger keep_origin before insert or update on brain.expected_artifact
    for each row execute function brain.keep_origin();

-- What belongs to an object or joins two. `old` is null on insert and `new` on delete. The plan is
-- kept for the session, and the first one is made while the tables may be empty: without the
-- setting each of 50,000 rows would read all of them (ingest of the PEP corpus: 24 s for 12).
create function brain.keep_to_origin() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    named text;
    units uuid[] := '{}';
    threads uuid[] := '{}';
    labels uuid[] := '{}';
begin
    if pg_has_role(current_user, 'gw_owner', 'usage')
        or (tg_table_name = 'embedding' and current_user = 'gw_index') then
        if tg_op = 'DELETE' then
            return old;
        end if;
        return new;
    end if;
    named := brain.source_at_work();
    case tg_table_name
        when 'unit_revision', 'embedding' then
            units := array[old.unit_id, new.unit_id];
        when 'edge' then
            units := array[old.src, new.src];
        when 'thread_term', 'expected_artifact' then
            threads := array[old.thread_id, new.thread_id];
        when 'thread_membership' then
            units := array[old.unit_id, new.unit_id];
            threads := array[old.thread_id, new.thread_id];
        when 'unit_label' then
            labels := array[old.label_id, new.label_id];
            units := array[old.unit_id, new.unit_id];
        when 'thread_label' then
            labels := array[old.label_id, new.label_id];
            threads := array[old.thread_id, new.thread_id];
    end case;
    if exists (select from brain.unit u where u.id = any (units) and u.origin <> named)
        or exists (select from brain.thread t where t.id = any (threads) and t.origin <> named)
        or exists (select from brain.label l where l.id = any (labels) and l.origin <> named) then
        raise exception '% would touch what belongs to another source', tg_table_name
            using errcode = 'insufficient_privilege';
    end if;
    if tg_op = 'DELETE' then
        return old;
    end if;
    return new;
end $$;

create trigger keep_to_origin before insert or update or delete on brain.unit_revision
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.embedding
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.edge
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.thread_term
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.expected_artifact
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.thread_membership
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.unit_label
    for each row execute function brain.keep_to_origin();
create trigger keep_to_origin before insert or update or delete on brain.thread_label
    for each row execute function brain.keep_to_origin();

revoke execute on function brain.keep_origin(), brain.keep_to_origin(), brain.source_at_work()
    from public;
grant execute on function brain.source_at_work() to gw_ingest;
