"""Judged questions: what was asked, and which documents answer it.

A set is a folder of JSON lines, in the fields that retrieval benchmarks use:

    queries.jsonl   id, text [, turns: earlier questions of the same conversation, oldest first]
    qrels.jsonl     query, doc, relevance (an integer; 0 and below: judged, and no answer)
    docs.jsonl      id, text [, title]     optional: without it `doc` is a canonical address
                    (no title: its id; a text that begins with its title has it once)
    threads.jsonl   id (a query's), turns: [{speaker, text}]     optional

One folder may hold several sets: ``queries.vi.jsonl`` goes with ``docs.vi.jsonl`` and with
``qrels.vi.jsonl`` or, where there is none, with ``qrels.jsonl``. A set with conversations is
measured twice: by the last question alone, and with what was asked before it.

This module reads files and knows no store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

QUERIES: Final = "queries"
TURNS_MAX: Final = 20


class Malformed(ValueError):
    """A set cannot be read; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that somebody judged. ``relevant`` maps documents to gains above 0."""

    id: str
    text: str
    relevant: Mapping[str, int]
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """``documents`` None: the questions are about what the record of truth holds.

    ``unjudged`` counts questions without a relevant document; they are not asked.
    """

    name: str
    questions: tuple[Question, ...]
    documents: tuple[Document, ...] | None
    unjudged: int


def read(folder: Path) -> list[JudgedSet]:
    """The judged sets of a folder, by name.

    Raises Malformed for a folder without one and for the first line that is none of the above.
    """
    found = sorted(folder.glob(f"{QUERIES}*.jsonl"))
    if not found:
        raise Malformed(f"`{folder}` holds no `{QUERIES}.jsonl`")
    return [one for file in found for one in _sets(folder, file)]


def _sets(folder: Path, file: Path) -> Iterator[JudgedSet]:
    suffix = file.name.removeprefix(QUERIES)
    relevant = _relevant(_first(folder / f"qrels{suffix}", folder / "qrels.jsonl"))
    docs = folder / f"docs{suffix}"
    asked = list(_questions(file, relevant))
    judged = tuple(one for one in asked if one.relevant)
    if not judged:
        raise Malformed(f"no question of `{file}` has a relevant document")
    name = folder.resolve().name + suffix.removesuffix(".jsonl")
    documents = tuple(_documents(docs)) if docs.exists() else None
    alone = tuple(replace(one, turns=()) for one in judged)
    yield JudgedSet(name, alone, documents, len(asked) - len(judged))
    turns = _turns(folder / "threads.jsonl")
    talks = tuple(replace(one, turns=one.turns or turns.get(one.id, ())) for one in judged)
    if talks != alone:
        yield JudgedSet(f"{name}+turns", talks, documents, len(asked) - len(judged))


def _first(*files: Path) -> Path:
    for file in files:
        if file.exists():
            return file
    raise Malformed(f"there is no `{files[-1]}`")


def _questions(file: Path, relevant: Mapping[str, Mapping[str, int]]) -> Iterator[Question]:
    seen: set[str] = set()
    for place, row in _lines(file):
        name, text = _word(row, "id", place), _word(row, "text", place)
        if name in seen:
            raise Malformed(f"{place}: question `{name}` stands twice")
        seen.add(name)
        turns = row.get("turns", [])
        if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
            raise Malformed(f"{place}: `turns` is not a list of texts")
        yield Question(name, text, relevant.get(name, {}), _kept(turns))


def _relevant(file: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for place, row in _lines(file):
        gain = row.get("relevance", 1)
        if type(gain) is not int:
            raise Malformed(f"{place}: `relevance` is not an integer")
        if gain > 0:
            found.setdefault(_word(row, "query", place), {})[_word(row, "doc", place)] = gain
    return found


def _documents(file: Path) -> Iterator[Document]:
    seen: set[str] = set()
    for place, row in _lines(file):
        name, text = _word(row, "id", place), _word(row, "text", place)
        if name in seen:
            raise Malformed(f"{place}: document `{name}` stands twice")
        seen.add(name)
        title = row.get("title", "")
        if not isinstance(title, str):
            raise Malformed(f"{place}: `title` is not a text")
        title = title.strip() or name
        yield Document(name, title, text.removeprefix(title).lstrip() or text)


def _turns(file: Path) -> dict[str, tuple[str, ...]]:
    """What the asker said before the last turn, by query id."""
    found: dict[str, tuple[str, ...]] = {}
    if not file.exists():
        return found
    for place, row in _lines(file):
        turns = row.get("turns")
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise Malformed(f"{place}: `turns` is not a list of objects")
        said = [_word(turn, "text", place) for turn in turns if turn.get("speaker") == "user"]
        found[_word(row, "id", place)] = _kept(said[:-1])
    return found


def _kept(turns: list[str]) -> tuple[str, ...]:
    return tuple(turn for turn in turns if turn.strip())[-TURNS_MAX:]


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        place = f"{file.name}:{number}"
        try:
            row = json.loads(line)
        except ValueError as fault:
            raise Malformed(f"{place}: not JSON ({fault})") from fault
        if not isinstance(row, dict):
            raise Malformed(f"{place}: not an object")
        yield place, row


def _word(row: Mapping[str, Any], field: str, place: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise Malformed(f"{place}: `{field}` is not a text")
    return value
