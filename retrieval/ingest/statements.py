"""The statements of ingest. Rows go in as one JSON array, so that a batch is one statement.

Laws
    * Content and labels are separate statements: an update of content never touches a facet
      or a compartment. (The first insert of an object must say both.)
    * No statement writes a class: the database's triggers do.
    * Order of locks: units and threads by id, as the triggers take them.
    * No insert names an origin: the database's triggers write the one of the session.
"""

from __future__ import annotations

from typing import Final

from policies.vocabulary import FACETS
from retrieval.ingest.report import Sort

_WORDS: Final = ", ".join(FACETS)
_WORDS_TYPED: Final = ", ".join(f"{facet} text" for facet in FACETS)
_COMPARTMENTS: Final = "tenant, jurisdiction"


def _label_update(table: str, *, staged: bool) -> str:
    """What the source says now, where it is not what it said before.

    Returns ids with whether anything that readers can notice became of it. The database may keep
    the label as it was and this one as a wish (0060); `wish = null` says that it is stated anew.
    """
    label = [*FACETS, "tenant", "jurisdiction"]
    columns = [*label, *(("lifecycle_stage",) if staged else ())]
    typed = ", ".join(f"{column} text" for column in columns)
    stage = "or o.lifecycle_stage <> r.lifecycle_stage" if staged else ""
    return f"""
        update {table} o set {", ".join(f"{column} = r.{column}" for column in columns)},
            wish = null
        from jsonb_to_recordset(%s) r (id uuid, {typed})
        where o.id = r.id and (
            coalesce(o.wish, array[{", ".join(f"o.{column}" for column in label)}])
                is distinct from array[{", ".join(f"r.{column}" for column in label)}]
            {stage}
            or (o.wish is not null and (select brain.trusted_at_work())))
        returning o.id, o.wish is null or o.class_id = -1"""


# --- ownership ----------------------------------------------------------------------------

AT_WORK: Final = """
    select set_config('gw.origin', %(origin)s, false), set_config('gw.adopt', %(adopt)s, false),
        set_config('gw.author', %(author)s, false), set_config('gw.mapping', %(mapping)s, false),
        set_config('gw.mapping_sha256', %(fingerprint)s, false),
        set_config('gw.reason', %(reason)s, false)"""

LABELS_HELD: Final = "select id, origin from brain.label where id = any (%s)"
ARTIFACTS_HELD: Final = "select id, origin from brain.expected_artifact where id = any (%s)"

ADOPTED: Final = {
    Sort.UNIT: "update brain.unit set origin = %s where id = any (%s) and origin = %s",
    Sort.THREAD: "update brain.thread set origin = %s where id = any (%s) and origin = %s",
    Sort.LABEL: "update brain.label set origin = %s where id = any (%s) and origin = %s",
    Sort.ARTIFACT: "update brain.expected_artifact set origin = %s"
    " where id = any (%s) and origin = %s",
}

# --- units --------------------------------------------------------------------------------

UNITS_HELD: Final = """
    select id, origin, content_hash, current_revision, deleted_at is not null
    from brain.unit where id = any (%s) order by id for no key update"""

UNITS_NEW: Final = f"""
    insert into brain.unit (id, canonical_address, title, {_WORDS}, {_COMPARTMENTS},
        lifecycle_stage, language, source, current_revision, content_hash, active_at)
    select id, address, title, {_WORDS}, {_COMPARTMENTS}, lifecycle_stage, language, source, 1,
        content_hash, coalesce(active_at, now())
    from jsonb_to_recordset(%s) r (id uuid, address text, title text, {_WORDS_TYPED},
        tenant text, jurisdiction text, lifecycle_stage text, language text, source text,
        content_hash text, active_at timestamptz)
    order by id"""

REVISIONS_NEW: Final = """
    insert into brain.unit_revision
        (unit_id, revision, title, body, body_sha256, lexical_terms, lexical_weights)
    select id, revision, title, body, body_sha256, terms, weights
    from jsonb_to_recordset(%s) r (id uuid, revision integer, title text, body text,
        body_sha256 text, terms integer[], weights real[])
    order by id"""

UNITS_CONTENT: Final = """
    update brain.unit u set title = r.title, language = r.language, source = r.source,
        current_revision = r.revision, content_hash = r.content_hash, updated_at = now(),
        active_at = coalesce(r.active_at, now()), deleted_at = null
    from jsonb_to_recordset(%s) r (id uuid, revision integer, title text, language text,
        source text, content_hash text, active_at timestamptz)
    where u.id = r.id"""

UNITS_LABEL: Final = _label_update("brain.unit", staged=True)

UNITS_WITHOUT_VECTOR: Final = """
    select u.id, u.current_revision from brain.unit u
    where u.id = any (%s) and not exists (
        select from brain.embedding e
        where e.unit_id = u.id and e.revision = u.current_revision and e.model = %s)
    order by u.id"""

VECTORS_NEW: Final = """
    insert into brain.embedding (unit_id, revision, model, vector)
    select unit_id, revision, %s, vector
    from unnest(%s::uuid[], %s::integer[], %s::bytea[]) r (unit_id, revision, vector)
    on conflict do nothing"""

UNITS_BURIED: Final = """
    update brain.unit set deleted_at = now() where id = any (%s) and deleted_at is null
    returning id"""

# --- threads ------------------------------------------------------------------------------

THREADS_HELD: Final = """
    select id, origin, content_hash, deleted_at is not null
    from brain.thread where id = any (%s) order by id for no key update"""

THREADS_NEW: Final = f"""
    insert into brain.thread (id, canonical_address, title, aliases, description, purpose,
        status, content_hash, {_WORDS}, {_COMPARTMENTS})
    select id, address, title, aliases, description, purpose, status, content_hash, {_WORDS},
        {_COMPARTMENTS}
    from jsonb_to_recordset(%s) r (id uuid, address text, title text, aliases text[],
        description text, purpose text, status text, content_hash text, {_WORDS_TYPED},
        tenant text, jurisdiction text)
    order by id"""

THREADS_CONTENT: Final = """
    update brain.thread t set title = r.title, aliases = r.aliases, description = r.description,
        purpose = r.purpose, status = r.status, content_hash = r.content_hash,
        updated_at = now(), deleted_at = null
    from jsonb_to_recordset(%s) r (id uuid, title text, aliases text[], description text,
        purpose text, status text, content_hash text)
    where t.id = r.id"""

THREADS_LABEL: Final = _label_update("brain.thread", staged=False)

POSTINGS_GONE: Final = "delete from brain.thread_term where thread_id = any (%s)"

POSTINGS_NEW: Final = """
    insert into brain.thread_term (term, thread_id, weight)
    select t.term, r.id, t.weight
    from jsonb_to_recordset(%s) r (id uuid, terms integer[], weights real[])
    cross join unnest(r.terms, r.weights) t (term, weight)
    order by r.id, t.term"""

# --- labels and artifacts -----------------------------------------------------------------

LABELS_NEW: Final = f"""
    insert into brain.label (id, term, version, aliases, {_WORDS}, {_COMPARTMENTS})
    select id, term, version, aliases, {_WORDS}, {_COMPARTMENTS}
    from jsonb_to_recordset(%s) r (id uuid, term text, version integer, aliases text[],
        {_WORDS_TYPED}, tenant text, jurisdiction text)
    on conflict do nothing returning id"""

LABELS_CONTENT: Final = """
    update brain.label o set aliases = r.aliases, deleted_at = null
    from jsonb_to_recordset(%s) r (id uuid, aliases text[])
    where o.id = r.id and (o.aliases <> r.aliases or o.deleted_at is not null)
    returning o.id"""

LABELS_LABEL: Final = _label_update("brain.label", staged=False)

ARTIFACTS_NEW: Final = f"""
    insert into brain.expected_artifact
        (id, thread_id, title, lifecycle_stage, {_WORDS}, {_COMPARTMENTS})
    select id, thread_id, title, lifecycle_stage, {_WORDS}, {_COMPARTMENTS}
    from jsonb_to_recordset(%s) r (id uuid, thread_id uuid, title text, lifecycle_stage text,
        {_WORDS_TYPED}, tenant text, jurisdiction text)
    on conflict do nothing returning id"""

ARTIFACTS_CONTENT: Final = """
    update brain.expected_artifact o set deleted_at = null
    from jsonb_to_recordset(%s) r (id uuid) where o.id = r.id and o.deleted_at is not null
    returning o.id"""

ARTIFACTS_LABEL: Final = _label_update("brain.expected_artifact", staged=False)

# --- links --------------------------------------------------------------------------------

UNITS_THERE: Final = """
    select id, origin from brain.unit where id = any (%s) and deleted_at is null"""
THREADS_THERE: Final = """
    select id, origin from brain.thread where id = any (%s) and deleted_at is null"""


def memberships(*, judged: bool) -> str:
    """Write links. A reviewer's ``status`` stays unless the source judges the link itself."""
    status = ", status = excluded.status" if judged else ""
    compared = ", m.status" if judged else ""
    given = ", excluded.status" if judged else ""
    return f"""
        insert into brain.thread_membership as m
            (thread_id, unit_id, role, confidence, status, added_by)
        select thread_id, unit_id, role, confidence, coalesce(status, 'active'), added_by
        from jsonb_to_recordset(%s) r (thread_id uuid, unit_id uuid, role text,
            confidence real, status text, added_by text)
        order by thread_id, unit_id
        on conflict (thread_id, unit_id) do update
            set role = excluded.role, confidence = excluded.confidence{status}
            where (m.role, m.confidence{compared})
                is distinct from (excluded.role, excluded.confidence{given})
        returning xmax = 0"""


ABSORBED: Final = """
    select r.thread_id, m.unit_id
    from jsonb_to_recordset(%s) r (thread_id uuid, absorbed uuid)
    join brain.thread_membership m on m.thread_id = r.absorbed and m.role = 'canonical'
    join brain.unit u on u.id = m.unit_id
    where r.thread_id <> r.absorbed and u.origin = %s"""

ABSORBED_GONE: Final = """
    delete from brain.thread_membership m using brain.unit u
    where m.added_by = %s and m.thread_id = any (%s) and u.id = m.unit_id and u.origin = %s
      and not exists (
        select from unnest(%s::uuid[], %s::uuid[]) k (thread_id, unit_id)
        where k.thread_id = m.thread_id and k.unit_id = m.unit_id)"""

EDGES: Final = """
    insert into brain.edge as e (id, src, dst, relation, confidence, source_revision)
    select r.id, r.src, r.dst, r.relation, r.confidence, u.current_revision
    from jsonb_to_recordset(%s) r (id uuid, src uuid, dst uuid, relation text, confidence real)
    join brain.unit u on u.id = r.src
    order by r.id
    on conflict (src, dst, relation) do update set confidence = excluded.confidence
        where e.confidence is distinct from excluded.confidence
    returning xmax = 0"""

UNIT_LABELS: Final = """
    insert into brain.unit_label (label_id, unit_id)
    select * from unnest(%s::uuid[], %s::uuid[]) order by 1, 2 on conflict do nothing"""
THREAD_LABELS: Final = """
    insert into brain.thread_label (label_id, thread_id)
    select * from unnest(%s::uuid[], %s::uuid[]) order by 1, 2 on conflict do nothing"""

# --- quarantine and checkpoint ------------------------------------------------------------

QUARANTINE_NEW: Final = """
    insert into brain.quarantine (sort, object_id, address, source, facet, value, reason)
    select sort, object_id, address, source, facet, value, reason
    from jsonb_to_recordset(%s) r (sort text, object_id uuid, address text, source text,
        facet text, value text, reason text)
    on conflict (sort, address, facet, value, reason) where resolved_at is null do nothing"""

# The database's own reasons open and close by trigger; only those of ingest are closed here.
QUARANTINE_CLOSED: Final = """
    update brain.quarantine q set resolved_at = now()
    where q.resolved_at is null and q.sort = %s and q.object_id = any (%s)
      and q.reason <> all (array['unknown_word', 'retired_word', 'blank', 'contradiction',
                                 'awaiting_approval'])
      and not exists (
          select from jsonb_to_recordset(%s) r (address text, facet text, value text, reason text)
          where r.address = q.address and r.facet = q.facet and r.value = q.value
            and r.reason = q.reason)"""

RECORDS_CLOSED: Final = """
    update brain.quarantine q set resolved_at = now()
    where q.resolved_at is null and q.sort = 'record' and q.source = %s
      and (%s::text[] is null or q.address = any (%s::text[]))
      and not exists (
          select from jsonb_to_recordset(%s) r (address text, facet text, value text, reason text)
          where r.address = q.address and r.facet = q.facet and r.value = q.value
            and r.reason = q.reason)"""

# Only of the source's own objects: a value is a word of the other's label.
UNCLASSED: Final = """
    with own as (
        select id from brain.unit where id = any (%(ids)s) and origin = %(origin)s
        union all
        select id from brain.thread where id = any (%(ids)s) and origin = %(origin)s
        union all
        select id from brain.label where id = any (%(ids)s) and origin = %(origin)s)
    select q.sort, q.object_id, q.address, q.facet, q.value, q.reason
    from own join brain.quarantine q on q.object_id = own.id
    where q.resolved_at is null
      and q.reason = any (array['unknown_word', 'retired_word', 'blank', 'contradiction'])
    order by q.sort, q.address, q.facet, q.value"""

# What the source wishes and is not in effect, pending ones first.
WAITING: Final = """
    select c.sort, coalesce(u.canonical_address, t.canonical_address, l.term, a.title, ''),
        c.state = 'rejected', c.closed, c.gained
    from gate.label_change c
    left join brain.unit u on u.id = c.object_id
    left join brain.thread t on t.id = c.object_id
    left join brain.label l on l.id = c.object_id
    left join brain.expected_artifact a on a.id = c.object_id
    where c.origin = %s and c.state in ('pending', 'rejected')
    order by c.state, 1, 2"""

# --- a knowledge base in another database ---------------------------------------------------

MARKS: Final = "select view, revision from brain.ingest_mark where place = %s"
MARK_KEPT: Final = """
    insert into brain.ingest_mark (origin, place, view, revision) values (%s, %s, %s, %s)
    on conflict (origin, place, view) do update set revision = excluded.revision, read_at = now()"""

UNITS_GONE: Final = """
    update brain.unit o set deleted_at = now() where o.origin = %s and o.deleted_at is null
      and not exists (select from unnest(%s::uuid[]) k (id) where k.id = o.id)"""
THREADS_GONE: Final = """
    update brain.thread o set deleted_at = now() where o.origin = %s and o.deleted_at is null
      and not exists (select from unnest(%s::uuid[]) k (id) where k.id = o.id)"""
LABELS_GONE: Final = """
    update brain.label o set deleted_at = now() where o.origin = %s and o.deleted_at is null
      and not exists (select from unnest(%s::text[], %s::integer[]) k (term, version)
                      where k.term = o.term and k.version = o.version)"""
EDGES_GONE: Final = """
    delete from brain.edge e using brain.unit u
    where u.id = e.src and u.origin = %s and not exists (
        select from unnest(%s::uuid[], %s::text[], %s::uuid[]) k (src, relation, dst)
        where k.src = e.src and k.relation = e.relation and k.dst = e.dst)"""
MEMBERSHIPS_GONE: Final = """
    delete from brain.thread_membership m using brain.thread t
    where t.id = m.thread_id and t.origin = %s and m.added_by = %s and not exists (
        select from unnest(%s::uuid[], %s::uuid[]) k (thread_id, unit_id)
        where k.thread_id = m.thread_id and k.unit_id = m.unit_id)"""

LOCK: Final = "select pg_try_advisory_lock(%s)"
UNLOCK: Final = "select pg_advisory_unlock(%s)"
CHECKPOINT: Final = "select records_done, report from brain.ingest_checkpoint where run_key = %s"
CHECKPOINT_KEPT: Final = """
    insert into brain.ingest_checkpoint (run_key, records_done, report) values (%s, %s, %s)
    on conflict (run_key) do update set records_done = excluded.records_done,
        report = excluded.report, updated_at = now()"""
CHECKPOINT_GONE: Final = "delete from brain.ingest_checkpoint where run_key = %s"
