"""Where things are, how much is allowed, and the secrets: one TOML file and the environment.

Laws
    * Nothing here can open access. Rules, issuers, route modes, facet maps and trusted peers
      live in the policy folder; a key of such a kind is unknown here and therefore refused.
    * Unknown keys, wrong types and unreadable secret files are refused, all at once, each
      with its path, a reason and a remedy.
    * The environment wins over the file, the file over the defaults. Paths of the file are
      relative to it.
    * A secret never appears in a message or in a ``repr``.

This room does not know policies, stores or HTTP servers; it only reads.
"""

from gateway.settings.kinds import Listen
from gateway.settings.model import (
    DecisionLogSettings,
    LimitSettings,
    ReleaseSettings,
    Settings,
    TelemetrySettings,
    UpstreamSettings,
)
from gateway.settings.reading import ENVIRONMENT, InvalidSettings, SettingFault, load

__all__ = [
    "ENVIRONMENT",
    "DecisionLogSettings",
    "InvalidSettings",
    "LimitSettings",
    "Listen",
    "ReleaseSettings",
    "SettingFault",
    "Settings",
    "TelemetrySettings",
    "UpstreamSettings",
    "load",
]
