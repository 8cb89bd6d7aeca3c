"""YAML is read as text that was written, never as what YAML makes of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.faults import Faults
from policies.yamltree import Reader, parse


@pytest.mark.parametrize(
    ("text", "line", "column", "code"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "duplicate_key"),
        ("a: {b: 1, b: 2}\n", 1, 11, "duplicate_key"),
        ("a: &x 1\nb: *x\n", 1, 4, "bad_yaml"),
        ("a: 1\n<<: {b: 2}\n", 2, 1, "bad_scalar"),
        ("a: 2026-01-01\n", 1, 4, "bad_scalar"),
        ("a: 1.0\n", 1, 4, "bad_scalar"),
        ("a: !!python/object:os.system x\n", 1, 4, "bad_scalar"),
        ("a: [\n", 2, 1, "bad_yaml"),
        ("a: 1\n---\nb: 2\n", 2, 1, "bad_yaml"),
        ("", 0, 0, "empty_file"),
        ("# nothing\n", 0, 0, "empty_file"),
        ("1: a\n", 1, 1, "bad_key"),
        ("true: a\n", 1, 1, "bad_key"),
        ("[a]: b\n", 1, 1, "bad_key"),
        # PyYAML itself raises ValueError or OverflowError for these, without a place
        ('a: "\\U00110000"\n', 0, 0, "bad_yaml"),
        ('a: "\\UFFFFFFFF"\n', 0, 0, "bad_yaml"),
        (f"%YAML {'9' * 5_000}.1\n---\na: 1\n", 0, 0, "bad_yaml"),
    ],
)
def test_every_trick_of_yaml_is_refused_at_its_place(
    text: str, line: int, column: int, code: str
) -> None:
    faults = Faults()
    parse("f.yaml", text, faults)
    assert [(f.line, f.column, f.code) for f in faults] == [(line, column, code)]


def test_deep_nesting_is_refused_before_it_exhausts_the_stack() -> None:
    faults = Faults()
    parse("f.yaml", "[" * 5_000 + "]" * 5_000, faults)
    assert [f.code for f in faults] == ["bad_yaml"]


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "null", "~", "12", "0x1f", ""])
def test_a_word_that_yaml_would_turn_into_something_else_is_no_word(word: str) -> None:
    faults = Faults()
    node = parse("f.yaml", f"a: {word}\n", faults)
    read = Reader(faults)
    value = read.word(read.fields(node, required=("a",))["a"], "country", ("no", "yes"))
    assert value == ""
    assert [f.code for f in faults] == ["wrong_type"]


def test_quoted_words_are_words() -> None:
    faults = Faults()
    node = parse("f.yaml", 'a: "no"\n', faults)
    read = Reader(faults)
    assert read.word(read.fields(node, required=("a",))["a"], "country", ("no",)) == "no"
    assert not faults.found


@given(st.text(max_size=60))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    """A broken file is a list of faults, never an exception of another library."""
    faults = Faults()
    node = parse("f.yaml", text, faults)
    read = Reader(faults)
    fields = read.fields(node, required=("a",), optional=("b",))
    read.integer(fields["a"], "number", low=1, high=3)
    read.words(fields["a"], "word", ("x",))
    read.truth(fields["a"], "flag")
    read.entries(fields["a"], "name", re.compile("[a-z]+"))
    assert faults.found
