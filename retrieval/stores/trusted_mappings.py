"""Which mappings an active revision lets widen labels, as the database reads it (0060).

A row names a mapping together with the hash of all that it says: an edited mapping of the same
name, or one from a file outside the policy, is not trusted. Runs as ``gw_policy``, inside the
activation's transaction. Labels themselves are none of this module's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from policies.mapping import Relabel
from policies.snapshot import Snapshot


def write_trusted(
    connection: psycopg.Connection[Any], snapshot: Snapshot, *, kept: Sequence[str]
) -> None:
    """Writes the trusted mappings of ``snapshot`` under its digest; none is a complete answer.

    Rows of digests that are not ``kept`` are removed. Cost: two statements.
    """
    trusted = [one for one in snapshot.mappings.values() if one.relabel is Relabel.TRUSTED]
    connection.execute(
        "delete from gate.trusted_mapping where digest = %s or digest <> all (%s)",
        [snapshot.digest, list(kept)],
    )
    connection.execute(
        "insert into gate.trusted_mapping (digest, mapping, sha256)"
        " select %s, * from unnest(%s::text[], %s::text[])",
        [snapshot.digest, [one.name for one in trusted], [one.fingerprint for one in trusted]],
    )
