"""Which policy a start enforces: a verified release or nothing, and never an older one again."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from gateway.compose.activating import activated
from gateway.compose.database import prepare_if_new, station_dsn
from gateway.compose.failure import CannotStart
from gateway.compose.release import enforced_policy, folder_policy
from gateway.compose.stores import Stores
from gateway.compose.trust import ReleaseMemory
from gateway.settings import Settings, load
from policies.errors import ReleaseRefused
from policies.faults import Faults
from policies.files import PolicyFiles, digest_of
from policies.loader import parse_files
from policies.release import Artefact, SigningKey, sign
from policies.snapshot import DEFAULT_FOLDER, compiled
from retrieval.embedded import Embedded
from retrieval.schema.migrate import migrate
from retrieval.stores.activation import Draft, flip, stage
from retrieval.stores.releases import release_in
from retrieval.stores.roles import POLICY
from tests.gateway.cli.made import environment
from tests.policies.release.made import (
    ANN,
    BOB,
    DEFAULT,
    edited,
    jwks,
    manifest,
    narrower,
    noted,
    release,
    wider,
)  # fmt: skip
from tests.services import Database


@dataclass(frozen=True)
class Site:
    """An installation that believes two signers, and its database."""

    settings: Settings
    stores: Stores
    tmp: Path

    def activate(self, made: Artefact) -> None:
        activated(self.settings, self.stores, made.contents, made.jws, wait_s=0)

    def start(self) -> str:
        return enforced_policy(self.settings, self.stores, None).digest

    def refusal(self) -> str:
        try:
            self.start()
        except (CannotStart, ReleaseRefused) as refused:
            assert refused.reason  # noqa: PT017 - of two kinds
            assert refused.remedy  # noqa: PT017
            return refused.code
        raise AssertionError("it started")

    def as_superuser(self, statement: str, *values: object) -> None:
        """Whoever has the database in hand, triggers or not."""
        with psycopg.connect(self.stores.database_url) as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute(statement.encode(), values or None)

    def believing(self, *keys: SigningKey, **changes: str) -> Site:
        """The same installation with other keys or another environment."""
        file = self.tmp / "other.json"
        file.write_bytes(jwks(*keys))
        told = self.settings.release.model_copy(update={"keys_file": file, **changes})
        return Site(self.settings.model_copy(update={"release": told}), self.stores, self.tmp)


@pytest.fixture
def site(services: Embedded, database: Database, tmp_path: Path) -> Site:
    (tmp_path / "keys.json").write_bytes(jwks(ANN, BOB))
    env = environment(services, database, tmp_path) | {
        "GATEWAY_RELEASE_ENVIRONMENT": "production",
        "GATEWAY_RELEASE_KEYS_FILE": str(tmp_path / "keys.json"),
    }
    stores = Stores(database.url, database.secret, services.qdrant_url, services.qdrant_api_key)
    return Site(load(None, env), stores, tmp_path)


FIRST = release(DEFAULT, 1, change="widening")
SECOND = release(narrower(), 2, by=[ANN], base=FIRST, change="narrowing")


def test_without_a_release_nothing_is_served(
    site: Site, empty_database: Database, services: Embedded
) -> None:
    """Neither from a prepared database nor from an empty one; a folder is no way around."""
    assert site.refusal() == "no_release"
    empty = Stores(
        empty_database.url, empty_database.secret, services.qdrant_url, services.qdrant_api_key
    )
    assert Site(site.settings, empty, site.tmp).refusal() == "no_release"


def test_the_active_release_is_served_link_by_link(site: Site) -> None:
    site.activate(FIRST)
    assert site.start() == FIRST.digest
    site.activate(SECOND)
    third = release(noted(narrower(), "why"), 3, by=[BOB], base=SECOND)
    site.activate(third)
    assert [site.start(), site.start()] == [third.digest] * 2


def test_an_older_release_is_refused_after_a_restart(site: Site) -> None:
    """Its signatures are as good as on its first day; only the state folder knows better."""
    site.activate(FIRST)
    site.activate(SECOND)
    assert site.start() == SECOND.digest
    site.as_superuser("update gate.policy_release set state = 'past' where generation = 2")
    site.as_superuser("update gate.policy_release set state = 'active' where generation = 1")
    site.as_superuser("update gate.active_revision set generation = 1, digest = %s", FIRST.digest)
    assert site.refusal() == "older_generation"
    (site.tmp / "state" / "release.json").write_text("{")
    assert site.refusal() == "memory_unusable"


def test_a_number_is_not_used_for_two_releases(site: Site) -> None:
    site.activate(FIRST)
    ReleaseMemory(site.settings).write(1, SECOND.digest)
    assert site.refusal() == "generation_reused"


def test_nobody_stands_in_for_the_release_that_was_accepted_last(site: Site) -> None:
    """One signer and the database: the active release is replaced under its own number by a
    narrowing of an older one that opens more, and the next one stands on that. Found by attack."""
    leaky = release(wider(), 1, change="widening")
    good = release(DEFAULT, 2, base=leaky, change="narrowing")
    site.activate(leaky)
    site.activate(good)
    assert site.start() == good.digest
    instead = release(noted(wider(), "instead"), 2, by=[ANN], base=leaky)
    after = release(noted(wider(), "after"), 3, by=[ANN], base=instead)
    stored = (
        "update gate.policy_release set digest = %s, jws = %s, files = %s where generation = 2",
        "update gate.policy_release set state = 'past' where state = 'active'",
        "insert into gate.policy_release (digest, jws, files, generation, environment, change,"
        " base_generation, base_digest, state, activated_at) values (%s, %s, %s, 3,"
        " 'production', 'none', 2, %s, 'active', now())",
        "update gate.active_revision set generation = 3, digest = %s",
    )
    site.as_superuser(stored[0], *_as_stored(instead))
    site.as_superuser(stored[1])
    site.as_superuser(stored[2], *_as_stored(after), instead.digest)
    site.as_superuser(stored[3], after.digest)
    assert site.refusal() == "generation_reused"


def _as_stored(made: Artefact) -> tuple[object, ...]:
    files = {path: content.decode() for path, content in made.contents.items()}
    return made.digest, Jsonb(made.jws), Jsonb(files)


TAMPERED: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "hash_mismatch": (
        "update gate.policy_release set files = jsonb_set(files, '{rules/units.csv}', to_jsonb("
        "(files ->> 'rules/units.csv') || '# one word more'))",
        (),
    ),
    "unsigned": ("update gate.policy_release set jws = null", ()),
    "malformed_release": (
        'update gate.policy_release set jws = \'["payload", "signatures"]\'',
        (),
    ),
    "unreadable": (
        "update gate.policy_release set files = jsonb_set(files, '{rules/units.csv}', '7')",
        (),
    ),
    "bad_signature": (
        "update gate.policy_release set jws = jsonb_set(jws, '{signatures,0,signature}',"
        " jws #> '{signatures,1,signature}')",
        (),
    ),
    "revision_differs": ("update gate.active_revision set digest = %s", ("f" * 64,)),
    "grants_differ": (
        "update gate.profile_grant set consented = plain where profile = 'partner'",
        (),
    ),
}


@pytest.mark.parametrize("code", sorted(TAMPERED))
def test_whatever_was_changed_in_the_database_is_found_at_start(site: Site, code: str) -> None:
    statement, values = TAMPERED[code]
    site.activate(FIRST)
    site.as_superuser(statement, *values)
    assert site.refusal() == code


def test_another_environment_and_withdrawn_keys_believe_nothing(site: Site) -> None:
    site.activate(FIRST)
    assert site.believing(ANN, BOB, environment="staging").refusal() == "other_environment"
    eve = SigningKey.generate("eve")
    assert site.believing(ANN, eve).refusal() == "unknown_signer"
    assert site.believing(ANN).refusal() == "keys_unusable"


def test_a_release_that_understates_its_change_is_not_activated(site: Site) -> None:
    """Both signers were told that nothing opens."""
    site.activate(FIRST)
    lying = release(wider(), 2, base=FIRST, change="none")
    with pytest.raises(ReleaseRefused, match="change_understated"):
        site.activate(lying)
    site.activate(release(wider(), 2, base=FIRST, change="widening"))


def test_a_development_start_records_its_folder_and_leaves_signed_releases_alone(
    site: Site,
) -> None:
    own = folder_policy(DEFAULT_FOLDER)
    development = Site(
        site.settings.model_copy(update={"release": Settings().release}), site.stores, site.tmp
    )
    assert enforced_policy(development.settings, site.stores, own).digest == FIRST.digest
    told = manifest(DEFAULT, 2, change="widening")
    activated(site.settings, site.stores, DEFAULT, sign(told, [ANN, BOB]), wait_s=0)
    with pytest.raises(ReleaseRefused) as caught:
        enforced_policy(development.settings, site.stores, _with_a_note(own))
    assert caught.value.code == "environment_differs"


def _with_a_note(own: Any) -> Any:
    from dataclasses import replace

    contents = noted(own.contents, "other")
    digest = release(contents, 1).digest
    return replace(own, snapshot=replace(own.snapshot, digest=digest), contents=contents)


RETIRED = {
    **edited(DEFAULT, "rules/vocabulary.yaml", b"retired: {}", b"retired: {kind: [other]}"),
    "rules/units.csv": DEFAULT["rules/units.csv"].replace(b"|thread|other", b"|thread"),
}


def test_an_activation_that_was_overtaken_leaves_the_words_of_the_other(site: Site) -> None:
    """Found by attack: the loser wrote the words back that were active when it began, over those
    of the policy that is enforced now."""
    site.activate(FIRST)
    site.as_superuser(
        "insert into gate.replica (id, seen_at, digest, generation) values"
        " (gen_random_uuid(), now() + interval '1 hour', '', 1)"
    )
    slow = release(noted(DEFAULT, "slow"), 2, base=FIRST)
    over = release(RETIRED, 3, base=FIRST, change="narrowing")
    policy = parse_files(PolicyFiles(dict(RETIRED), over.digest, frozenset()), Faults())
    snapshot = compiled(policy)[0]
    draft = Draft(
        environment="production", digest=over.digest, contents=RETIRED, change="narrowing",
        generation=3, base=(1, FIRST.digest), jws=over.jws,
    )  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        loser = pool.submit(
            activated, site.settings, site.stores, slow.contents, slow.jws, wait_s=60
        )
        with psycopg.connect(station_dsn(site.stores, POLICY), autocommit=True) as connection:
            while release_in(connection, "staged") is None:
                assert not loser.done()
            migrate(site.stores.database_url, site.stores.database_secret, snapshot)
            stage(connection, draft)
            flip(connection, snapshot, 3)
        site.as_superuser("delete from gate.replica")
        with pytest.raises(ReleaseRefused, match="not_staged"):
            loser.result()
    with psycopg.connect(site.stores.database_url) as admin:
        (retired,) = admin.execute(
            "select retired from gate.facet_word where facet = 'kind' and word = 'other'"
        ).fetchall()
    assert retired == (True,)


def test_a_command_that_writes_data_leaves_the_words_of_a_signed_policy_alone(site: Site) -> None:
    """Found by attack: to ingest from a folder that nobody signed wrote its order of strictness
    into the database, and what threads fill became looser at once."""
    site.activate(FIRST)
    loose = edited(
        DEFAULT,
        "rules/vocabulary.yaml",
        b"visibility: [public, partner, employee, internal, restricted]\n  publication_state",
        b"visibility: [restricted, internal, employee, partner, public]\n  publication_state",
    )
    parsed = parse_files(PolicyFiles(dict(loose), digest_of(loose), frozenset()), Faults())
    prepare_if_new(site.stores, compiled(parsed)[0], signed=True)
    with psycopg.connect(site.stores.database_url) as admin:
        ranks = admin.execute(
            "select word from gate.facet_word where facet = 'visibility' order by rank"
        ).fetchall()
    assert ranks[0] == ("public",)
    prepare_if_new(site.stores, folder_policy(DEFAULT_FOLDER).snapshot, signed=True)
