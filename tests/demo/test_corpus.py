"""The sample corpus: complete, consistent, and labelled so that the policy says what we wrote.

The audience rules are stated twice: in ``policies/rules`` and, in Ferrowick's own words, in
``deploy/demo/expected.py``. Here the two are compared on every document, without any store.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import overlay
from deploy.demo.embed import VECTORS, texts
from deploy.demo.expected import CORPUS, READERS, WORDS, Document, allowed, documents, records
from deploy.demo.people import client
from policies.decision import Scope
from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from policies.vocabulary import FACETS
from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.usem3 import MultilingualEmbedder
from retrieval.ingest.convert import Converter
from retrieval.ingest.identity import unit_id
from retrieval.ingest.items import ArtifactItem, Item, LabelItem, ThreadItem, UnitItem
from retrieval.ingest.report import Reason
from retrieval.ingest.sources import open_source

DELIBERATELY_UNKNOWN = "product-range.vip-preview"
PROFILES = {
    "customer": "customer",
    "globex-customer": "customer",
    "partner": "partner",
    "employee": "employee",
    "agent-assistant": "agent:reader",
    "agent-analyst": "agent:analyst",
    "agent-incident": "agent:incident",
}


@pytest.fixture(scope="module")
def corpus() -> tuple[Document, ...]:
    return documents()


@pytest.fixture(scope="module")
def demo_policy(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = overlay.write(
        tmp_path_factory.mktemp("policy"), identity_base="http://127.0.0.1:40001"
    )
    return load(DEFAULT_FOLDER, overlay=folder)


@pytest.fixture(scope="module")
def items(demo_policy: Snapshot) -> tuple[Item, ...]:
    """What ingest makes of the corpus."""
    converter = Converter(demo_policy.mappings[overlay.MAPPING])
    return tuple(item for raw in open_source(CORPUS) for item in converter.items(raw))


def of_sort(corpus: tuple[Document, ...], sort: str) -> list[Document]:
    return [one for one in corpus if one.sort == sort]


def test_the_company_is_as_large_as_promised(corpus: tuple[Document, ...]) -> None:
    """Mandated by the issue: about 25 threads and 200 units."""
    counts = Counter(one.sort for one in corpus)
    assert 23 <= counts["thread"] <= 27
    assert 190 <= counts["unit"] <= 230
    assert counts["artifact"] >= 15


def test_addresses_are_unique_and_need_no_escape_in_a_path(corpus: tuple[Document, ...]) -> None:
    addresses = [one.address for one in corpus if one.sort != "artifact"]
    assert len(addresses) == len(set(addresses))
    assert all(set(one) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") for one in addresses)


def test_every_word_of_every_field_is_used(corpus: tuple[Document, ...]) -> None:
    """Mandated by the issue: every facet value used."""
    for field, known in WORDS.items():
        assert {one.words[field] for one in corpus} >= known


def test_every_facet_value_is_used_by_something(
    items: tuple[Item, ...], demo_policy: Snapshot
) -> None:
    labels = [one.label for one in items if isinstance(one, UnitItem | ThreadItem | ArtifactItem)]
    for facet in FACETS:
        used = {label.facets[facet] for label in labels if label is not None and not label.reasons}
        assert used == set(demo_policy.vocabulary.live(facet))


def test_every_stage_of_life_is_there(items: tuple[Item, ...]) -> None:
    stages = {one.label.lifecycle_stage for one in items if isinstance(one, UnitItem) and one.label}
    assert stages == {"law", "design", "code", "test", "report", "incident", "other"}


def test_several_threads_span_the_whole_life(
    corpus: tuple[Document, ...], items: tuple[Item, ...]
) -> None:
    """From law over design, code, test and report to incident, within one thread."""
    stages: dict[str, set[str]] = {}
    for one in items:
        if isinstance(one, UnitItem) and one.label is not None:
            stages.setdefault(one.address.partition(".")[0], set()).add(one.label.lifecycle_stage)
    whole = {"law", "design", "code", "test", "report", "incident"}
    assert sum(found >= whole for found in stages.values()) >= 4


def test_nothing_is_refused_and_one_word_only_is_unknown(items: tuple[Item, ...]) -> None:
    assert not [one for one in items if isinstance(one, Reason)]
    unknown = {
        reason.address
        for one in items
        if isinstance(one, UnitItem | ThreadItem | ArtifactItem | LabelItem) and one.label
        for reason in one.label.reasons
    }
    assert unknown == {DELIBERATELY_UNKNOWN}


def test_every_end_of_an_edge_membership_label_and_artifact_exists(
    corpus: tuple[Document, ...],
) -> None:
    units = {one.address for one in of_sort(corpus, "unit")}
    threads = {one.address for one in of_sort(corpus, "thread")}
    for record in records():
        named_units, named_threads = _named(record)
        assert set(named_units) <= units, record
        assert set(named_threads) <= threads, record


def _named(record: dict[str, Any]) -> tuple[list[str], list[str]]:
    match record["sort"]:
        case "edge":
            return [record["from"], record["to"]], []
        case "membership":
            return [record["unit"]], [record["thread"]]
        case "artifact":
            return [], [record["thread"]]
        case "label":
            return record["units"], record["threads"]
    return [], []


def test_suspect_links_of_each_sort_are_there() -> None:
    memberships = [one for one in records() if one["sort"] == "membership"]
    assert {one["status"] for one in memberships} == {"active", "needs_human", "wrong_link"}
    assert any(one["confidence"] < 0.6 and one["status"] == "active" for one in memberships)


def test_superseded_units_have_a_successor_and_withdrawn_ones_are_there(
    corpus: tuple[Document, ...],
) -> None:
    superseded = {one.address for one in corpus if one.words["state"] == "replaced"}
    replaced = {one["to"] for one in records() if one.get("relation") == "supersedes"}
    assert superseded <= replaced
    assert sum(one.words["release"] == "pulled" for one in corpus) >= 2


def test_two_tenants_two_jurisdictions_and_three_languages(items: tuple[Item, ...]) -> None:
    units = [one for one in items if isinstance(one, UnitItem) and one.label]
    assert {one.label.tenant for one in units if one.label} == {"*", "acme", "globex"}
    assert {one.label.jurisdiction for one in units if one.label} == {"*", "eu", "vn"}
    assert {one.language for one in units} == {"en", "de", "vi"}


def test_texts_are_of_one_paragraph_and_in_normal_form(corpus: tuple[Document, ...]) -> None:
    for one in of_sort(corpus, "unit"):
        assert 60 <= len(one.text.split()) <= 200, one.address
        assert unicodedata.is_normalized("NFC", one.text), one.address
        assert unicodedata.is_normalized("NFC", one.title), one.address


def test_no_two_units_have_one_text(corpus: tuple[Document, ...]) -> None:
    bodies = [one.text for one in of_sort(corpus, "unit")]
    assert len(bodies) == len(set(bodies))


@pytest.mark.parametrize("name", sorted(READERS))
def test_the_written_rules_and_the_policy_allow_the_same_documents(
    name: str, corpus: tuple[Document, ...], items: tuple[Item, ...], demo_policy: Snapshot
) -> None:
    """Two statements of the default audience policy, compared document by document."""
    scope = scope_of(name, demo_policy)
    by_policy = {
        one.address
        for one in items
        if isinstance(one, UnitItem) and permitted(one, scope, demo_policy)
    }
    assert by_policy == allowed(name, corpus)
    threads = {
        one.address
        for one in items
        if isinstance(one, ThreadItem) and permitted(one, scope, demo_policy)
    }
    assert threads == allowed(name, corpus, sort="thread")


def scope_of(name: str, policy: Snapshot) -> Scope:
    claims = client(name).claims
    tenants = claims.get("tenants", claims.get("tenant", []))
    return Scope(
        grant=policy.grant([PROFILES[name]]),
        tenants=tuple(sorted([tenants] if isinstance(tenants, str) else tenants)),
        jurisdictions=tuple(sorted(claims["jurisdictions"])),
        consented_units=(),
    )


def permitted(item: UnitItem | ThreadItem, scope: Scope, policy: Snapshot) -> bool:
    label = item.label
    if label is None or label.reasons:
        return False
    facets = {name: word for name, word in label.facets.items() if word is not None}
    return scope.permits(
        unit_id=unit_id(item.address),
        class_id=policy.vocabulary.class_id(facets),
        tenant=label.tenant,
        jurisdiction=label.jurisdiction,
    )


def test_the_audiences_are_nested_and_each_sees_something_of_its_own(
    corpus: tuple[Document, ...],
) -> None:
    """Monotone by architecture section 5: customer within partner within employee."""
    shared = {one.address for one in corpus if one.tenant == "*"}
    customer, partner, employee = (
        allowed(name, corpus) & shared for name in ("customer", "partner", "employee")
    )
    assert customer < partner < employee
    assert allowed("agent-incident", corpus) - employee
    everything = {one.address for one in of_sort(corpus, "unit")}
    nobody = everything - frozenset().union(*(allowed(name, corpus) for name in READERS))
    assert DELIBERATELY_UNKNOWN in nobody
    assert len(nobody) >= 15


def test_cached_vectors_cover_the_corpus() -> None:
    """Else the first demo spends its time on embedding: run `python -m deploy.demo.embed`."""
    cache = CachedEmbedder(MultilingualEmbedder(), own=VECTORS)
    assert all(text in cache for text in texts())


def test_cached_vectors_are_of_the_default_model() -> None:
    with pytest.raises(ValueError, match="expected"):
        CachedEmbedder(HashingEmbedder(), own=Path(VECTORS))
