"""The gateway under a client that fragments, pauses, resets and pipelines at random."""

from __future__ import annotations

import asyncio
import re
import sys
import time

import pytest

from tests.adversary.fuzzing import PEOPLE, PORTALS, Tally, fuzz
from tests.adversary.process import Gateway


def tokens(gateway: Gateway) -> dict[str, str]:
    """A token of each kind of person, good for as long as the run takes."""
    exp = int(time.time()) + 3_000
    return {who: gateway.issuers.token(who, exp=exp) for who in PEOPLE if who}


def tasks(gateway: Gateway) -> int:
    """The tasks of the process's event loop, as its metrics tell."""
    raw = gateway.raw(
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", listener="second"
    )
    found = re.search(rb"^gateway_tasks (\S+)$", raw, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def nothing_went_to_the_wrong_place(gateway: Gateway, tally: Tally) -> None:
    """No fault, and what arrived was the caller's own portal as that audience."""
    assert tally.faults == []
    for seen in gateway.arrived:
        audience = seen.portal.removesuffix("-portal")
        assert seen.target.startswith(f"/portal/{audience}/")
        assert seen.value("x-gateway-audience") == audience


@pytest.mark.timeout(180)
def test_random_client_gets_its_own_answers_or_none(gateway: Gateway) -> None:
    """A few seconds of it, the same ones every time; nothing of it is left in the process."""
    sockets = gateway.sockets()
    people = tokens(gateway)
    tally = asyncio.run(fuzz(gateway.port, people, seed=4, requests=1_500))
    nothing_went_to_the_wrong_place(gateway, tally)
    assert tally.statuses[200] > 800
    assert tally.statuses[403] > 50
    assert {seen.portal for seen in gateway.arrived} == {f"{one}-portal" for one in PORTALS}
    # what the pools keep: one profile per portal, as many at once as there were callers
    assert gateway.settled_sockets(sockets + 3 * 24) <= sockets + 3 * 24


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_long_run_of_the_random_client_leaves_nothing_behind(gateway: Gateway) -> None:
    """200,000 requests or ten minutes, whichever is later to come, 25 minutes at most: memory,
    tasks and sockets are afterwards what they were after the first tenth."""
    people = tokens(gateway)
    asyncio.run(fuzz(gateway.port, people, seed=1, requests=20_000))
    gateway.arrived.clear()
    first = (gateway.rss_kib(), tasks(gateway), gateway.settled_sockets(200))
    began, sent, seed = time.monotonic(), 0, 100
    measured = [first]
    while (sent < 200_000 or time.monotonic() - began < 600) and time.monotonic() - began < 1_300:
        seed += 1
        tally = asyncio.run(fuzz(gateway.port, people, seed=seed, requests=20_000))
        nothing_went_to_the_wrong_place(gateway, tally)
        gateway.arrived.clear()
        sent += tally.answered
        sockets = gateway.settled_sockets(first[2])
        measured.append((gateway.rss_kib(), tasks(gateway), sockets))
        print(f"{time.monotonic() - began:.0f} s, {sent} requests, rss KiB, tasks, sockets:",
              measured[-1], dict(tally.statuses), dict(tally.ends), file=sys.stderr)  # fmt: skip
    assert sent >= 200_000
    last = measured[-1]
    assert last[0] - first[0] < 16 * 1024
    assert last[1] <= first[1]
    assert last[2] <= first[2] + 8
