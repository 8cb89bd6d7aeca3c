"""Releases as their signers would make them, good and bad, pushed into a database under test."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from gateway.compose.activating import activated
from gateway.compose.stores import Stores
from gateway.settings.model import Settings
from policies.faults import Faults
from policies.files import PolicyFiles, digest_of
from policies.loader import parse_files
from policies.release import Manifest, SigningKey, contents_of, sign
from policies.release.artefact import files_of
from policies.snapshot import DEFAULT_FOLDER, Snapshot, compiled
from retrieval.stores.activation import Draft, abandon, flip, next_generation, stage
from retrieval.stores.releases import release_in, replicas
from retrieval.stores.roles import POLICY, dsn_for
from tests.gateway.tokens import Issuers

ENVIRONMENT = "testing"
WAIT_SECONDS = 60.0
KINDS = ("faq", "guide", "sop")
"""What each variant of the policy lets a customer read, or not, by a bit of its number."""
UNITS = {kind: f"handbook/{kind}" for kind in KINDS}
BAD = (
    "broken_file", "unsound", "changed_model", "tampered", "one_signer_widens", "stranger_signs",
    "other_environment", "mislabelled",
)  # fmt: skip
"""Ways in which a release must not be taken."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One policy, compiled, and the units that a customer may read under it."""

    contents: Mapping[str, bytes]
    snapshot: Snapshot
    readable: frozenset[str]


@dataclass(slots=True)
class Signers:
    """Two people who are trusted, one who is not, and the settings that say so."""

    trusted: list[SigningKey] = field(
        default_factory=lambda: [SigningKey.generate("ada"), SigningKey.generate("ben")]
    )
    stranger: SigningKey = field(default_factory=lambda: SigningKey.generate("ada"))

    def settings(self, folder: Path) -> dict[str, str]:
        """The environment variables of a gateway that believes them."""
        file = folder / "signers.jwks"
        keys = [{**one.key.as_dict(private=False), "kid": one.signer} for one in self.trusted]
        file.write_text(json.dumps({"keys": keys}))
        return {
            "GATEWAY_RELEASE_ENVIRONMENT": ENVIRONMENT,
            "GATEWAY_RELEASE_KEYS_FILE": str(file),
        }


def variants(issuers: Issuers) -> tuple[Variant, ...]:
    """Eight policies that differ in what a customer may read, believing ``issuers``.

    Cost: half a second.
    """
    with TemporaryDirectory() as folder:
        issuers.write(Path(folder))
        files = dict(contents_of(DEFAULT_FOLDER, Path(folder)).contents)
    rules = files["rules/units.csv"].decode()
    found = []
    for number in range(1 << len(KINDS)):
        closed = [kind for bit, kind in enumerate(KINDS) if not number >> bit & 1]
        lines = [
            _without(line, closed) if line.startswith("p, U-CUS-") else line
            for line in rules.split("\n")
        ]
        contents = files | {"rules/units.csv": "\n".join(lines).encode()}
        readable = frozenset(UNITS[kind] for kind in KINDS if kind not in closed)
        found.append(Variant(contents, snapshot_of(contents), readable))
    return tuple(found)


def _without(line: str, kinds: list[str]) -> str:
    cells = line.split(", ")
    cells[8] = "|".join(word for word in cells[8].split("|") if word not in kinds)
    return ", ".join(cells)


def snapshot_of(contents: Mapping[str, bytes]) -> Snapshot:
    found = PolicyFiles(dict(contents), digest_of(contents), frozenset())
    return compiled(parse_files(found, Faults()))[0]


@dataclass(slots=True)
class Press:
    """Makes releases and pushes them the way the command does, without its second proof."""

    stores: Stores
    signers: Signers

    def first(self, settings: Settings, variant: Variant) -> None:
        """Activate through the product's own door, in an empty database."""
        manifest = self._manifest(variant.contents, 1, None)
        jws = sign(manifest, self.signers.trusted)
        activated(settings, self.stores, variant.contents, jws, wait_s=0)  # nobody serves yet

    async def good(self, variant: Variant) -> str:
        """Stage, wait until every living replica is ready, flip. Gives the digest."""
        return await asyncio.to_thread(self._good, variant)

    async def forced(self, variant: Variant) -> str:
        """Stage and flip in one breath, before anybody could prepare. Gives the digest."""
        return await asyncio.to_thread(self._forced, variant)

    async def bad(self, variant: Variant, way: str) -> str:
        """Stage something that must not be taken; the code with which it was refused."""
        return await asyncio.to_thread(self._bad, variant, way)

    def _good(self, variant: Variant) -> str:
        with self._connection() as connection:
            generation = self._staged(connection, variant.contents, self._signed)
            told = self._told(connection, generation)
            assert set(told.values()) == {("prepared", None)}, told
            flip(connection, variant.snapshot, generation, activated_by="test")
        return variant.snapshot.digest

    def _forced(self, variant: Variant) -> str:
        with self._connection() as connection, connection.transaction():
            generation = self._staged(connection, variant.contents, self._signed)
            flip(connection, variant.snapshot, generation, activated_by="test")
        return variant.snapshot.digest

    def _bad(self, variant: Variant, way: str) -> str:
        contents = dict(variant.contents)
        rules = contents["rules/units.csv"]
        signed = self._signed
        match way:
            case "broken_file":
                contents["rules/units.csv"] = rules + b"p, U-X-9, customer, public\n"
            case "unsound":
                contents["rules/units.csv"] = rules + _DEAD
            case "changed_model":
                contents["models/units.conf"] += b"\n# and one more word\n"
            case "tampered":
                signed = self._tampered(rules)
            case "one_signer_widens":
                signed = self._widened_alone
            case "stranger_signs":
                signed = self._by_a_stranger
            case "other_environment":
                signed = self._for_elsewhere
            case "mislabelled":
                signed = self._mislabelled
        with self._connection() as connection:
            generation = self._staged(connection, contents, signed)
            told = self._told(connection, generation)
            assert {state for state, _ in told.values()} == {"refused"}, (way, told)
            abandon(connection, generation)
            (code,) = {code for _, code in told.values()}
        return str(code)

    # --- signatures -------------------------------------------------------------------------

    def _signed(self, manifest: Manifest) -> dict[str, Any]:
        return sign(manifest, self.signers.trusted)

    def _tampered(self, rules: bytes) -> Any:
        def signed(manifest: Manifest) -> dict[str, Any]:
            other = dict(manifest.files) | files_of({"rules/units.csv": rules + b"# more\n"})
            return sign(replace(manifest, files=other), self.signers.trusted)

        return signed

    def _widened_alone(self, manifest: Manifest) -> dict[str, Any]:
        return sign(manifest, self.signers.trusted[:1])

    def _by_a_stranger(self, manifest: Manifest) -> dict[str, Any]:
        return sign(manifest, [self.signers.stranger, self.signers.trusted[1]])

    def _for_elsewhere(self, manifest: Manifest) -> dict[str, Any]:
        return sign(replace(manifest, environment="elsewhere"), self.signers.trusted)

    def _mislabelled(self, manifest: Manifest) -> dict[str, Any]:
        other = replace(manifest, generation=manifest.generation + 1)
        return sign(other, self.signers.trusted)

    # --- the database -----------------------------------------------------------------------

    def _connection(self) -> psycopg.Connection[Any]:
        dsn = dsn_for(POLICY, self.stores.database_url, self.stores.database_secret)
        return psycopg.connect(dsn, autocommit=True)

    def _staged(
        self, connection: psycopg.Connection[Any], contents: Mapping[str, bytes], signed: Any
    ) -> int:
        active = release_in(connection, "active")
        assert active is not None
        base = active.generation, active.digest
        manifest = self._manifest(contents, next_generation(connection), base)
        draft = Draft(
            environment=ENVIRONMENT,
            digest=manifest.digest,
            contents=contents,
            change="widening",
            generation=manifest.generation,
            base=base,
            jws=signed(manifest),
        )
        return stage(connection, draft)

    @staticmethod
    def _manifest(contents: Mapping[str, bytes], generation: int, base: Any) -> Manifest:
        return Manifest(
            environment=ENVIRONMENT,
            generation=generation,
            digest=digest_of(contents),
            files=files_of(contents),
            base_generation=base[0] if base else None,
            base_digest=base[1] if base else None,
            change="widening",
            reason="a test",
            made_at="2026-11-30T04:35:05Z",
        )

    @staticmethod
    def _told(
        connection: psycopg.Connection[Any], generation: int
    ) -> dict[int, tuple[str | None, str | None]]:
        """How each living replica stands to it, once all have made up their minds."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            living = replicas(connection)
            told = {
                number: (one.staged_state, one.staged_code)
                for number, one in enumerate(living)
                if one.staged_generation == generation and one.staged_state != "preparing"
            }
            if living and len(told) == len(living):
                return told
            time.sleep(0.01)
        raise AssertionError(f"generation {generation} is neither prepared nor refused")


_DEAD = (
    b"p, U-X-9, customer, restricted, published, published, low, enacted, faq, none|granted,"
    b" allow\n"
)
"""An allow row that a deny row of the default policy covers whole."""
