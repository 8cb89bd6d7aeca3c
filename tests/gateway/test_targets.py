"""Addresses of upstreams belong to upstreams that the policy has.

Chosen by us: an address under a wrong name would be configured and never used.
"""

from __future__ import annotations

import importlib.util

import pytest

from gateway.compose.failure import CannotStart
from gateway.compose.upstreams import fleet_of, targets
from gateway.settings import UpstreamSettings

HERE = UpstreamSettings(address="http://127.0.0.1:9")


def test_a_variable_with_underscores_means_the_policys_name() -> None:
    """The environment cannot hold a hyphen."""
    found = targets({"customer_portal": HERE}, {"customer-portal", "partner-portal"})
    assert list(found) == ["customer-portal"]


def test_an_address_for_an_unknown_upstream_ends_the_start() -> None:
    """With the names that would have been right."""
    with pytest.raises(CannotStart, match="unknown_upstream") as refused:
        targets({"costumer-portal": HERE}, {"customer-portal"})
    assert "customer-portal" in refused.value.remedy


def test_a_client_that_is_not_installed_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra of this clone: the name of the package may be a stranger's in a registry."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CannotStart, match="client_missing") as refused:
        fleet_of(HERE.model_copy(update={"client": "aiohttp"}))
    assert '.venv/bin/pip install -e ".[aiohttp]"' in refused.value.remedy
