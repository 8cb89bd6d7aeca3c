"""One listener for several workers: what readiness and metrics say of all of them.

Provenance: issue 4, point 7.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway.ingress.limits import Limits
from gateway.server import bind, server_for
from gateway.workers.telling import Answer, Telling, merged, readiness

Asgi = Callable[..., Awaitable[None]]


def told(status: str, **checks: str) -> Answer:
    body = json.dumps({"status": status, "checks": {"policy": "ok", **checks}}).encode()
    return Answer(503 if status == "not_ready" else 200, (), body)


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([told("ready"), told("ready")], (200, "ready")),
        ([told("ready"), told("degraded", index="index_unavailable")], (200, "degraded")),
        ([told("ready"), told("not_ready", policy="policy_mismatch")], (200, "degraded")),
        ([told("ready")], (200, "degraded")),
        ([told("not_ready"), told("not_ready")], (503, "not_ready")),
        ([], (503, "not_ready")),
    ],
)
def test_the_address_is_ready_while_one_worker_is(
    answers: list[Answer], wanted: tuple[int, str]
) -> None:
    """And says so when it is not as it should be; draining is never ready."""
    numbered = dict(enumerate(answers))
    status, document = readiness(numbered, count=2, draining=False)
    assert (status, document["status"]) == wanted
    assert readiness(numbered, count=2, draining=True)[0] == 503


def test_the_worst_word_of_each_check_is_told() -> None:
    """Whoever looks sees what is wrong in any of them, and how many serve."""
    answers = {0: told("ready"), 1: told("not_ready", policy="policy_mismatch")}
    _, document = readiness(answers, count=2, draining=False)
    assert document["checks"] == {"policy": "policy_mismatch", "workers": "workers_missing"}
    assert document["workers"] == {"ready": 1, "wanted": 2}


def test_metrics_are_one_exposition_with_a_label_per_worker() -> None:
    """Each family once; odd label values and histograms stay as they are."""
    text = (
        "# HELP a_total Things.\n# TYPE a_total counter\n"
        'a_total{code="x",place="a\\"b} c"} 3\na_total{code=""} 1\n'
        "# HELP h Time.\n# TYPE h histogram\n"
        'h_bucket{le="+Inf"} 2\nh_sum{} 0.25\nh_count 2\n'
    )
    lines = merged({1: text, 0: text}).splitlines()
    assert lines == [
        "# HELP a_total Things.",
        "# TYPE a_total counter",
        'a_total{worker="0",code="x",place="a\\"b} c"} 3',
        'a_total{worker="0",code=""} 1',
        'a_total{worker="1",code="x",place="a\\"b} c"} 3',
        'a_total{worker="1",code=""} 1',
        "# HELP h Time.",
        "# TYPE h histogram",
        'h_bucket{worker="0",le="+Inf"} 2',
        'h_sum{worker="0"} 0.25',
        'h_count{worker="0"} 2',
        'h_bucket{worker="1",le="+Inf"} 2',
        'h_sum{worker="1"} 0.25',
        'h_count{worker="1"} 2',
    ]


@asynccontextmanager
async def listening(app: Asgi) -> AsyncIterator[int]:
    sock = bind("127.0.0.1", 0)
    server = server_for(app, Limits(), graceful_s=1)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    await server.up.wait()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        sock.close()


def worker(name: str, asked: list[Any]) -> Asgi:
    """A worker's second listener, as far as operators are concerned."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        asked.append((scope["method"], scope["raw_path"], dict(scope["headers"]), body))
        headers = [(b"x-worker", name.encode()), (b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b"seen"})

    return app


def test_an_operators_question_reaches_one_worker_unchanged() -> None:
    """Method, path, credential and body go on; workers take turns; without one it is 503."""

    async def scene() -> None:
        asked: list[Any] = []
        ports: dict[int, int] = {}
        async with (
            listening(worker("a", asked)) as first,
            listening(worker("b", asked)) as second,
            listening(Telling(lambda: ports, count=2)) as port,
            httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as client,
        ):
            path, bearer = "/admin/v1/policy/live", {"authorization": "Bearer t"}
            assert (await client.post(path, headers=bearer, content=b"{}")).status_code == 503
            ports.update({0: first, 1: second})
            answers = [
                await client.post(path, headers=bearer, content=b'{"a": 1}') for _ in range(2)
            ]
            assert {one.headers["x-worker"] for one in answers} == {"a", "b"}
            assert {(one.status_code, one.content) for one in answers} == {(403, b"seen")}
            for method, target, headers, body in asked:
                assert (method, target, body) == ("POST", path.encode(), b'{"a": 1}')
                assert headers[b"authorization"] == b"Bearer t"
            large = await client.post(path, content=b"x" * (4 * 1024 * 1024 + 1))
            assert large.status_code == 413
            assert (await client.get("/livez")).status_code == 200
            assert (await client.post("/livez")).status_code == 405
            assert (await client.get("/else")).status_code == 404

    asyncio.run(scene())
