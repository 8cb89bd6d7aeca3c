"""An endpoint of somebody else's: whole and well-formed answers, or IndexUnavailable."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from retrieval.embed.hashing import HashingEmbedder
from retrieval.embed.quantise import pack
from retrieval.embed.remote import RemoteEmbedder
from retrieval.errors import IndexUnavailable
from tests.retrieval.embed.endpoint import DIMS, KEY, MODEL, Reply, endpoint, well

NOWHERE = "http://127.0.0.1:1/v1"
TEXTS = ["refund policy", "chính sách hoàn tiền", "退款政策"]


@contextmanager
def remote(url: str, **options: Any) -> Iterator[RemoteEmbedder]:
    model = RemoteEmbedder(name="openai-test", url=url, model=MODEL, dims=DIMS, key=KEY, **options)
    try:
        yield model
    finally:
        model.close()


def test_vectors_come_back_in_the_order_of_the_texts() -> None:
    """The API may answer in any order; ``index`` tells which is which."""
    with endpoint() as (url, asked), remote(url) as model:
        rows = model.embed(TEXTS)
    own = HashingEmbedder(DIMS).embed(TEXTS)
    assert [pack(row) for row in rows] == [pack(row) for row in own]
    assert asked.bodies == [
        {
            "path": "/v1/embeddings",
            "model": MODEL,
            "input": TEXTS,
            "encoding_format": "float",
        }
    ]
    assert asked.keys == [f"Bearer {KEY}"]


def test_many_texts_travel_in_bounded_batches_and_long_ones_are_cut() -> None:
    """A model's window is 8,192 tokens; a request of thousands of texts would be refused."""
    with endpoint() as (url, asked), remote(url) as model:
        assert len(model.embed(["a b"] * 130)) == 130
        model.embed(["word " * 10_000])
    assert [len(body["input"]) for body in asked.bodies] == [64, 64, 2, 1]
    assert len(asked.bodies[-1]["input"][0]) == 8_000


def test_a_blank_text_is_not_sent() -> None:
    """Endpoints refuse it; it has no direction."""
    with endpoint() as (url, asked), remote(url) as model:
        blank, full = model.embed([" \n", "refund"])
        assert not model.embed([""])[0].any()
    assert not blank.any()
    assert full.any()
    assert [body["input"] for body in asked.bodies] == [["refund"]]


def test_a_connection_closed_while_idle_costs_one_more_try() -> None:
    """Servers close idle connections without a word; that is no outage."""
    with endpoint(close=True) as (url, asked), remote(url) as model:
        for _ in range(3):
            model.embed(["refund"])
    assert len(asked.bodies) == 3


def _altered(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Sequence[str]], Reply]:
    def answer(texts: Sequence[str]) -> Reply:
        told = json.loads(well(texts)[1])
        told["data"] = change(sorted(told["data"], key=lambda one: one["index"]))
        return 200, json.dumps(told).encode()

    return answer


BROKEN: dict[str, Callable[[Sequence[str]], Reply]] = {
    "a server error": lambda _: (500, b"{}"),
    "too many requests": lambda _: (429, b"{}"),
    "a wrong key": lambda _: (401, json.dumps({"error": KEY}).encode()),
    "a redirect": lambda _: (307, b""),
    "no JSON": lambda _: (200, b"<html>"),
    "deep JSON": lambda _: (200, b"[" * 100_000),
    "another shape": lambda _: (200, b'{"data": {"index": 0}}'),
    "one vector too few": _altered(lambda data: data[:-1]),
    "one vector twice": _altered(lambda data: [*data[:-1], data[0]]),
    "a foreign index": _altered(lambda data: [*data[:-1], {**data[-1], "index": 9}]),
    "another width": _altered(lambda data: [{**one, "embedding": [1.0] * 31} for one in data]),
    "not a number": _altered(
        lambda data: [{**one, "embedding": [float("nan")] * 32} for one in data]
    ),
    "infinity": _altered(lambda data: [{**one, "embedding": [float("inf")] * 32} for one in data]),
    "only zeros": _altered(lambda data: [{**one, "embedding": [0.0] * 32} for one in data]),
    "a word": _altered(lambda data: [{**one, "embedding": "AAAA"} for one in data]),
    "megabytes": lambda _: (200, b" " * 1_000_000),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_anything_but_whole_vectors_is_index_unavailable(fault: str) -> None:
    """Never a shorter list, never a guess; and the key is in no message."""
    with (
        endpoint(BROKEN[fault]) as (url, asked),
        remote(url) as model,
        pytest.raises(IndexUnavailable, match="`embedder` is unavailable") as refused,
    ):
        model.embed(TEXTS)
    assert KEY not in str(refused.value)
    assert len(asked.bodies) == 1  # no redirect followed, nothing tried again


def test_an_endpoint_that_is_not_there_is_index_unavailable() -> None:
    """A refused connection."""
    with remote(NOWHERE) as model, pytest.raises(IndexUnavailable, match="ConnectError"):
        model.embed(TEXTS)


def test_an_endpoint_that_never_answers_ends_with_its_time() -> None:
    """A silent listener: accepted, and not a byte."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        held: list[socket.socket] = []
        taking = threading.Thread(target=lambda: held.append(silent.accept()[0]), daemon=True)
        taking.start()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with (
            remote(url, timeout_s=0.1) as model,
            pytest.raises(IndexUnavailable, match="ReadTimeout"),
        ):
            model.embed(TEXTS)
        taking.join()
        for one in held:
            one.close()


def test_the_key_shows_in_no_representation() -> None:
    """What is logged by accident holds no secret."""
    with remote(NOWHERE) as model:
        assert KEY not in repr(vars(model))


@pytest.mark.parametrize(("languages", "read"), [([], True), (["vi", "en"], True), (["en"], False)])
def test_it_reads_what_the_operator_says_its_model_reads(languages: list[str], read: bool) -> None:
    """Nothing said: everything."""
    with remote(NOWHERE, languages=languages) as model:
        assert model.reads("Quy trình hoàn tiền cho khách hàng") is read
