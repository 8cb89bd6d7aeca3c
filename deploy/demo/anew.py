"""A state folder of another version of this program: told with a way out, begun anew on request.

Numbered schema files are never edited once a release has them; between two commits of a clone
they may be, and the demo keeps its data from one start to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.compose.database import SCHEMA_DIFFERS
from gateway.compose.failure import CannotStart
from gateway.compose.trust import MEMORY_FILE
from retrieval.embedded import places
from retrieval.embedded.state import Hold, discard

_ADDRESSES = ("GATEWAY_DATABASE_URL", "GATEWAY_QDRANT_URL")


def own_stores() -> bool:
    """Whether the demo starts at least one store of its own."""
    return not all(map(os.environ.get, _ADDRESSES))


def begin_anew(state: Path | None) -> None:
    """Remove what the embedded stores hold in this folder (None: the clone's own), and what was
    remembered of its releases. Ports, client secrets and the signing key stay.

    Raises: CannotStart where a store is somebody else's; EmbeddedError ``state_held``, and
    ``state_incomplete`` for data that we may not have written.
    """
    foreign = [name for name in _ADDRESSES if os.environ.get(name)]
    if foreign:
        reason = f"{' and '.join(foreign)} name stores that are not the demo's to empty"
        raise CannotStart("not_our_stores", reason, "unset them, or start without --fresh")
    arranged = places.arrange(state)
    hold = Hold(arranged, parent=os.getpid())
    try:
        discard(arranged)
        (arranged.state / MEMORY_FILE).unlink(missing_ok=True)
    finally:
        hold.release()


@contextmanager
def of_another_version(home: Path) -> Iterator[None]:
    """Say of a schema that is not ours in which folder it is, and what makes the demo start.

    Raises: CannotStart ``state_of_another_version``, and what the block raises.
    """
    try:
        yield
    except CannotStart as error:
        if error.code != SCHEMA_DIFFERS or os.environ.get(_ADDRESSES[0]):
            raise
        reason = f"the data in `{home}` cannot be used: {error.reason}"
        remedy = (
            "begin anew with `make demo ARGS=--fresh` (documents, labels and journal in it go),"
            " or set GATEWAY_STATE to another folder"
        )
        raise CannotStart("state_of_another_version", reason, remedy) from error
