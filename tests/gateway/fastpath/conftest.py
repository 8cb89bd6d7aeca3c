"""Policies that may come into force, and a gateway whose policy believes proxies."""

from __future__ import annotations

import pytest

from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from tests.gateway.forward_auth.conftest import deciding as deciding
from tests.gateway.forward_auth.conftest import deciding_stage as deciding_stage
from tests.gateway.forward_auth.conftest import trusting as trusting
from tests.gateway.tokens import Issuers

_EDITS = {
    "no customer portal": (
        "rules/routes.csv",
        "p, R-CUS-1, customer, portal-customer, GET|HEAD|POST, allow\n",
        "",
    ),
    "other upstream": (
        "rules/routes.yaml",
        "upstream: customer-portal",
        "upstream: partner-portal",
    ),
}


@pytest.fixture(scope="session")
def others(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    """Policies with one rule changed, by what is different."""
    found = {}
    for name, (file, old, new) in _EDITS.items():
        folder = tmp_path_factory.mktemp("others")
        issuers.write(folder)
        text = (DEFAULT_FOLDER / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
        found[name] = load(overlay=folder)
    return found


@pytest.fixture(scope="session")
def covering(issuers: Issuers, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A policy with a route for customers where the gateway publishes its contract."""
    folder = tmp_path_factory.mktemp("covering")
    issuers.write(folder)
    for file, old, new in (
        ("routes.yaml", "path: /portal/partner/{rest...}", "path: /v1/openapi.json"),
        ("routes.yaml", "upstream: partner-portal", "upstream: customer-portal"),
        ("routes.csv", "p, R-PAR-1, partner,", "p, R-PAR-1, customer,"),
    ):
        edited = folder / "rules" / file
        text = (edited if edited.exists() else DEFAULT_FOLDER / "rules" / file).read_text()
        assert old in text
        edited.write_text(text.replace(old, new))
    return load(overlay=folder)
