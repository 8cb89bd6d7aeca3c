"""What is remembered takes no more than the memory counts of it, whatever its targets look like."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from gateway.relay import assertion
from tests.gateway.fastpath.asking import Caller, forget, head
from tests.gateway.fastpath.test_decisions import asked
from tests.gateway.forward_auth.asking import ADDRESSES
from tests.gateway.stage import Stage

TARGETS = 40
LONG = {
    "one segment": "y" * 7_900,
    "many segments": "yy/" * 2_600,
    "a query": f"a?b={'y' * 7_900}",
}


def held(stage: Stage) -> int:
    """Bytes that are taken once nothing is under way, less what the stage itself keeps."""
    stage.upstream.requests.clear()
    stage.records.all.clear()
    assertion.wording.cache_clear()
    stage.call(asyncio.sleep(0))
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("tail", LONG.values(), ids=LONG)
@pytest.mark.parametrize("source", ["127.0.0.1", ADDRESSES["nginx"]], ids=["relayed", "decided"])
def test_long_targets_take_what_is_counted(deciding: Stage, source: str, tail: str) -> None:
    """Each holds its assertion, its claims and its parts besides itself."""
    forget(deciding)
    token, memory = deciding.issuers.token("customer"), deciding.keeper.memory

    def raw(target: str) -> bytes:
        if source == "127.0.0.1":
            return head(deciding, target, token=token)
        return asked("nginx", target, [], token=token)

    with Caller(deciding, source=source) as caller:
        for _ in range(2):
            assert caller.ask(raw("/portal/customer/x")).startswith(b"HTTP/1.1 200")
        tracemalloc.start()
        try:
            taken, counted = held(deciding), memory.held_bytes
            for number in range(TARGETS):
                assert caller.ask(raw(f"/portal/customer/{tail}{number:04}")).startswith(b"HTTP")
            taken, counted = held(deciding) - taken, memory.held_bytes - counted
        finally:
            tracemalloc.stop()
    assert 0 < taken < 1.1 * counted
