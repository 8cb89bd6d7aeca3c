"""The ASGI border: what it admits, and that it changes nothing on the way through."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from retrieval.app import RetrievalApp
from retrieval.contract import Answer
from retrieval.settings import ServiceSettings
from tests.retrieval.stage import Prepared, Stage, wire

KEYED = ServiceSettings(shared_key=SecretStr("long-shared-key"))


async def _send(
    stage: Stage,
    method: str,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> httpx.Response:
    transport = httpx.ASGITransport(app=RetrievalApp(stage.retrieval))
    async with httpx.AsyncClient(transport=transport, base_url="http://retrieval") as client:
        return await client.request(method, path, headers=headers, content=body)


def test_an_answer_over_asgi_is_the_answer(sample: Prepared) -> None:
    """In-process and split, the gateway reads the same bytes."""

    async def act(stage: Stage) -> tuple[Answer, httpx.Response]:
        ask = stage.envelope("pack", "customer", reference="thread:refunds")
        body = ask.model_dump_json().encode()
        return await stage.retrieval.ask(ask), await _send(stage, "POST", "/ask", body=body)

    direct, sent = sample.run(act)
    assert sent.status_code == 200
    assert wire(Answer.model_validate_json(sent.content)) == wire(direct)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[1]", b"\xff", b'{"operation": "drop"}', b'{"operation": "unit", "x": 1}'],
)
def test_a_malformed_envelope_echoes_nothing(sample: Prepared, body: bytes) -> None:
    """The text of a validation error would repeat what was asked."""

    async def act(stage: Stage) -> httpx.Response:
        return await _send(stage, "POST", "/ask", body=body)

    answer = Answer.model_validate_json(sample.run(act).content)
    assert answer == Answer(status=400, code="malformed_ask")


@pytest.mark.parametrize(
    "headers",
    [{}, {"x-retrieval-key": ""}, {"x-retrieval-key": "long-shared-kez"}, {"authorization": "x"}],
)
def test_without_the_shared_key_nothing_is_answered(
    sample: Prepared, headers: dict[str, str]
) -> None:
    """Whatever is asked; the refusal is empty."""

    async def act(stage: Stage) -> list[httpx.Response]:
        return [
            await _send(stage, method, path, headers=headers)
            for method, path in (("POST", "/ask"), ("GET", "/health"), ("GET", "/nothing"))
        ]

    answers = sample.run(act, settings=KEYED)
    assert [(one.status_code, one.content) for one in answers] == [(401, b"")] * 3


def test_with_the_shared_key_health_names_states_only(sample: Prepared) -> None:
    """For operators: stores, lag, digest."""

    async def act(stage: Stage) -> dict[str, Any]:
        headers = {"X-Retrieval-Key": "long-shared-key"}
        answer = await _send(stage, "GET", "/health", headers=headers)
        assert answer.status_code == 200
        found: dict[str, Any] = json.loads(answer.content)
        return found

    assert sample.run(act, settings=KEYED) == {
        "ready": True,
        "postgres": "up",
        "vectors": {"qdrant": "up", "pending": 0, "oldest_s": 0.0, "set_aside": 0},
        "policy_digest": sample.snapshot.digest,
    }


def test_an_oversized_envelope_is_refused_before_it_is_read(sample: Prepared) -> None:
    """Bytes are bounded, whoever sends them."""

    async def act(stage: Stage) -> int:
        big = b" " * (ServiceSettings().ask_bytes_max + 1)
        return (await _send(stage, "POST", "/ask", body=big)).status_code

    assert sample.run(act) == 413
