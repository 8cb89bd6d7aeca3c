"""The database's roles: what each station is called, and how it logs in.

Laws
    * One login per station. A serving login can become the roles of its own audience's
      profiles and nothing else; it inherits nothing, so before `set role` it reads nothing.
    * Passwords are derived (HMAC-SHA256 of the role's name under one secret): rotating the
      secret rotates them all, and none is stored anywhere but in Postgres.
    * ``gw_owner`` owns everything and cannot log in; ``gw_reader`` is what profiles inherit.

This module knows names only: no SQL, no policy.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from psycopg.conninfo import make_conninfo

from policies.emit.postgres import role_name

OWNER: Final = "gw_owner"
READER: Final = "gw_reader"

GUARD: Final = "gw_guard"
INGEST: Final = "gw_ingest"
INDEX: Final = "gw_index"
POLICY: Final = "gw_policy"
JOURNAL: Final = "gw_journal"
SEAL: Final = "gw_seal"
WATCH: Final = "gw_watch"
LIVE: Final = "gw_live"
LABEL: Final = "gw_label"
RATE: Final = "gw_rate"
CURATE: Final = "gw_curate"
LEDGER: Final = "gw_ledger"
SIGNAL: Final = "gw_signal"
METRIC: Final = "gw_metric"
STEWARD: Final = "gw_steward"
STATIONS: Final = (
    *(GUARD, INGEST, INDEX, POLICY, JOURNAL, SEAL, WATCH, LIVE, LABEL, RATE),
    *(LEDGER, SIGNAL, METRIC, STEWARD, CURATE),
)

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def serving_login(audience: str) -> str:
    """The login under which requests of one audience are read."""
    return _checked("gw_serve_" + audience, audience)


def profile_role(profile: str) -> str:
    """The role that stands for one profile: ``agent:reader`` is ``gw_p_agent_reader``."""
    return _checked(role_name(profile), profile)


def password_of(role: str, secret: str) -> str:
    """The password of a login, 64 hex digits. Raises ValueError for an empty secret."""
    if not secret:
        raise ValueError("the database secret is empty; set GATEWAY_DATABASE_SECRET")
    return hmac.new(secret.encode(), role.encode(), hashlib.sha256).hexdigest()


def derived_key(purpose: str, secret: str) -> bytes:
    """32 bytes for one purpose of ours, from the secret that the passwords come from.

    Raises ValueError for an empty secret.
    """
    return bytes.fromhex(password_of(f"key/{purpose}", secret))


def dsn_for(role: str, base_dsn: str, secret: str) -> str:
    """The connection string of one login: ``base_dsn`` with its user and password replaced."""
    return make_conninfo(base_dsn, user=role, password=password_of(role, secret))


def _checked(role: str, word: str) -> str:
    if not _NAME.fullmatch(role):
        raise ValueError(
            f"`{word}` cannot name a database role; use a-z, 0-9, `_`, `-` and `:`, shorter"
        )
    return role
