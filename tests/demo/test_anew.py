"""A demo folder of another version: what is told of it, and how it is begun anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deploy.demo.anew import begin_anew, of_another_version
from gateway.compose.failure import CannotStart
from retrieval.embedded import EmbeddedError, places, start
from tests.services import state_folder


@pytest.fixture(autouse=True)
def _own_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATEWAY_DATABASE_URL", "GATEWAY_QDRANT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def state() -> Iterator[Path]:
    with state_folder() as folder:
        yield folder


def tables(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(*) from pg_tables where tablename = 'left_over'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_folder_that_is_begun_anew_holds_no_data_and_keeps_its_addresses(state: Path) -> None:
    """Data, their secrets and what was remembered of releases go; the rest stays."""
    with start(state, durable=False) as pair:
        with psycopg.connect(pair.database_url) as connection:
            connection.execute("create table left_over ()")
        with pytest.raises(EmbeddedError, match="state_held"):  # nobody's data under his feet
            begin_anew(state)
        assert tables(pair.database_url) == 1
    (state / "release.json").write_text("{}")
    (state / "assertion-key.pem").write_text("kept")
    (state / "demo").mkdir()
    (state / "demo" / "kept.json").write_text("kept")
    copied = places.arrange(state).postgres / f"{places.INSTALL}1-2"
    copied.mkdir()
    begin_anew(state)
    assert not (state / "services.json").exists()
    assert not (state / "release.json").exists()
    assert copied.is_dir()
    assert (state / "assertion-key.pem").read_text() == "kept"
    assert (state / "demo" / "kept.json").read_text() == "kept"
    with start(state, durable=False) as pair:
        assert tables(pair.database_url) == 0


@pytest.mark.parametrize("store", ["postgres", "qdrant"])
def test_data_that_we_may_not_have_written_are_left_alone(store: str, state: Path) -> None:
    """Regression: any folder with such a name in it was emptied, as others keep volumes."""
    theirs = state / store / "volume"
    theirs.mkdir(parents=True)
    with pytest.raises(EmbeddedError, match="state_incomplete"):
        begin_anew(state)
    assert theirs.is_dir()
    theirs.rmdir()
    begin_anew(state)  # nothing there is nothing to remove


@pytest.mark.parametrize("name", ["GATEWAY_DATABASE_URL", "GATEWAY_QDRANT_URL"])
def test_stores_of_somebody_else_are_never_emptied(
    name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "postgresql://db.internal/gateway")
    with pytest.raises(CannotStart) as refused:
        begin_anew(state)
    assert refused.value.code == "not_our_stores"
    assert name in refused.value.reason
    assert not state.exists()


def test_another_versions_folder_is_told_with_its_place_and_both_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code, place, reason, remedy. A database of one's own is not the demo's to begin anew."""
    differs = CannotStart("schema_differs", "`0130_signals.sql` was edited", "in general")
    home = Path("of-the-demo")
    with pytest.raises(CannotStart) as told, of_another_version(home):
        raise differs
    assert told.value.code == "state_of_another_version"
    assert "`of-the-demo`" in told.value.reason
    assert "`0130_signals.sql` was edited" in told.value.reason
    assert "make demo ARGS=--fresh" in told.value.remedy
    assert "GATEWAY_STATE" in told.value.remedy
    for other in (CannotStart("database_unfit", "x", "y"), differs):
        with pytest.raises(CannotStart) as told, of_another_version(home):
            raise other
        assert (told.value is other) == (other is not differs)
    monkeypatch.setenv("GATEWAY_DATABASE_URL", "postgresql://db.internal/gateway")
    with pytest.raises(CannotStart) as told, of_another_version(home):
        raise differs
    assert told.value is differs
