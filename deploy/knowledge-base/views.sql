-- An example: the four views that `gateway ingest --from postgres` reads, over a knowledge base that
-- Directus manages. Its owner runs this in that database; nothing but the schema gateway_export is
-- made, and no table is touched.
--
--   articles        id slug title body status audience kind language date_updated topic
--   topics          id slug title summary status audience date_updated
--   articles_topics id articles_id topics_id    (further topics of an article)
--   articles_links  id from_article to_article relation date_updated
--   glossary        id word other_words audience date_updated
--
-- revision grows with every change of a row: here milliseconds since 1970. Rows of transactions
-- that end out of order are read again (`--overlap`, in the same unit). A row that carries no time
-- of its own, and whatever was deleted, is noticed by a full run (`--full`).
-- complete says that a view holds all that there is, so that a full run may remove what is absent.
-- words are what the mapping reads (mapping.yaml); a word that it does not know is quarantined.

create schema gateway_export;

create view gateway_export.unit as
select 'kb/' || a.slug as address,
       (extract(epoch from a.date_updated) * 1000)::bigint as revision,
       true as complete,
       a.title, a.body, a.language,
       a.date_updated as active_at,
       'topic/' || t.slug as thread,
       'canonical' as role,
       jsonb_build_object('state', a.status, 'audience', a.audience, 'type', a.kind) as words
from public.articles a
left join public.topics t on t.id = a.topic;

create view gateway_export.thread as
select 'topic/' || t.slug as address,
       (extract(epoch from t.date_updated) * 1000)::bigint as revision,
       true as complete,
       t.title, '{}'::text[] as aliases, t.summary as description, '' as purpose,
       case t.status when 'archived' then 'retired' else 'active' end as status,
       jsonb_build_object('state', t.status, 'audience', t.audience, 'type', 'topic') as words
from public.topics t;

create view gateway_export.edge as
select 'edge' as sort, 'kb/' || f.slug as source, l.relation, 'kb/' || o.slug as target,
       1.0 as confidence, null::text as status,
       (extract(epoch from l.date_updated) * 1000)::bigint as revision, true as complete
from public.articles_links l
join public.articles f on f.id = l.from_article
join public.articles o on o.id = l.to_article
union all
select 'membership', 'topic/' || t.slug, 'supporting', 'kb/' || a.slug, 1.0, null,
       (extract(epoch from greatest(a.date_updated, t.date_updated)) * 1000)::bigint, true
from public.articles_topics j
join public.articles a on a.id = j.articles_id
join public.topics t on t.id = j.topics_id
where a.topic is distinct from t.id;

create view gateway_export.term as
select g.word as term, 1 as version,
       (extract(epoch from g.date_updated) * 1000)::bigint as revision,
       true as complete,
       g.other_words as aliases,
       '{}'::text[] as units,
       coalesce((select array_agg('topic/' || t.slug order by t.slug) from public.topics t
                 where g.word ilike any (string_to_array(t.title, ' '))), '{}') as threads,
       jsonb_build_object('state', 'published', 'audience', g.audience, 'type', 'term') as words
from public.glossary g;

-- The login of ingest: it reads these views and nothing else.
--   create role gateway_reader login password '...';
--   grant usage on schema gateway_export to gateway_reader;
--   grant select on all tables in schema gateway_export to gateway_reader;
