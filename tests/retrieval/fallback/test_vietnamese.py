"""Vietnamese is served as well as English: however it is typed, and however it was written down.

Material: shared/data/retrieval-xquad, questions and paragraphs of people.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from policies.snapshot import Snapshot
from retrieval.embed.hashing import HashingEmbedder
from retrieval.lexical import document_form, query_terms
from tests.retrieval.fallback.test_ranking import unit_id, units_of
from tests.retrieval.fallback.world import World, bytes_of, world
from tests.retrieval.lexical.test_ranking import unmarked
from tests.retrieval.ranking import Collection, ndcg_at_10, xquad
from tests.services import Database, VectorService

SENTENCES = (
    "Quy trình hoàn tiền cho khách hàng đã thanh toán hai lần",
    "Bộ đếm tiền mặt tại kho phải được kiểm tra mỗi ngày",
    "Hồ sơ sự cố chỉ dành cho nhân viên được ủy quyền",
    "Đường dây nóng hoạt động từ sáu giờ đến mười giờ",
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_both_ways_of_composing_letters_are_the_same_words(sentence: str) -> None:
    """NFC and NFD: of a document as of a question."""
    taken_apart = unicodedata.normalize("NFD", sentence)
    assert taken_apart != sentence
    assert document_form(sentence, taken_apart) == document_form(taken_apart, sentence)
    assert query_terms(taken_apart) == query_terms(sentence)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_document_holds_its_words_with_and_without_marks(sentence: str) -> None:
    """Whoever types without them finds all of it; whoever types them, too."""
    terms, _ = document_form("", sentence)
    assert set(query_terms(sentence)) <= set(terms)
    assert set(query_terms(unmarked(sentence))) <= set(terms)


def test_marks_tell_words_apart() -> None:
    """`tiền` is money and `tiên` a fairy: typed with marks, only the one that was meant."""
    money, _ = document_form("", "hoàn tiền")
    fairy, _ = document_form("", "cô tiên")
    assert set(query_terms("tiền")) <= set(money)
    assert not set(query_terms("tiền")) & set(fairy)
    assert set(query_terms("tien")) <= set(money) & set(fairy)


async def found(company: World, queries: Mapping[str, str]) -> dict[str, list[str]]:
    return {
        query: [hit.unit.id.hex for hit in (await company.search(text)).hits]
        for query, text in queries.items()
    }


def test_it_is_found_as_well_as_english_and_in_either_form(
    database: Database, sidecar: VectorService, snapshot: Snapshot, shared_data: Path
) -> None:
    """By words alone (no model that knows the one and not the other); half of the documents were
    written down in NFD. The same questions in both languages, within three points; typed without
    marks, within six; composed the other way, byte for byte the same."""
    public = snapshot.grant(["customer"]).plain[0]
    languages = {name: xquad(shared_data, name, every=12) for name in ("en", "vi")}

    async def run() -> None:
        scores: dict[str, float] = {}
        async with world(database, sidecar, snapshot, HashingEmbedder(512)) as company:
            for name, material in languages.items():
                units = units_of(_named(material, name), public)
                units[::2] = [
                    replace(one, body=unicodedata.normalize("NFD", one.body)) for one in units[::2]
                ]
                company.record.put(units)
                await company.settle()
                answer = {q: unit_id(f"{name} {doc}").hex for q, doc in material.answer.items()}
                scores[name] = ndcg_at_10(await found(company, material.queries), answer)
                if name == "vi":
                    await other_ways_of_typing(company, material)
                    plain = {query: unmarked(text) for query, text in material.queries.items()}
                    scores["vi without marks"] = ndcg_at_10(await found(company, plain), answer)
                company.record.bury(units)
                await company.settle()
        assert scores["vi"] >= scores["en"] - 0.03, scores
        assert scores["vi without marks"] >= scores["en"] - 0.06, scores

    async def other_ways_of_typing(company: World, material: Collection) -> None:
        for text in list(material.queries.values())[::10]:
            apart = await company.search(unicodedata.normalize("NFD", text))
            assert bytes_of(apart) == bytes_of(await company.search(text))

    asyncio.run(run())


def _named(material: Collection, language: str) -> Collection:
    """Documents of all languages go by the same ids; here they live in one database."""
    documents = {f"{language} {name}": told for name, told in material.documents.items()}
    return Collection(documents, material.queries, material.answer)
