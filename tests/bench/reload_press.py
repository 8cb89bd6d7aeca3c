"""``python -m tests.bench.reload_press FOLDER``: told to, stage; wait for replicas; flip.

What ``gateway policy activate`` does, without proving the policy a second time here.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psycopg

from gateway.settings.reading import load
from policies.faults import Faults
from policies.loader import parse_files
from policies.release import contents_of
from policies.snapshot import compiled
from retrieval.stores.activation import Draft, flip, stage
from retrieval.stores.releases import replicas
from retrieval.stores.roles import POLICY, dsn_for

WAIT_SECONDS = 600.0


def main(folder: Path) -> None:
    settings = load(None, os.environ)
    assert settings.database.url is not None
    assert settings.database.secret is not None
    found = contents_of(folder)
    snapshot, _ = compiled(parse_files(found, Faults()))
    secret = settings.database.secret.get_secret_value()
    with psycopg.connect(
        dsn_for(POLICY, settings.database.url, secret), autocommit=True
    ) as connection:
        sys.stdin.readline()
        generation = stage(
            connection,
            Draft(
                environment=settings.release.environment,
                digest=snapshot.digest,
                contents=found.contents,
                change="none",
            ),
        )
        end = time.monotonic() + WAIT_SECONDS
        while {one.staged_state for one in replicas(connection)} != {"prepared"}:
            assert time.monotonic() < end, replicas(connection)
            time.sleep(0.2)
        time.sleep(1.0)  # so that receiving and swapping can be told apart
        flip(connection, snapshot, generation, activated_by="bench")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
