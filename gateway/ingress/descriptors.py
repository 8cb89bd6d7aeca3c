"""How many sockets this process may hold, beside how many it is configured to hold.

A common default is 1,024 open files: a few hundred slow callers would then keep everybody out,
whatever ``limits.connections`` says.

Source: attack log row D1.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

_OWN: Final = 512
"""Stores, logs, listeners, the builder's pipes."""
_LOG: Final = logging.getLogger(__name__)


def allow(connections: int) -> int:
    """Let this process hold ``connections`` callers and as many sockets to upstreams.

    Never lowers a limit. Returns the one in force, and warns when it does not even hold the
    callers: new ones then wait at the listener while it is reached.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _OWN
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < connections + _OWN:
            _LOG.warning("%d open files are allowed, fewer than connections are", soft)
    return soft
