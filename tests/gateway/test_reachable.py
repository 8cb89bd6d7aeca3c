"""Stores that are there already are found; none is started for who only asks.

Provenance: `policy approve` without a database took an empty embedded store for what is active.
"""

from __future__ import annotations

import psycopg

from gateway.compose.stores import reachable
from gateway.settings import Settings
from retrieval.embedded import start
from tests.services import state_folder


def test_embedded_stores_are_found_while_somebody_runs_them_and_are_never_started() -> None:
    """Before and after there is nothing, and nothing is made."""
    with state_folder() as state:
        settings = Settings.model_validate({"state": state})
        assert reachable(settings) is None
        assert not state.exists()
        with start(state, durable=False) as pair:
            found = reachable(settings)
            assert found is not None
            assert found.held
            assert found.database_secret == pair.database_secret
            with psycopg.connect(found.database_url) as connection:
                assert connection.execute("select 1").fetchone() == (1,)
        assert reachable(settings) is None


def test_a_configured_database_is_taken_at_its_word() -> None:
    """Without a vector engine, too: whoever reads releases needs none."""
    url = "postgresql://owner@127.0.0.1:9/gateway"
    settings = Settings.model_validate({"database": {"url": url, "secret": "s"}})
    found = reachable(settings)
    assert found is not None
    assert (found.database_url, found.database_secret, found.held) == (url, "s", False)
