"""What signers are shown and what they sign was signed before, whatever the database says.

Provenance: an attack on issue 3, point 6, by somebody who writes the database and has no key.
"""

from __future__ import annotations

import psycopg
import pytest

from policies.release import contents_of
from retrieval.stores.roles import POLICY, dsn_for
from tests.gateway.cli.test_policy_release import (
    WIDER,
    Desk,
    desk,
    drawer,
    first,
    policy,
    released,
)

__all__ = ["desk", "drawer", "first", "released"]

PLANTED = """
insert into gate.policy_release (generation, environment, digest, change, jws, files, state,
                                 activated_at)
select 7, environment, %s, 'none', jws, jsonb_set(files, '{rules/units.csv}',
       to_jsonb((files ->> 'rules/units.csv') || %s)), 'past', now()
from gate.policy_release where generation = 1
"""
ALTERED = """
update gate.policy_release
set files = jsonb_set(files, '{rules/units.csv}', to_jsonb((files ->> 'rules/units.csv') || %s))
where generation = 1
"""


def test_going_back_signs_only_what_was_signed(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Activation's own login may insert a release that is already past: the newest of those is
    what `rollback` goes back to, and both signers would have signed it."""
    released.append(WIDER)
    digest = contents_of(released.folder).digest
    dsn = dsn_for(POLICY, released.database.url, released.database.secret)
    with psycopg.connect(dsn) as connection:
        connection.execute(PLANTED.encode(), [digest, WIDER])
    both = released.key("ann", "bob")
    for generation in ([], [7]):
        assert policy("rollback", *generation, *both, "--reason", "trouble") == 3
        assert "mislabelled" in capsys.readouterr().err
    assert released.active == 1


def test_a_signer_is_shown_the_change_against_what_was_signed(
    released: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the live files altered to be as wide as the folder, nothing would seem to open."""
    with psycopg.connect(released.database.url) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute(ALTERED.encode(), [WIDER])
    released.append(WIDER)
    assert policy("approve", released.folder, *released.key("ann")) == 3
    assert "hash_mismatch" in capsys.readouterr().err
