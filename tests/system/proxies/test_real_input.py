"""What attackers really send, through each real proxy: nothing arrives that was not decided.

Provenance: ../shared/data/http (702 payloads, 869 URL cases, 563 header names).
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.examples import spaced
from tests.system.proxies.conftest import Front
from tests.system.proxies.recorder import one_reading

BATCH = 30


def _lines(folder: Path, name: str, key: str) -> list[str]:
    text = (folder / "http" / name).read_text()
    return [json.loads(line)[key] for line in text.splitlines()]


def _sent(front: Front, target: str) -> None:
    raw = f"GET {target} HTTP/1.1\r\nHost: portal.test\r\nConnection: close\r\n\r\n"
    front.ask(raw.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("file", "key", "count"),
    [("payloads.jsonl", "value", 702), ("wpt_urltestdata.jsonl", "input", 869)],
)
def test_visitor_reaches_nothing_but_what_the_policy_opens(
    front: Front, shared_data: Path, file: str, key: str, count: int
) -> None:
    """As a path of its own and below the one portal that visitors may have; a third of them in
    the ordinary profile (``tests/adversary`` sends all without a proxy)."""
    found = _lines(shared_data, file, key)
    assert len(found) == count
    for value in found[:: spaced(1)]:
        _sent(front, value)
        _sent(front, f"/portal/customer/{value.lstrip('/')}")
    for got in front.arrived:
        assert one_reading(got).startswith("/portal/customer/")
        assert got.one("x-gateway-audience") == "customer"


def test_no_header_name_changes_who_asks(front: Front, shared_data: Path) -> None:
    """Every name that is known to alter back ends, with words that would be worth having."""
    names = (shared_data / "http" / "header_names.txt").read_text().split()
    assert len(names) == 563
    mine = {"authorization", "connection", "host", "content-length", "transfer-encoding", "upgrade"}
    names = [name for name in names if name not in mine]
    token = front.stage.issuers.token("partner")
    for start, word in itertools.product(range(0, len(names), BATCH), ("employee", "internal")):
        lines = [f"{name}: {word}" for name in names[start : start + BATCH]]
        front.recorder.reset()
        front.get("/portal/employee/home", *lines)
        front.get("/portal/employee/home", f"Authorization: Bearer {token}", *lines)
        assert front.arrived == []
        front.get("/portal/partner/home", f"Authorization: Bearer {token}", *lines)
        for got in front.arrived:
            assert got.one("x-gateway-audience") == got.one("x-gateway-profile") == "partner"
            assert one_reading(got) == "/portal/partner/home"
