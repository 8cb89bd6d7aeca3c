"""Keyword resolution: its laws, and its floor on real titles."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.threads.keyword import (
    KeywordScore,
    Word,
    question_words,
    score_threads,
    terms_of,
    thread_form,
    weigh,
)
from tests.retrieval.ranking import lines

SPACE = UUID(int=7)
COVERAGE_MIN = 0.45
"""Where a question and a thread clearly share their words."""


class Threads:
    """Titles as one caller sees them."""

    def __init__(self, titles: dict[str, str]) -> None:
        self.ids = {name: uuid5(SPACE, name) for name in titles}
        self._postings = {
            self.ids[name]: dict(zip(*thread_form(title, (), ""), strict=True))
            for name, title in titles.items()
        }
        self._df = Counter(term for posting in self._postings.values() for term in posting)

    def asked(self, query: str) -> list[KeywordScore]:
        question = question_words(query, words_max=64)
        terms = set(terms_of(question))
        asked = weigh(question, frequencies=self._df, threads=len(self._postings))
        return score_threads(
            asked,
            {
                thread: {term: weight for term, weight in posting.items() if term in terms}
                for thread, posting in self._postings.items()
                if terms & posting.keys()
            },
        )

    def hits(self, query: str) -> list[UUID]:
        found = [score for score in self.asked(query) if score.coverage >= COVERAGE_MIN]
        return [score.thread_id for score in found]


SMALL = {
    "refunds": "Refunds and returns",
    "payouts": "Payouts and settlement",
    "fees": "Fees and price list",
    "vietnam": "Thanh toán tại Việt Nam",
}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("How do refunds work?", ["refunds"]),
        ("REFUND", ["refunds"]),
        ("what is in the price list", ["fees"]),
        ("thanh toán", ["vietnam"]),
        ("thanh toan viet nam", ["vietnam"]),
        ("refunds or payouts", ["payouts", "refunds"]),
        ("What is the weather in Paris?", []),
        ("How do I get there and what is it for?", []),
        ("refunds of tickets for the opera in Milan", []),
        ("", []),
    ],
)
def test_a_question_finds_what_it_names(query: str, found: list[str]) -> None:
    """Function words are no evidence; words that no thread has are evidence against."""
    threads = Threads(SMALL)
    assert sorted(threads.hits(query)) == sorted(threads.ids[name] for name in found)


def test_a_word_that_no_thread_has_lowers_every_score() -> None:
    """The share of the question that a thread covers, not the sum of what it matches."""
    threads = Threads(SMALL)
    (plain,), (diluted,) = threads.asked("refunds"), threads.asked("refunds zeppelin")
    assert diluted.coverage < plain.coverage == 1.0
    assert diluted.score < plain.score


terms = st.integers(1, 9)
words = st.lists(st.tuples(terms) | st.tuples(terms, terms), min_size=1, max_size=6, unique=True)
weights = st.floats(0.01, 2.19)
postings = st.dictionaries(
    st.uuids(), st.dictionaries(terms, weights, min_size=1, max_size=6), max_size=6
)


@given(question=words, postings=postings, data=st.data())
def test_scores_lie_in_the_unit_interval_and_order_is_total(
    question: list[Word], postings: dict[UUID, dict[int, float]], data: st.DataObject
) -> None:
    """Whatever the weights; and nothing depends on the order of arrival."""
    frequencies = Counter(term for posting in postings.values() for term in posting)
    threads = len(postings) + data.draw(st.integers(0, 5))
    asked = weigh(question, frequencies=frequencies, threads=threads)
    found = score_threads(asked, postings)
    assert all(0 <= s.score <= s.coverage <= 1 for s in found)
    assert found == sorted(found, key=lambda s: (-s.score, str(s.thread_id)))
    shuffled = dict(data.draw(st.permutations(list(postings.items()))))
    assert score_threads(asked, shuffled) == found
    every = {term for word in question for term in word}
    assert asked.share(every) == 1.0
    assert asked.share(set()) == 0.0


def test_titles_of_a_real_corpus_are_found_and_off_topic_questions_are_not(
    shared_data: Path,
) -> None:
    """PEP titles asked for in six phrasings, one word dropped; three foreign question sets."""
    titles = {
        row["id"]: str(row["title"])
        for row in map(json.loads, (shared_data / "peps/peps.jsonl").read_text().splitlines())
    }
    threads = Threads(titles)
    rng = random.Random(2)
    phrasings = (
        "what does python say about {}", "how does {} work", "why was {} rejected", "{}",
        "explain {} to a newcomer", "is {} supported in python 3",
    )  # fmt: skip
    found = 0
    chosen = rng.sample(sorted(titles), 150)
    for name in chosen:
        words = titles[name].split()
        if len(words) > 3:
            words.pop(rng.randrange(len(words)))
        query = rng.choice(phrasings).format(" ".join(words))
        found += threads.ids[name] in threads.hits(query)[:3]
    foreign = [
        row["text"]
        for source in ("threads-clapnq/queries.jsonl", "retrieval-xquad/queries.en.jsonl")
        for row in list(lines(shared_data / source))[:75]
    ]
    astray = sum(bool(threads.hits(query)) for query in foreign)
    assert found >= 0.93 * len(chosen)
    assert astray <= 0.02 * len(foreign)
