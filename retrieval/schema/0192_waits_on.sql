-- A label change that waits, or was rejected, does so until somebody decides, or its source says
-- something else. Before this it took effect, without anybody, by the first write under a policy that
-- opens it to nobody; the next policy may open it again, and asks no approver.

-- As in 0161, and: while nobody gains, what is still wished is still wished.
create or replace function brain.class_from_label() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    sort constant text := tg_argv[0];
    bound constant boolean := brain.is_bound();
    said text[] := array[new.visibility, new.readiness, new.publication_state, new.risk_class,
                         new.authority, new.kind, new.tenant, new.jurisdiction];
    held text[];       -- the label in effect, as it was before this statement
    said_class smallint;
    base record;       -- what was in effect when the transaction began
    restated boolean;
    free boolean;
    trusted boolean := false;
    change gate.label_change;
    overriding gate.label_override; -- what loosens the class that results
begin
    if tg_op = 'INSERT' then
        new.class_id := gate.class_of(said[1], said[2], said[3], said[4], said[5], said[6]);
        new.wish := null;
        new.wish_class := null;
        new.base_at := null;
        new.labelled_at := case when new.class_id >= 0 then now() end;
        if sort = 'unit' then
            new.override_id := null;
            new.override_until := null;
        end if;
        if bound then
            new.mapping := coalesce(current_setting('gw.mapping', true), '');
        end if;
        return new;
    end if;

    held := array[old.visibility, old.readiness, old.publication_state, old.risk_class,
                  old.authority, old.kind, old.tenant, old.jurisdiction];
    restated := said is distinct from held or new.wish is distinct from old.wish;
    if old.wish is not null and new.wish is not distinct from old.wish
        and (bound or not restated) then
        -- a part of the label is said anew, or nothing; the rest is still wished
        said := array(
            select case when o.word is distinct from h.word then o.word else w.word end
            from unnest(said) with ordinality o (word, place)
            join unnest(held) with ordinality h (word, place) using (place)
            join unnest(old.wish) with ordinality w (word, place) using (place)
            order by place);
    end if;
    if sort = 'unit' and (array_position(said[1:5], null) is not null
                          or array_position(held[1:5], null) is not null) then
        perform from brain.thread t
            where t.id in (select m.thread_id from brain.thread_membership m
                           where m.unit_id = new.id)
            order by t.id for share;
    end if;
    said_class := brain.class_of_label(sort, new.id, said);
    if old.base_at = now() then
        select old.base_class as class, old.base_tenant as tenant,
               old.base_jurisdiction as jurisdiction into base;
    else
        select old.class_id as class, old.tenant as tenant, old.jurisdiction as jurisdiction
            into base;
    end if;
    if sort = 'unit' then
        overriding := brain.override_of(new.id, said);
        if old.override_id is not null and overriding.id is null then
            -- what is measured is what would be in effect without it
            select o.from_class as class, held[7] as tenant, held[8] as jurisdiction into base
            from gate.label_override o where o.id = old.override_id;
        end if;
    end if;
    -- bookkeeping is nobody's to write
    new.labelled_at := old.labelled_at;
    new.base_at := old.base_at;
    new.base_class := old.base_class;
    new.base_tenant := old.base_tenant;
    new.base_jurisdiction := old.base_jurisdiction;
    if bound then
        new.mapping := old.mapping;
    end if;

    free := old.labelled_at is null or old.labelled_at = now()
        or (not bound and (restated or old.wish is null));
    if free or (said_class, said[7], said[8]) = (base.class, base.tenant, base.jurisdiction) then
        change.gained := '{}';
    else
        change.gained := gate.gains(base.class, base.tenant, base.jurisdiction,
                                    said_class, said[7], said[8]);
    end if;
    if change.gained <> '{}' then
        trusted := bound and old.mapping = current_setting('gw.mapping', true)
            and brain.trusted_at_work();
        free := trusted or exists (
            select from gate.label_change c
            where c.object_id = new.id and c.state = 'approved' and c.decided_at = now()
              and c.to_label = said and c.to_class = said_class);
    else
        -- a wish that waits is not decided by a policy that opens it to nobody today
        free := free or old.wish is null
            or (said, said_class) is distinct from (old.wish, old.wish_class)
            or (said_class, said[7], said[8]) = (base.class, base.tenant, base.jurisdiction)
            or bound and old.mapping = current_setting('gw.mapping', true)
                and brain.trusted_at_work()
            or exists (
                select from gate.label_change c
                where c.object_id = new.id and c.state = 'approved' and c.decided_at = now()
                  and c.to_label = said and c.to_class = said_class);
    end if;

    if free then
        new.class_id := said_class;
        new.wish := null;
        new.wish_class := null;
        if old.wish is not null then
            perform brain.supersede_wish(new.id);
        end if;
    else
        new.wish := said;
        new.wish_class := said_class;
        -- what is in effect may have narrowed meanwhile, through a thread or a retired word
        new.class_id := brain.class_of_label(sort, new.id, held);
        if gate.gains(base.class, base.tenant, base.jurisdiction,
                      new.class_id, held[7], held[8]) <> '{}' then
            new.class_id := case
                when gate.gains(new.class_id, held[7], held[8],
                                base.class, base.tenant, base.jurisdiction) = '{}' then base.class
                else -1 end;
        end if;
        if gate.gains(said_class, said[7], said[8],
                      new.class_id, held[7], held[8]) <> '{}' then
            new.class_id := -1; -- what is wished is closed to somebody who reads it now
        end if;
        said := held;
    end if;
    if sort = 'unit' then
        overriding := brain.override_of(new.id, said);
        if overriding.to_class is distinct from new.class_id then
            overriding := null;
        end if;
        new.override_id := overriding.id;
        new.override_until := overriding.expires_at;
        if old.override_id is distinct from new.override_id then
            update gate.label_override o set state = 'ended', ended_at = now()
            where o.id = old.override_id and o.state = 'approved';
        end if;
    end if;
    new.visibility := said[1];
    new.readiness := said[2];
    new.publication_state := said[3];
    new.risk_class := said[4];
    new.authority := said[5];
    new.kind := said[6];
    new.tenant := said[7];
    new.jurisdiction := said[8];

    if trusted or (new.wish, new.wish_class, new.class_id)
        is distinct from (old.wish, old.wish_class, old.class_id) and not free then
        change.sort := sort;
        change.object_id := new.id;
        change.origin := new.origin;
        change.mapping := new.mapping;
        change.from_label := held;
        change.from_class := base.class;
        change.to_label := case when free then said else new.wish end;
        change.to_class := said_class;
        change.closed := not free and new.class_id = -1;
        change.state := case when trusted then 'approved' else 'pending' end;
        change.decided_at := case when trusted then now() end;
        change.approver := case when trusted then 'mapping:' || new.mapping end;
        change.reason := case when trusted then 'the policy trusts this mapping' end;
        perform brain.note_wish(change);
    end if;
    if new.base_at is distinct from now()
        and (new.class_id, new.tenant, new.jurisdiction)
            is distinct from (old.class_id, old.tenant, old.jurisdiction) then
        new.base_at := now();
        new.base_class := base.class;
        new.base_tenant := base.tenant;
        new.base_jurisdiction := base.jurisdiction;
    end if;
    if old.labelled_at is null or old.labelled_at = now() then
        new.labelled_at := case when new.class_id >= 0 then now() end;
    end if;
    return new;
end $$;
