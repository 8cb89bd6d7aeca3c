"""A low limit of open files is raised before anybody is let in. Attack log row D1."""

from __future__ import annotations

import subprocess
import sys

from tests.gateway.cli.made import clean

PROGRAM = """
import resource, sys
from gateway.ingress.descriptors import allow
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allowed = allow(connections)
assert allowed == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
print(allowed)
"""


def allowed(soft: int, hard: int, connections: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(connections)],
        env=clean(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout), done.stderr


def test_limit_is_raised_to_what_the_connections_need_and_never_lowered() -> None:
    """Twice the connections and some, up to the hard limit; a warning when that is too little."""
    assert allowed(256, 8_000, 1_000) == (2_512, "")
    assert allowed(256, 2_000, 1_000) == (2_000, "")
    assert allowed(4_000, 8_000, 1_000) == (4_000, "")
    limit, told = allowed(256, 1_000, 1_000)
    assert (limit, "1000 open files are allowed" in told) == (1_000, True)
