"""Judged sets are read whole or refused with file and line; baselines fit their own questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retrieval.evaluate.judged import JudgedSet, Malformed, read
from retrieval.evaluate.report import Baseline, Outcome, baseline, figures


def put(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "handbook"
    place.mkdir()
    put(place, "queries", {"id": "q1", "text": "opening hours"}, {"id": "q2", "text": "keys"})
    put(place, "qrels", {"query": "q1", "doc": "a", "relevance": 2}, {"query": "q1", "doc": "b"})
    return place


def test_a_set_without_documents_is_about_the_record_of_truth(folder: Path) -> None:
    """And a question that nobody found an answer for is not asked."""
    (one,) = read(folder)
    assert (one.name, one.documents, one.unjudged) == ("handbook", None, 1)
    assert [(q.id, q.relevant) for q in one.questions] == [("q1", {"a": 2, "b": 1})]


def test_a_folder_may_hold_a_set_a_language(folder: Path) -> None:
    """Judgements are shared where a language has none of its own."""
    put(folder, "queries.vi", {"id": "q1", "text": "giờ mở cửa"})
    put(folder, "docs.vi", {"id": "a", "text": "Mở cửa từ sáu giờ", "title": "Nhà xe"})
    sets = {one.name: one for one in read(folder)}
    assert sets.keys() == {"handbook", "handbook.vi"}
    (document,) = sets["handbook.vi"].documents or ()
    assert (document.title, document.text) == ("Nhà xe", "Mở cửa từ sáu giờ")


def test_conversations_are_measured_with_and_without_what_was_said_before(folder: Path) -> None:
    """Only the asker's turns, and not the question itself."""
    turns = [
        {"speaker": "user", "text": "is there a shed?"},
        {"speaker": "agent", "text": "yes, and the code is 1234"},
        {"speaker": "user", "text": "opening hours"},
    ]
    put(folder, "threads", {"id": "q1", "turns": turns})
    alone, talked = read(folder)
    assert (alone.name, alone.questions[0].turns) == ("handbook", ())
    assert (talked.name, talked.questions[0].turns) == ("handbook+turns", ("is there a shed?",))


def test_a_text_that_begins_with_its_title_has_it_once(folder: Path) -> None:
    """And without a title the document goes by its id."""
    put(
        folder, "docs", {"id": "a", "title": "Shed", "text": "Shed\nopen"}, {"id": "b", "text": "x"}
    )
    (one,) = read(folder)
    assert [(d.title, d.text) for d in one.documents or ()] == [("Shed", "open"), ("b", "x")]


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("queries", "{", "queries.jsonl:1: not JSON"),
        ("queries", "[]", "queries.jsonl:1: not an object"),
        ("queries", '{"id": "q1"}', "queries.jsonl:1: `text` is not a text"),
        ("queries", '{"id": "q1", "text": "a", "turns": "b"}', "`turns` is not a list"),
        ("queries", '{"id": "q", "text": "a"}\n{"id": "q", "text": "b"}', "stands twice"),
        ("qrels", '{"query": "q1", "doc": "a", "relevance": "1"}', "not an integer"),
        ("qrels", '{"query": "q1", "doc": "a", "relevance": 0}', "has a relevant document"),
        ("docs", '{"id": "a", "text": "b"}\n{"id": "a", "text": "c"}', "docs.jsonl:2"),
        ("threads", '{"id": "q1", "turns": [1]}', "`turns` is not a list of objects"),
    ],
)
def test_what_cannot_be_read_is_refused_by_place(
    folder: Path, name: str, line: str, reason: str
) -> None:
    """A set that is read in part would have figures of another set."""
    (folder / f"{name}.jsonl").write_text(line)
    with pytest.raises(Malformed, match=reason):
        read(folder)


def test_an_empty_folder_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"holds no `queries.jsonl`"):
        read(tmp_path)


def outcome(one: JudgedSet, *ranked: str) -> Outcome:
    return Outcome(one, [list(ranked)] * len(one.questions), [True] * len(one.questions))


def test_a_baseline_comes_back_as_it_was_and_shows_a_loss(folder: Path, tmp_path: Path) -> None:
    """Compared by question; the same run is no loss."""
    (one,) = read(folder)
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(baseline([outcome(one, "a", "b")])))
    before = Baseline(file).of(one)
    assert figures(outcome(one, "a", "b"), before).losses == ()
    assert figures(outcome(one, "b", "x"), before).losses == ("ndcg@10", "recall@10")
    assert figures(outcome(one, "x"), None).losses == ()


def test_other_questions_are_not_compared(folder: Path, tmp_path: Path) -> None:
    """The same name, and one judgement more."""
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps(baseline([outcome(read(folder)[0], "a")])))
    put(folder, "qrels", {"query": "q1", "doc": "c"})
    assert Baseline(file).of(read(folder)[0]) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "sets": {}}', '{"format": 1}'])
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(text)
    with pytest.raises(Malformed, match="baseline"):
        Baseline(file)
