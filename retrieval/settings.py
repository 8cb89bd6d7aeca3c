"""What retrieval can be told: bounds and calibrated thresholds, all in one place.

Laws
    * Nothing here opens access: no value can make a hidden unit visible.
    * Every bound is finite. A value outside its range is refused at construction.
    * Thresholds are measured, and the measurement stands beside the default or in DECISIONS.

This module reads no file and no environment: the composition root does.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from retrieval.contract import TEXT_BYTES_MAX

Count = Annotated[int, Field(ge=1, le=10_000)]
Share = Annotated[float, Field(gt=0, le=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResolutionSettings(_Section):
    """How much is looked at to resolve a question. How sure it must be is the policy's to say
    (``rules/retrieval.yaml``)."""

    words_max: Count = 64
    """Words of a question that are looked at; the wire allows 4,000 characters."""
    references_max: Count = 6
    """Tokens of a question that are tried as an explicit reference; each is one look-up."""
    shortlist: Count = 24
    """Candidates that are ranked with health, recency, authority and lifecycle."""
    centroids_max: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Up to so many permitted threads, each is compared with the question by its centroid; beyond,
    only those that words, labels or addresses found."""


class PackSettings(_Section):
    """How much stands in one pack. What a bound leaves out is said in the pack (``cut``)."""

    supporting_max: Count = 20
    reports_max: Count = 5
    links_max: Count = 40
    gaps_max: Count = 40
    suspects_max: Count = 40
    members_max: Count = 2_000
    """Members of one thread that are looked at, best ordered first."""
    text_bytes_max: Annotated[int, Field(ge=1_024, le=TEXT_BYTES_MAX)] = TEXT_BYTES_MAX
    """UTF-8 bytes of unit texts in one answer, when the caller names no budget of its own and as
    the most that it may name; whole units are left out from the end."""


class ServiceSettings(_Section):
    """``shared_key``: what the gateway must send when retrieval is a process of its own."""

    resolution: ResolutionSettings = ResolutionSettings()
    pack: PackSettings = PackSettings()
    shared_key: SecretStr | None = None
    ask_bytes_max: Annotated[int, Field(ge=1_024)] = 262_144
    deadline_ms_max: Annotated[int, Field(ge=1)] = 30_000


class StoreSettings(_Section):
    """Where the stores are. The same for embedded services and for a cluster.

    ``database_url`` names server and database; users and passwords are derived from
    ``database_secret``. ``connections_max`` is per audience; a request that finds none free or
    alive within ``connection_wait_s`` is refused. ``lag_objective_s``: how long the index may
    lag before a difference is an incident.
    """

    database_url: str = Field(repr=False)
    database_secret: SecretStr
    qdrant_url: str
    qdrant_api_key: SecretStr
    collection: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")] = "units"
    connections_max: Count = 8
    connection_wait_s: Annotated[float, Field(gt=0, le=30)] = 2.0
    lag_objective_s: Annotated[float, Field(gt=0)] = 5.0


K_DEFAULT: Final = 50
"""Core units of a pack that is asked for by its thread (no ``k`` stands in such a request)."""
