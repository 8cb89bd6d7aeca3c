"""The real services that tests run against: one embedded pair for the whole session.

Started when the first test asks for it, in a folder of its own, without crash safety (the
folder is thrown away). Databases are cheap: every test that writes takes its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from retrieval.embedded import Embedded, start

_MEMORY_BYTES_MIN: Final = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class Cluster:
    """The shared Postgres. ``admin_url`` is the superuser's, to the database ``postgres``.

    ``secret`` is the database secret: the passwords of the station roles come from it.
    """

    admin_url: str
    secret: str


@dataclass(frozen=True, slots=True)
class Database:
    """One database of the cluster. ``url`` is the superuser's."""

    url: str
    secret: str
    name: str


@dataclass(frozen=True, slots=True)
class VectorService:
    """The shared vector engine. Take a collection name of your own."""

    url: str
    api_key: str


@contextmanager
def embedded_pair(*, in_memory: bool = False) -> Iterator[Embedded]:
    """Both services in a throw-away folder that Postgres's account may enter.

    ``in_memory``: where there is room. A database of a test's own is there in 30 ms instead of
    330, and there are hundreds. Not for what fills a store.
    """
    folder = state_folder(_memory() if in_memory else None)
    with folder as state, start(state, durable=False) as pair:
        yield pair


def log_in_quickly(cluster: Cluster) -> None:
    """Passwords of this cluster are hashed once from now on, not 4,096 times: thousands of
    connections are made to it, and a login costs its client 0.5 ms of the processor, not 2.7."""
    password = urlsplit(cluster.admin_url).password or ""
    with psycopg.connect(cluster.admin_url, autocommit=True) as admin:
        admin.execute("alter role all set scram_iterations = 1")
        admin.execute("set scram_iterations = 1")
        admin.execute(
            sql.SQL("alter role current_user password {}").format(sql.Literal(unquote(password)))
        )


def _memory() -> Path | None:
    """A file system in memory with room for the services of a run; None: the usual place."""
    shared = Path("/dev/shm")  # noqa: S108 - what is made in it is a folder of its own
    if not os.access(shared, os.W_OK | os.X_OK):
        return None
    return shared if shutil.disk_usage(shared).free >= _MEMORY_BYTES_MIN else None


@contextmanager
def state_folder(within: Path | None = None) -> Iterator[Path]:
    """A throw-away folder for an embedded state; pytest's own are closed to other accounts."""
    folder = Path(tempfile.mkdtemp(prefix="audience-gateway-", dir=within))
    try:
        if os.geteuid() == 0:
            folder.chmod(0o711)
        yield folder / "state"
    finally:
        shutil.rmtree(folder)


def cluster_of(pair: Embedded) -> Cluster:
    return Cluster(
        admin_url=at_database(pair.database_url, "postgres"), secret=pair.database_secret
    )


def at_database(url: str, name: str) -> str:
    """The same server and account, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def fresh_database(cluster: Cluster, *, template: str = "template1") -> Iterator[Database]:
    """A new database, a copy of ``template``; dropped afterwards, open sessions or not."""
    name = f"test_{uuid4().hex[:16]}"
    with psycopg.connect(cluster.admin_url, autocommit=True) as admin:
        admin.execute(
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        try:
            yield Database(
                url=at_database(cluster.admin_url, name), secret=cluster.secret, name=name
            )
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
