"""What meets in the same terms, and what a document's weights may depend on."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.lexical import (
    K1,
    document_form,
    folded_alternatives,
    query_terms,
    term_id,
    words,
)


def finds(query: str, document: str) -> bool:
    """Whether every term of the query stands in the document."""
    asked = query_terms(query)
    return bool(asked) and set(asked) <= set(document_form("", document)[0])


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("Quy trình hoàn tiền", "QUY TRÌNH HOÀN TIỀN cho khách hàng"),
        ("quy trinh hoan tien", "Quy trình hoàn tiền"),
        ("duong dan", "đường dẫn"),
        (unicodedata.normalize("NFD", "hoàn tiền"), unicodedata.normalize("NFC", "hoàn tiền")),
        ("deployments", "How we deploy, and what a deployment needs"),
        ("STRASSE", "straße"),
        ("grosse", "die große Straße"),
        ("snake_case", "snake case"),
        ("服务", "我们的服务条款"),
        ("条", "服务条款"),
        ("データ", "個人データの保護"),
        ("개인정보", "개인정보 보호"),
        ("اتفاقية", "نص اتفاقية"),
        ("हिन्दी", "यह हिन्दी है"),
        ("3.11", "Python 3.11"),
    ],
)
def test_query_finds_document_that_says_the_same(query: str, document: str) -> None:
    """Vietnamese typed without diacritics, unspaced scripts, compatibility of case and form."""
    assert finds(query, document)


def test_word_with_diacritics_does_not_find_its_unmarked_neighbour() -> None:
    """`má` and `ma` are different words; who types the mark means it."""
    assert not finds("má", "ma")


def test_folded_alternative_is_offered_for_marked_words_only() -> None:
    """`café` may be asked of a corpus that writes `cafe`."""
    assert folded_alternatives("café menu") == {term_id("café"): term_id("cafe")}


def test_empty_and_wordless_texts_have_no_terms() -> None:
    """Fail clearly downstream: nothing asked is nothing found."""
    assert query_terms("") == query_terms("?! …") == []
    assert document_form("", "") == ([], [])


@given(st.text(max_size=200), st.text(max_size=200))
def test_form_is_sorted_unique_bounded_and_float32(title: str, body: str) -> None:
    """The database keeps ids in `integer` and weights in `real`, and both must survive."""
    terms, weights = document_form(title, body)
    assert terms == sorted(set(terms))
    assert all(0 <= term < 2**31 for term in terms)
    assert all(0 < weight < K1 + 1 and weight == float(np.float32(weight)) for weight in weights)
    assert len(terms) == len(weights)


@given(st.text(max_size=200))
def test_query_is_answered_by_its_own_text(text: str) -> None:
    """Whatever the script: a document that is the query has every term of it."""
    assert set(query_terms(text)) <= set(document_form("", text)[0])


@given(st.text(max_size=100))
def test_normal_forms_of_a_text_have_the_same_words(text: str) -> None:
    """A composed and a decomposed spelling are one text."""
    assert list(words(unicodedata.normalize("NFD", text))) == list(
        words(unicodedata.normalize("NFC", text))
    )


def test_term_ids_are_pinned() -> None:
    """Ids are stored in three places; a changed hash would orphan all of them."""
    assert [term_id("policy"), term_id("hoàn"), term_id("服务")] == [
        1808353276,
        1901995746,
        1508166189,
    ]


def test_title_counts_more_than_body() -> None:
    """A unit named after the query stands above one that mentions it."""
    filler = "lorem ipsum dolor sit amet " * 20
    named = dict(zip(*document_form("refund", filler), strict=True))
    mentioned = dict(zip(*document_form("", filler + "refund"), strict=True))
    (term,) = query_terms("refund")
    assert named[term] > mentioned[term]
