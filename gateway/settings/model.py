"""What can be set: every key with its type, bounds and default. A new setting begins here."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from gateway.decisions.fields import BY_PATH, CONTAINERS, REDACTABLE, leaves
from gateway.settings.embedder import EmbedderSettings
from gateway.settings.kinds import (
    Count,
    DatabaseUrl,
    FilePath,
    HttpUrl,
    Listen,
    ListenAt,
    Milliseconds,
    Name,
    Origin,
    Secret,
    Section,
    Times,
)
from gateway.settings.signals import SignalsSettings


class ListenSettings(Section):
    """``public`` carries callers; ``admin`` health, metrics and what operators ask."""

    public: ListenAt = Listen("127.0.0.1", 8080)
    admin: ListenAt = Listen("127.0.0.1", 8081)


class DatabaseSettings(Section):
    """No ``url``: the embedded Postgres. Every role's password is derived from ``secret``."""

    url: DatabaseUrl | None = Field(default=None, repr=False)  # may hold a password
    secret: Secret | None = None
    secret_file: FilePath | None = None
    pool_max: Count = 8

    @model_validator(mode="after")
    def _secret_comes_with_the_address(self) -> Self:
        if self.url is not None and self.secret is None:
            raise ValueError(
                "needs `secret` or `secret_file` (GATEWAY_DATABASE_SECRET) beside `url`"
            )
        return self


class QdrantSettings(Section):
    """No ``url``: the embedded engine. No ``collection``: one named after the embedder."""

    url: HttpUrl | None = None
    api_key: Secret | None = None
    api_key_file: FilePath | None = None
    collection: Name | None = None


class HealthSettings(Section):
    """How each process of an upstream is asked whether it is well: ``GET path``, 2xx is well."""

    path: Annotated[str, StringConstraints(pattern=r"^/[!-~]*$", max_length=2_048)]
    interval_ms: Milliseconds = 10_000
    timeout_ms: Milliseconds = 2_000
    failures: Count = 2
    """How many in a row take it out of service."""
    passes: Count = 1
    """How many in a row bring it back."""


class UpstreamSettings(Section):
    """Where one upstream listens. What it may do stands in the policy folder.

    ``address`` gives the Host value; ``further_addresses`` are more processes of the same
    upstream. ``ca_file``: PEM of the authorities that their certificates must come from,
    instead of the system's own. ``total_ms`` ends streams and large bodies, too.

    ``assertion``: the ``reads`` (GET, HEAD) of one caller for one target may share one for 20 s, or
    ``each`` request has its own: a signature is a third of what a hop costs.
    """

    address: Origin
    further_addresses: list[Origin] = Field(default_factory=list)
    ca_file: FilePath | None = None
    client: Literal["pool", "aiohttp"] = "pool"
    assertion: Literal["reads", "each"] = "reads"
    balance: Literal["round_robin", "least_requests"] = "round_robin"
    connections_max: Count = 64
    """Exchanges at once with one process, for each audience profile."""
    sockets_max: Count = 1_000
    connect_ms: Milliseconds = 2_000
    first_byte_ms: Milliseconds = 30_000
    idle_ms: Milliseconds = 60_000
    write_ms: Milliseconds = 30_000
    total_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 3_600_000
    breaker_failures: Count = 5
    breaker_open_ms: Milliseconds = 10_000
    health: HealthSettings | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.address, *self.further_addresses)

    @model_validator(mode="after")
    def _processes_are_alike(self) -> Self:
        tls = {one.startswith("https://") for one in self.addresses}
        if len(tls) != 1:
            raise ValueError("mixes http:// and https:// among its addresses")
        if len(set(self.addresses)) != len(self.addresses):
            raise ValueError("names one address twice")
        if self.ca_file is not None and tls != {True}:
            raise ValueError("holds `ca_file`, but its address does not begin with https://")
        return self


class RouteLimitSettings(Section):
    """What one route takes: bytes of a request's body, requests at once, requests in a time.

    ``rate`` requests in ``rate_period_ms``, evenly, with ``burst`` at once on top of nothing
    (none: as many as the rate). ``rate_per``: each caller has this allowance, or all have one.
    """

    body_bytes_max: Count | None = None
    at_once_max: Count | None = None
    rate: Times | None = None
    rate_period_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 1_000
    burst: Times | None = None
    rate_per: Literal["caller", "route"] = "caller"

    @model_validator(mode="after")
    def _burst_comes_with_a_rate(self) -> Self:
        if self.burst is not None and self.rate is None:
            raise ValueError("needs `rate` beside `burst`")
        return self


class KeySettings(Section):
    """PEM of the ES256 private key that signs assertions and delegations to upstreams.

    Without one a key is made in the state folder; replicas must share one.
    """

    assertion_file: FilePath | None = None


class TokenSettings(Section):
    """``revoked_file``: lines of tokens and callers that are not believed any more, though their
    issuer's signature is good (`authn/revoked.py`). Read again at SIGHUP, whatever it is named."""

    revoked_file: FilePath | None = None


class LimitSettings(Section):
    """Bounds of one request and of the process; units are in the names."""

    request_ms: Milliseconds = 30_000
    header_ms: Milliseconds = 10_000
    header_bytes_max: Count = 32_768
    header_count_max: Count = 100
    target_bytes_max: Count = 8_192
    body_bytes_max: Count = 65_536
    body_ms: Milliseconds = 15_000
    body_idle_ms: Milliseconds = 15_000
    """The longest silence inside a body that is passed on."""
    body_rate_min: Count = 512
    """Bytes a second that a body passed on must reach, ``body_ms`` set aside."""
    connections_max: Count = 10_000
    connections_per_peer_max: Count = 1_000
    """Connections of one address (a /64 of IPv6); trusted peers have no such bound."""
    message_bytes_max: Count = 1_048_576
    """One message of a WebSocket, in either direction."""
    ping_ms: Milliseconds = 20_000
    stream_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 3_600_000
    """How long a WebSocket or a stream of events may be open."""
    stream_idle_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 600_000
    """How long a WebSocket may carry no message."""
    events_comment_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 15_000
    """How long a stream of events may be silent before its caller is sent a comment."""
    shared_rates: bool = False
    """Whether the rates of routes count for all gateways of a database together."""
    keep_alive_ms: Milliseconds = 15_000
    drain_ms: Annotated[int, Field(ge=0, le=600_000)] = 0
    """How long readiness is false before connections are ended: for a load balancer to see it."""
    graceful_ms: Milliseconds = 10_000
    journal_ms: Milliseconds = 5_000
    index_lag_ms: Milliseconds = 5_000
    """How long the index may be behind before an open update no longer excuses it."""


class TelemetrySettings(Section):
    """``otlp_endpoint``: base address of an OTLP/HTTP collector (OTEL_EXPORTER_OTLP_ENDPOINT).

    ``trace_file``: one JSON line per finished span, for looking at a trace without a collector.
    ``sample_ratio`` is the part of ordinary requests that is traced; events always are.
    """

    otlp_endpoint: HttpUrl | None = None
    trace_file: FilePath | None = None
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.05
    service_name: Name = "audience-gateway"
    queue_max: Count = 2_048
    access_log: bool = True


def _record_path(path: str) -> str:
    """Refuse a path that is no field: what it was meant to hide would stay in every record."""
    if leaves(path):
        return path
    if path in BY_PATH:
        raise ValueError(f"`{path}` stands in every record, so that it can be read")
    near = difflib.get_close_matches(path, (*REDACTABLE, *CONTAINERS), 1, 0.0)
    raise ValueError(f"`{path}` is no field of a decision record (the nearest is `{near[0]}`)")


RecordPath = Annotated[str, AfterValidator(_record_path)]


class DecisionLogSettings(Section):
    """One record per request, to standard output, a file or a collector; without any, none.

    ``otlp`` sends to the collector of ``telemetry``. ``sample_ratio`` is the part of allowed
    requests that is written; refusals and denials of units always are. ``rate_max``: records
    per second, denials of units apart. ``mask`` and ``drop`` hold paths of fields; with
    ``mask_key`` a mask is a keyed hash, else ``***``.
    """

    stdout: bool = False
    file: FilePath | None = None
    otlp: bool = False
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    rate_max: Count = 1_000
    queue_max: Count = 8_192
    mask: list[RecordPath] = Field(default_factory=list)
    drop: list[RecordPath] = Field(default_factory=list)
    mask_key: Secret | None = None
    mask_key_file: FilePath | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anywhere to write to."""
        return self.stdout or self.otlp or self.file is not None


class ReleaseSettings(Section):
    """Whose policy is believed.

    Without ``keys_file`` (development only) the folder is served as it is. With one (a JWK set of
    public Ed25519 keys, ``kid`` = the signer's name) only a release of the database that these
    keys signed for ``environment``; opening anything takes ``widening_signers`` of them.
    """

    environment: Name = "development"
    keys_file: FilePath | None = None
    widening_signers: Annotated[int, Field(ge=1, le=16)] = 2

    @property
    def signed(self) -> bool:
        """Whether a release must be signed to be served."""
        return self.keys_file is not None

    @model_validator(mode="after")
    def _only_development_is_unsigned(self) -> Self:
        if self.environment != "development" and self.keys_file is None:
            raise ValueError("needs `keys_file`: only `development` goes without signatures")
        return self


class Settings(Section):
    """Everything the gateway reads at start. Obtained from ``load`` only."""

    listen: ListenSettings = ListenSettings()
    database: DatabaseSettings = DatabaseSettings()
    qdrant: QdrantSettings = QdrantSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    upstreams: dict[Name, UpstreamSettings] = Field(default_factory=dict)
    route_limits: dict[str, RouteLimitSettings] = Field(default_factory=dict)
    """Limits by the policy's id of a route."""
    keys: KeySettings = KeySettings()
    tokens: TokenSettings = TokenSettings()
    limits: LimitSettings = LimitSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    decision_log: DecisionLogSettings = DecisionLogSettings()
    release: ReleaseSettings = ReleaseSettings()
    signals: SignalsSettings = SignalsSettings()
    gateway_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:/._-]{1,200}$")] = (
        "audience-gateway"
    )
    """Issuer of what the gateway signs, and the token audience of its delegations."""
    policy: FilePath | None = None
    """The policy folder; none: the one that is installed with the gateway."""
    state: FilePath | None = None
    """Where embedded services, keys and identities live; none: chosen per clone and user."""

    @model_validator(mode="after")
    def _records_need_a_collector(self) -> Self:
        if self.decision_log.otlp and self.telemetry.otlp_endpoint is None:
            raise ValueError("`decision_log.otlp` needs `telemetry.otlp_endpoint`")
        return self
