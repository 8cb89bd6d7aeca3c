"""The reader's SQL, assembled once from constants and the emitted predicate.

Laws
    * Every statement carries the bound predicate of the caller's scope beside what row-level
      security does on its own: two layers that share no code path. Where a unit is asked for
      by name or by its thread, the predicate marks the row instead of leaving it out, so that
      a lost row-level security is noticed there.
    * Values are bound. The text of a statement is the same for every caller.
    * Nothing orders by what a hidden row could change; ids break every tie.

Parameters ``scope_*`` come from ``policies.emit.postgres``.
"""

from __future__ import annotations

from typing import Final

from policies.decision import Grant, PolicyDigest, Scope
from policies.emit.postgres import predicate

# Only the text of a predicate is used here, and that does not depend on the scope.
_NOBODY: Final = Scope(
    grant=Grant(digest=PolicyDigest(""), profiles=("nobody",), plain=(), consented=()),
    tenants=(),
    jurisdictions=(),
    consented_units=(),
)


def _bound(alias: str) -> str:
    return predicate(_NOBODY, alias).sql


def _counted(alias: str) -> str:
    """The predicate of a partial: it stands for many units, so no consent opens it."""
    return (
        f"({alias}.tenant = any(%(scope_tenants)s::text[])"
        f" and {alias}.jurisdiction = any(%(scope_jurisdictions)s::text[])"
        f" and {alias}.class_id = any(%(scope_plain)s::smallint[]))"
    )


def _counted_hashed(alias: str) -> str:
    """As `_counted`, but the list is looked up in a hash and not walked: for statements that judge
    many rows. `case` keeps the planner from making a join of it."""
    return (
        f"({alias}.tenant = any(%(scope_tenants)s::text[])"
        f" and {alias}.jurisdiction = any(%(scope_jurisdictions)s::text[])"
        f" and case when {alias}.class_id in (select unnest(%(scope_plain)s::smallint[]))"
        " then true else false end)"
    )


# Units that a consent alone opens, for sums: the partials do not hold them.
_BY_CONSENT: Final = (
    f"u.id = any(%(scope_units)s::uuid[]) and {_bound('u')}"
    " and not u.class_id = any(%(scope_plain)s::smallint[])"
)

_FACETS: Final = "c.visibility, c.readiness, c.publication_state, c.risk_class, c.authority, c.kind"

# Content is withheld by the predicate, the row is not: a row that row-level security let
# through and the predicate refuses is thereby seen, and reported, without its content.
# `offset 0`: judged once a row and not once a column, for a list of a thousand classes is
# walked each time.
_ASKED: Final = f"""
(select u.*, {_bound("u")} as permitted
 from brain.unit u where u.id = any(%(ids)s::uuid[]) offset 0) u
join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
"""

HYDRATE: Final = f"""
select u.id, u.class_id, u.tenant, u.jurisdiction, u.permitted, {_FACETS},
       u.current_revision, u.lifecycle_stage, u.language, u.source, u.active_at,
       case when u.permitted then u.canonical_address end,
       case when u.permitted then r.title end,
       case when u.permitted then r.body end
from {_ASKED}
left join gate.unit_class c on c.class_id = u.class_id
"""

# The same verdict, over what a unit is scored by.
JUDGE: Final = f"""
select u.id, u.class_id, u.tenant, u.jurisdiction, u.permitted,
       case when u.permitted then e.vector end,
       case when u.permitted then r.lexical_terms end,
       case when u.permitted then r.lexical_weights end
from {_ASKED}
left join brain.embedding e
  on e.unit_id = u.id and e.revision = u.current_revision and e.model = %(model)s
"""

# Only an id, for `HYDRATE` to judge.
UNIT_BY_ADDRESS: Final = "select u.id from brain.unit u where u.canonical_address = %(address)s"

# Ids alone, for a reader that asks what of a change it may see: three layers as everywhere.
OF_CLASSES: Final = f"""
select u.id, u.class_id, u.tenant, u.jurisdiction
from brain.unit u
where u.class_id = any(%(classes)s::smallint[]) and {_bound("u")}
order by u.id
limit %(limit)s
"""

# Which revision is the latest; as in `HYDRATE` a row that the predicate refuses is seen as such.
CURRENT: Final = f"""
select u.id, u.class_id, u.tenant, u.jurisdiction, {_bound("u")} as permitted, u.current_revision
from brain.unit u
where u.id = any(%(ids)s::uuid[])
"""

_LISTED: Final = f"""
u.canonical_address collate "C" > %(address)s and {_bound("u")}
and (%(stage)s::text is null or u.lifecycle_stage = %(stage)s)
and (%(label)s::text is null or exists (
    select from brain.unit_label ul
    join brain.label l on l.id = ul.label_id
    where ul.unit_id = u.id and l.term = %(label)s and {_bound("l")}))
"""

# Ids alone, for `HYDRATE` to judge. Class by class: a page costs the same, however many units of
# other classes lie between its own. Collation "C": its order is the same everywhere.
AFTER: Final = f"""
select u.id
from (
    select u.id, u.canonical_address
    from unnest(%(scope_plain)s::smallint[]) k (class_id)
    join gate.unit_class c on c.class_id = k.class_id
    cross join lateral (
        select u.id, u.canonical_address
        from brain.unit u
        where u.class_id = k.class_id and {_LISTED}
        order by u.canonical_address collate "C"
        limit %(limit)s) u
    where %(kind)s::text is null or c.kind = %(kind)s
    union
    select u.id, u.canonical_address
    from brain.unit u
    join gate.unit_class c on c.class_id = u.class_id
    where u.id = any(%(scope_units)s::uuid[]) and {_LISTED}
      and (%(kind)s::text is null or c.kind = %(kind)s)
) u
order by u.canonical_address collate "C"
limit %(limit)s
"""

# Row-level security shows a subject its own deliveries; said once more, so that it is not alone.
DELIVERIES: Final = """
select d.pack_id, d.query_id, d.audience, d.profile, d.mode, d.query_hmac, d.thread_id,
       d.delivered_at,
       d.unit_ids, d.addresses, d.revisions, d.suspect_ids, d.gap_ids
from brain.pack_delivery d
where d.pack_id = any(%(ids)s::uuid[]) and d.subject_id = %(subject)s
order by d.pack_id
"""

REFUSED: Final = "select unit_id, class_id, pending_seconds from brain.refused_units(%(ids)s)"

_THREAD: Final = f"""
t.id, t.class_id, t.tenant, t.jurisdiction, {_FACETS}, t.canonical_address, t.title, t.aliases,
t.description, t.purpose, t.status
"""

THREAD_BY_REFERENCE: Final = f"""
select {_THREAD}
from brain.thread t
join gate.unit_class c on c.class_id = t.class_id
where (t.id = %(id)s::uuid or t.canonical_address = %(address)s) and {_bound("t")}
order by t.id = %(id)s::uuid desc, t.id
limit 1
"""

THREADS_FOR_TERMS: Final = f"""
select {_THREAD}, p.terms, p.weights
from (select thread_id, array_agg(term) as terms, array_agg(weight) as weights
      from brain.thread_term where term = any(%(terms)s::integer[]) group by thread_id) p
join brain.thread t on t.id = p.thread_id
join gate.unit_class c on c.class_id = t.class_id
where t.status = 'active' and {_bound("t")}
order by t.id
"""

THREAD_FREQUENCIES: Final = f"""
select null::integer, count(*) from brain.thread t where t.status = 'active' and {_bound("t")}
union all
select p.term, count(*)
from brain.thread_term p
join brain.thread t on t.id = p.thread_id
where p.term = any(%(terms)s::integer[]) and t.status = 'active' and {_bound("t")}
group by p.term
"""

MEMBERS: Final = f"""
select u.class_id, u.tenant, u.jurisdiction, {_bound("u")} as permitted,
       m.thread_id, m.unit_id, m.role, m.confidence, m.status,
       floor(extract(epoch from now() - m.judged_at) / 86400)::integer
from brain.thread_membership m
join brain.thread t on t.id = m.thread_id
join brain.unit u on u.id = m.unit_id
where m.thread_id = any(%(ids)s::uuid[]) and {_bound("t")}
order by m.thread_id, m.unit_id
"""

EDGES: Final = f"""
select e.id, e.src, e.dst, e.relation, e.confidence
from (select * from brain.edge where src = any(%(ids)s::uuid[])
      union
      select * from brain.edge where dst = any(%(ids)s::uuid[])) e
join brain.unit s on s.id = e.src
join brain.unit d on d.id = e.dst
where {_bound("s")} and {_bound("d")}
order by e.id
"""

ARTIFACTS: Final = f"""
select a.id, a.thread_id, a.title, a.lifecycle_stage, c.kind, a.class_id, a.tenant, a.jurisdiction
from brain.expected_artifact a
join brain.thread t on t.id = a.thread_id
join gate.unit_class c on c.class_id = a.class_id
where a.thread_id = any(%(ids)s::uuid[]) and {_bound("a")} and {_bound("t")}
order by a.thread_id, a.lifecycle_stage, a.title, a.id
"""

PARTIALS: Final = f"""
select p.thread_id, p.class_id, c.kind, c.authority, p.unit_count, p.stage_bits,
       p.last_activity, p.health
from brain.thread_partial p
join brain.thread t on t.id = p.thread_id
join gate.unit_class c on c.class_id = p.class_id
where p.thread_id = any(%(ids)s::uuid[]) and {_counted("p")} and {_bound("t")}
order by p.thread_id, p.class_id, p.tenant, p.jurisdiction
"""

THREADS: Final = f"""
select {_THREAD}
from brain.thread t
join gate.unit_class c on c.class_id = t.class_id
where t.id = any(%(ids)s::uuid[]) and t.status = 'active' and {_bound("t")}
order by t.id
"""

# A phrase is named when each of its words is; a label by any of its phrases.
LABELLED: Final = f"""
select t.id, p.terms
from (select label_id, array_agg(distinct term) as terms
      from brain.label_term where term = any(%(terms)s::integer[])
      group by label_id, phrase, words having count(distinct position) = words) p
join brain.label l on l.id = p.label_id
join brain.thread_label n on n.label_id = l.id
join brain.thread t on t.id = n.thread_id
where t.status = 'active' and {_bound("l")} and {_bound("t")}
order by t.id, l.id
"""

ANCHORED: Final = f"""
select m.thread_id, u.id, u.class_id, u.tenant, u.jurisdiction
from brain.unit u
join brain.thread_membership m on m.unit_id = u.id
join brain.thread t on t.id = m.thread_id
where u.canonical_address = any(%(addresses)s::text[]) and m.role = 'canonical'
  and m.status <> 'wrong_link' and t.status = 'active' and {_bound("u")} and {_bound("t")}
order by m.thread_id, u.id
"""


def _centroid_parts(among: str) -> str:
    """From the threads on: those of other classes are not looked at. In two halves, so that a list
    of a thousand classes is looked up in the index and not walked again for every thread."""
    return f"""
from (select t.id from brain.thread t where t.status = 'active' {among} and {_counted("t")}
      union all
      select t.id from brain.thread t
      where t.id = any(%(scope_units)s::uuid[]) and t.status = 'active' {among} and {_bound("t")}
        and not t.class_id = any(%(scope_plain)s::smallint[])) t
join brain.thread_partial p on p.thread_id = t.id
where {_counted_hashed("p")}
"""


_PART_KEY: Final = "case when p.vector_model = %(model)s then p.vector_key end"
_PART_ORDER: Final = "order by p.thread_id, p.class_id, p.tenant, p.jurisdiction"
_PARTS: Final = f"select p.thread_id, {_PART_KEY}"
CENTROID_PARTS: Final = f"{_PARTS} {_centroid_parts('')} {_PART_ORDER}"
CENTROID_PARTS_OF: Final = (
    f"{_PARTS} {_centroid_parts('and t.id = any(%(ids)s::uuid[])')} {_PART_ORDER}"
)
# What all of these parts are, as one hash: most requests need to know no more.
CENTROID_STATE: Final = f"""
select sha256(coalesce(string_agg(
    uuid_send(p.thread_id)
    || uuid_send(coalesce({_PART_KEY}, '00000000-0000-0000-0000-000000000000')),
    '' order by p.thread_id, {_PART_KEY}), ''))
{_centroid_parts("")}
"""

VECTOR_SUMS: Final = f"""
select p.vector_key, p.vector_sum
from brain.thread_partial p
where p.thread_id = any(%(ids)s::uuid[]) and p.vector_key = any(%(keys)s::uuid[])
  and {_counted("p")}
"""

MEMBER_VECTORS: Final = f"""
select m.thread_id, u.id, u.class_id = any(%(scope_plain)s::smallint[]), e.vector
from brain.unit u
join brain.embedding e
  on e.unit_id = u.id and e.revision = u.current_revision and e.model = %(model)s
join brain.thread_membership m on m.unit_id = u.id
join brain.thread t on t.id = m.thread_id
where u.id = any(%(ids)s::uuid[]) and m.status <> 'wrong_link' and t.status = 'active'
  and {_bound("u")} and {_bound("t")}
order by m.thread_id, u.id
"""

# Row-level security leaves the caller's own audience alone.
FEEDBACK: Final = f"""
select f.thread_id, f.status, f.checked_at
from brain.thread_feedback_health f
join brain.thread t on t.id = f.thread_id
where f.thread_id = any(%(ids)s::uuid[]) and {_bound("t")}
order by f.thread_id
"""

LEXICAL_STATISTICS: Final = f"""
select term, sum(documents)::bigint
from (
    select null::integer as term, p.units as documents
    from brain.corpus_partial p where {_counted("p")}
    union all
    select null, 1 from brain.unit u where {_BY_CONSENT}
    union all
    select p.term, p.df
    from brain.lexicon_partial p
    where p.term = any(%(terms)s::integer[]) and {_counted("p")}
    union all
    select t.term, 1
    from brain.unit u
    join brain.unit_revision r on r.unit_id = u.id and r.revision = u.current_revision
    cross join unnest(r.lexical_terms) t (term)
    where {_BY_CONSENT} and t.term = any(%(terms)s::integer[])
) parts
group by term
"""
