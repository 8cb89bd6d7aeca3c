"""Bytes as a spoilt folder, and edits that a hand would make.

An input is one file of the shipped policy written anew, or several: the file's number, then its
content, joined by a mark that no text holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

MARK: Final = b"\xff\x00\xff"
_WORD: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
SYNTAX: Final = (
    "p", "p,", "g", "allow", "deny", "all", "none", "granted", "none|granted", "|", ",", ", ", "#",
    '"', "'", "*", "&a", "*a", "<<: *a", "!!python/name:os.system", "null", "true", "no", "{}",
    "[]", ": ", "- ", "\\", "\t", "\r", "\u0085", "\u00a0", "\u200b", "\ufeff", "\u0440", "-1",
    "0", "1.5", "2026-01-01", "anonymous", "caller", "any", "%2f", "..", "//", "**", "{rest...}",
)  # fmt: skip


def encoded(files: Sequence[str], contents: Mapping[str, bytes]) -> bytes:
    """Some files of the folder as one input. ``files`` lists all that there are."""
    return MARK.join(bytes([files.index(name)]) + contents[name] for name in sorted(contents))


def decoded(files: Sequence[str], data: bytes) -> dict[str, bytes]:
    """The files that an input writes anew."""
    return {files[part[0] % len(files)]: part[1:] for part in data.split(MARK) if part}


def words_of(contents: Mapping[str, bytes]) -> list[bytes]:
    """Every word of the folder, and of the languages that its files might be mistaken for."""
    own = {word for content in contents.values() for word in _WORD.findall(content)}
    return sorted(own | {word.encode() for word in SYNTAX})


def edited(data: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """One edit by hand: a word, a cell, a line. Most of these leave a folder that is read."""
    head, text = data[:1], data[1:]
    return head + random.choice(_EDITS)(text, words, random)


Edit = Callable[[bytes, Sequence[bytes], Random], bytes]


def _word_of_the_column(text: bytes, _: Sequence[bytes], random: Random) -> bytes:
    """In a rule, a word put into, taken from or exchanged in a cell, out of the same column."""
    lines = text.split(b"\n")
    rules = [number for number, line in enumerate(lines) if line.startswith(b"p,")]
    if not rules:
        return text
    number = random.choice(rules)
    cells = lines[number].split(b", ")
    at = random.randrange(1, len(cells))
    rows = [lines[other].split(b", ") for other in rules]
    column = {word for row in rows if len(row) > at for word in row[at].split(b"|")}
    own = cells[at].split(b"|")
    new = random.choice(sorted(column))
    if new in own and len(own) > 1:
        own.remove(new)
    elif random.random() < 0.5:
        own.append(new)
    else:
        own[random.randrange(len(own))] = new
    cells[at] = b"|".join(own)
    lines[number] = b", ".join(cells)
    return b"\n".join(lines)


def _another_word(text: bytes, words: Sequence[bytes], random: Random) -> bytes:
    found = list(_WORD.finditer(text))
    if not found:
        return text + random.choice(words)
    hit = random.choice(found)
    return text[: hit.start()] + random.choice(words) + text[hit.end() :]


def _word_swapped_within(text: bytes, _: Sequence[bytes], random: Random) -> bytes:
    """Another word of the same file: what stands near is more often of the same column."""
    own = _WORD.findall(text)
    return _another_word(text, own, random) if own else text


def _word_added(text: bytes, words: Sequence[bytes], random: Random) -> bytes:
    found = list(_WORD.finditer(text))
    if not found:
        return text
    hit = random.choice(found)
    glue = random.choice((b"|", b", ", b" ", b": ", b"\n"))
    return text[: hit.end()] + glue + random.choice(words) + text[hit.end() :]


def _word_taken(text: bytes, _: Sequence[bytes], random: Random) -> bytes:
    found = list(re.finditer(rb"\|[^|,\s]+|[^|,\s]+\||, [^,\]]+", text))
    if not found:
        return text
    hit = random.choice(found)
    return text[: hit.start()] + text[hit.end() :]


def _lines(text: bytes, _: Sequence[bytes], random: Random) -> bytes:
    lines = text.split(b"\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case _:
            lines[one] = b"# " + lines[one]
    return b"\n".join(lines)


def _verdict_turned(text: bytes, _: Sequence[bytes], random: Random) -> bytes:
    found = list(re.finditer(rb"\b(allow|deny)\b", text))
    if not found:
        return text
    hit = random.choice(found)
    other = b"deny" if hit[0] == b"allow" else b"allow"
    return text[: hit.start()] + other + text[hit.end() :]


_EDITS: Final[Sequence[Edit]] = (
    _word_of_the_column,
    _word_of_the_column,
    _word_of_the_column,
    _another_word,
    _word_swapped_within,
    _word_swapped_within,
    _word_added,
    _word_taken,
    _lines,
    _verdict_turned,
)
