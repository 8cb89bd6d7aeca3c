"""`gateway eval` as its users run it: figures, a baseline, and the exit code of a loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway.cli.made import Ended, gateway

TEXTS = {
    "shed": "The bicycle shed is open from six to ten.",
    "keys": "Keys are handed out at the reception desk.",
    "lunch": "Lunch is served in the canteen at noon.",
}
QUESTIONS = {
    "q1": ("when is the bicycle shed open", "shed"),
    "q2": ("who hands out keys at the reception", "keys"),
    "q3": ("where is lunch served at noon", "lunch"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A judged set whose questions share words with their answers."""
    place = tmp_path / "house"
    place.mkdir()
    write(place, "docs", [{"id": name, "text": text} for name, text in TEXTS.items()])
    write(place, "queries", [{"id": q, "text": text} for q, (text, _) in QUESTIONS.items()])
    write(place, "qrels", [{"query": q, "doc": doc} for q, (_, doc) in QUESTIONS.items()])
    return place


def write(folder: Path, name: str, rows: list[dict[str, str]]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluated(*arguments: str) -> Ended:
    return gateway("eval", *arguments, GATEWAY_EMBEDDER="hashing-64")


def test_figures_are_printed_saved_and_compared(folder: Path, tmp_path: Path) -> None:
    """The second run has lost an answer to every question: exit 1, and the table says where."""
    saved = tmp_path / "baseline.json"
    first = evaluated(str(folder), "--save", str(saved), "--json")
    assert (first.code, first.lines) == (0, [])
    (figures,) = json.loads(first.out)
    assert (figures["name"], figures["questions"], figures["by_thread"]) == ("house", 3, 0)
    assert {name: value["mean"] for name, value in figures["measured"].items()} == {
        "ndcg@10": 1, "recall@10": 1, "hit@1": 1, "complete@10": 1,
    }  # fmt: skip
    assert (figures["change"], figures["losses"]) == ({}, [])

    again = evaluated(str(folder), "--baseline", str(saved))
    assert again.code == 0
    assert "+0.0000" in again.out

    write(folder, "docs", [{"id": name, "text": "nothing at all"} for name in "uvwx"])
    worse = evaluated(str(folder), "--baseline", str(saved))
    assert (worse.code, worse.lines) == (1, [])
    assert worse.out.count("LOST") == 2


def test_a_broken_set_is_refused_by_place(folder: Path) -> None:
    (folder / "qrels.jsonl").write_text("{")
    ended = evaluated(str(folder))
    assert ended.code == 2
    assert ended.lines[0].startswith("gateway: error: not_judged: qrels.jsonl:1: not JSON")


def test_a_set_without_documents_asks_a_running_gateway(folder: Path) -> None:
    """None is there: said so, nothing measured."""
    (folder / "docs.jsonl").unlink()
    token = folder / "token"
    token.write_text("a.b.c")
    ended = evaluated(str(folder), "--url", "http://127.0.0.1:9", "--token-file", str(token))
    assert ended.code == 4
    assert "gateway_unreachable" in ended.lines[0]
