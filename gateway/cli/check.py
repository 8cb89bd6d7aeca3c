"""``gateway check``: would it start? Settings and policy are read and proven, nothing runs."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.failure import Exit, Failure, of_policy
from gateway.settings import Settings, load
from policies.errors import PolicyError
from policies.snapshot import DEFAULT_FOLDER, Snapshot
from policies.snapshot import load as load_policy

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings (TOML). GATEWAY_CONFIG.")
]
OverlayOption = Annotated[
    Path | None, typer.Option("--overlay", metavar="DIR", help="Laid over the policy folder.")
]


def settings_of(config: Path | None) -> Settings:
    """The settings of this command. Raises: InvalidSettings."""
    return load(config, os.environ)


def policy_of(settings: Settings, overlay: Path | None = None) -> Snapshot:
    """The compiled and proven policy. Raises: Failure with every fault, exit code 3."""
    folder = settings.policy or DEFAULT_FOLDER
    try:
        return load_policy(folder, overlay)
    except PolicyError as error:
        raise of_policy(error, folder) from error


def check(
    database: Annotated[
        bool,
        typer.Option("--database", help="Also whether the database of the settings can be used."),
    ] = False,
    overlay: OverlayOption = None,
    config: ConfigOption = None,
) -> None:
    """Check settings and policy without starting anything."""
    settings = settings_of(config)
    snapshot = policy_of(settings, overlay)
    told = [*_of_settings(settings, snapshot), _of_release(settings)]
    url = _database(settings) if database else ""
    print(f"settings ok: {config or os.environ.get('GATEWAY_CONFIG') or 'defaults'}")
    print(f"policy ok: {settings.policy or DEFAULT_FOLDER}")
    print(f"digest: {snapshot.digest}")
    for text in told:
        print(text)
    if url:
        _check_database(url)
    for profile in snapshot.vocabulary.profiles:
        grant = snapshot.grant([profile])
        print(
            f"  {profile}: {len(grant.plain)} classes readable,"
            f" {len(grant.consented) - len(grant.plain)} more with consent"
        )


def _of_settings(settings: Settings, snapshot: Snapshot) -> Iterator[str]:
    """What there is to tell of settings that `serve`, or a reading while it serves, would take
    beside this policy: upstreams and routes, authorities, keys. Raises: CannotStart."""
    from gateway.compose.signing import ring_of  # late: they load the relay
    from gateway.compose.upstreams import targets

    reached = targets(settings.upstreams, snapshot.upstreams)
    unreached = sorted(set(snapshot.upstreams) - set(reached))
    if unreached:
        yield f"no address in the settings: {', '.join(unreached)}; their routes answer 502"
    if settings.route_limits:
        from gateway.compose.route_limits import route_limits

        route_limits(settings.route_limits, {route.id for route in snapshot.routes})
    if settings.keys.assertion_file is not None:
        yield f"signing keys: {len(ring_of(settings))}"
    if settings.tokens.revoked_file is not None:
        yield _of_revocations(settings, snapshot)


def _of_revocations(settings: Settings, snapshot: Snapshot) -> str:
    """How much is listed, and a warning of issuers that policy has not. Raises: CannotStart."""
    from gateway.compose.trust import revoked_of, strangers  # late: it loads cryptography

    revoked = revoked_of(settings)
    for url in strangers(revoked, snapshot.issuers):
        reason = f"a revocation names `{url}`, which is no issuer of policy: it revokes nothing"
        print(f"gateway: warning: unknown_issuer: {reason}", file=sys.stderr)
    return f"revocations: {len(revoked.tokens)} tokens, {len(revoked.subjects)} callers"


def _database(settings: Settings) -> str:
    """The address of the database that is configured. Raises: Failure."""
    if settings.database.url is None:
        reason = "the settings name no database: an embedded one would be started"
        raise Failure(Exit.USAGE, "store_missing", reason, "set GATEWAY_DATABASE_URL")
    return str(settings.database.url)


def _check_database(url: str) -> None:
    """Return when our schemas are in the database, or can be put there.

    Nothing is written. Raises: Failure with everything that is missing.
    """
    from gateway.compose.database import lacking  # late: it loads every house

    lacks = lacking(url)
    if lacks:
        failure = Failure(Exit.UNAVAILABLE, "database_unfit", "see above", "mend it")
        failure.lines = tuple(f"{one.code}: {one.reason}; {one.remedy}" for one in lacks)
        raise failure
    print("database ok: our schemas are there, or can be made beside what is")


def _of_release(settings: Settings) -> str:
    """Whose policy would be served, and a warning where strangers meet an unsigned one.

    Raises: CannotStart.
    """
    from gateway.compose.trust import trust_anchor  # late: it loads cryptography

    anchor, listen = trust_anchor(settings), settings.listen.public
    if anchor.signed:
        return (
            f"release: {anchor.environment}; it needs the signature of one of"
            f" {', '.join(sorted(anchor.keys))}, to open anything of {anchor.widening_signers}"
        )
    if listen.host != "localhost" and not ipaddress.ip_address(listen.host).is_loopback:
        print(
            f"gateway: warning: unsigned_release: {listen} is not a loopback address, and whoever"
            " can edit the folder decides what is served; set `release.environment` and"
            " `release.keys_file`",
            file=sys.stderr,
        )
    return f"release: {anchor.environment}, nothing has to be signed"
