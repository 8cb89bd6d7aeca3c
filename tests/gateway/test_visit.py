"""Whatever happens to a request ends in our words or a reset, and in one record."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Code, Refusal
from gateway.ingress.body import Body
from gateway.ingress.limits import Limits
from gateway.relay.stream import Truncated
from gateway.relay.upstream import CallerGone
from gateway.telemetry.trace import begin
from gateway.visit import Visit, recorded
from tests.gateway.stage import Records


class Writer:
    """Notes what it is to write."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def refuse(self, refusal: Refusal) -> None:
        self.done.append(str(refusal.code))

    async def abort(self) -> None:
        self.done.append("reset")


@pytest.mark.parametrize(
    ("raised", "done", "code", "status"),
    [
        (None, [], "", 0),
        (Refusal(Code.FORBIDDEN, "secret"), ["forbidden"], "", 0),
        (Truncated("secret"), ["reset"], "", 0),
        (CallerGone("secret"), [], "caller_gone", 499),
        (asyncio.CancelledError("secret"), ["overloaded"], "", 0),
        (TimeoutError("secret"), ["internal"], "", 0),
        (RecursionError("secret"), ["internal"], "", 0),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_end_of_a_request_is_one_of_ours_and_is_recorded_once(
    caplog: pytest.LogCaptureFixture,
    raised: BaseException | None,
    done: list[str],
    code: str,
    status: int,
) -> None:
    """An operator is told where something failed, never with which words."""
    sink, writer = Records(), Writer()
    visit = Visit("r" * 32, begin(None, trusted=False, sample_ratio=0), "GET", "192.0.2.1")

    async def work() -> None:
        if raised is not None:
            raise raised

    async def main() -> None:
        body = Body(_nothing, (), Limits())
        await recorded(work(), sink, visit, body, writer)

    asyncio.run(main())
    assert writer.done == done
    (record,) = sink.all
    assert (record.code, record.status) == (code, status)
    assert "secret" not in caplog.text
    assert ("work" in caplog.text) is (done == ["internal"])


async def _nothing() -> object:
    raise AssertionError("nobody reads")
