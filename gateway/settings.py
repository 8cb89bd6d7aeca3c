"""Where things are, how much is allowed, and the secrets: one TOML file and the environment.

Laws
    * Nothing here can open access. Rules, issuers, route modes, facet maps and trusted peers
      live in the policy folder; a key of such a kind is unknown here and therefore refused.
    * Unknown keys, wrong types and unreadable secret files are refused, all at once, each
      with its path, a reason and a remedy.
    * The environment wins over the file, the file over the defaults. Paths of the file are
      relative to it.
    * A secret never appears in a message or in a ``repr``.

This module does not know policies, stores or HTTP servers; it only reads.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)


@dataclass(frozen=True, slots=True, order=True)
class SettingFault:
    """One thing wrong with one setting. ``place`` is ``FILE: key.path`` or a variable's name."""

    place: str
    code: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.reason}; {self.remedy}"


class InvalidSettings(Exception):  # noqa: N818 - reads as what it is
    """The gateway must not start; ``faults`` lists every reason, sorted."""

    def __init__(self, faults: tuple[SettingFault, ...]) -> None:
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: object) -> Self:
        """From ``127.0.0.1:8080`` or ``[::1]:8080``. Raises ValueError for anything else."""
        if isinstance(text, cls):
            return text
        match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+)):([0-9]{1,5})", str(text))
        if match is None or int(match[3]) > 65535:
            raise ValueError("is not `address:port` such as `127.0.0.1:8080`")
        host = match[1] or match[2]
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        return cls(host, int(match[3]))


def _path(value: object) -> object:
    if not isinstance(value, str) or not value:
        return value
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("begins with a home that does not exist") from error


def _url(*schemes: str) -> AfterValidator:
    def check(text: str) -> str:
        parts = urlsplit(text)
        if parts.scheme not in schemes or not (parts.hostname or parts.query):
            raise ValueError(f"is not an address that begins with {' or '.join(schemes)}://")
        return text

    return AfterValidator(check)


def _only_origin(text: str) -> str:
    """Refuse what an upstream would never see: the request's own path and query are sent."""
    parts = urlsplit(text)
    if parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("holds more than scheme, host and port")
    _ = parts.port  # raises for one that is out of range
    return text


ListenAt = Annotated[Listen, BeforeValidator(Listen.parse)]
FilePath = Annotated[Path, BeforeValidator(_path)]
HttpUrl = Annotated[str, _url("http", "https")]
Origin = Annotated[str, _url("http", "https"), AfterValidator(_only_origin)]
DatabaseUrl = Annotated[str, _url("postgresql", "postgres")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
Secret = Annotated[SecretStr, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[int, Field(ge=1, le=600_000)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


class ListenSettings(_Section):
    """``public`` carries callers; ``admin`` carries health and metrics, never a caller."""

    public: ListenAt = Listen("127.0.0.1", 8080)
    admin: ListenAt = Listen("127.0.0.1", 8081)


class DatabaseSettings(_Section):
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


class QdrantSettings(_Section):
    """No ``url``: the embedded engine. No ``collection``: one named after the embedder."""

    url: HttpUrl | None = None
    api_key: Secret | None = None
    api_key_file: FilePath | None = None
    collection: Name | None = None


class EmbedderSettings(_Section):
    """``vector_cache``: a file of vectors by the hash of their text, read and added to."""

    name: Name = "usem3"
    vector_cache: FilePath | None = None


class UpstreamSettings(_Section):
    """Where one upstream listens. What it may do stands in the policy folder."""

    address: Origin
    connections_max: Count = 64
    connect_ms: Milliseconds = 2_000


class KeySettings(_Section):
    """PEM of the ES256 private key that signs assertions and delegations to upstreams.

    Without one a key is made in the state folder; replicas must share one.
    """

    assertion_file: FilePath | None = None


class LimitSettings(_Section):
    """Bounds of one request and of the process; units are in the names."""

    request_ms: Milliseconds = 30_000
    header_ms: Milliseconds = 10_000
    header_bytes_max: Count = 32_768
    header_count_max: Count = 100
    target_bytes_max: Count = 8_192
    body_bytes_max: Count = 65_536
    body_ms: Milliseconds = 15_000
    connections_max: Count = 10_000
    keep_alive_ms: Milliseconds = 15_000
    drain_ms: Annotated[int, Field(ge=0, le=600_000)] = 0
    """How long readiness is false before connections are ended: for a load balancer to see it."""
    graceful_ms: Milliseconds = 10_000
    journal_ms: Milliseconds = 5_000
    index_lag_ms: Milliseconds = 5_000
    """How long the index may be behind before an open update no longer excuses it."""


class TelemetrySettings(_Section):
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


class Settings(_Section):
    """Everything the gateway reads at start. Obtained from ``load`` only."""

    listen: ListenSettings = ListenSettings()
    database: DatabaseSettings = DatabaseSettings()
    qdrant: QdrantSettings = QdrantSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    upstreams: dict[Name, UpstreamSettings] = {}
    keys: KeySettings = KeySettings()
    limits: LimitSettings = LimitSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    gateway_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:/._-]{1,200}$")] = (
        "audience-gateway"
    )
    """Issuer of what the gateway signs, and the token audience of its delegations."""
    policy: FilePath | None = None
    """The policy folder; none: the one that is installed with the gateway."""
    state: FilePath | None = None
    """Where embedded services, keys and identities live; none: chosen per clone and user."""


# Environment variable -> key path. An upstream's address is GATEWAY_UPSTREAM_<NAME>.
ENVIRONMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "GATEWAY_DATABASE_URL": ("database", "url"),
    "GATEWAY_DATABASE_SECRET": ("database", "secret"),
    "GATEWAY_DATABASE_SECRET_FILE": ("database", "secret_file"),
    "GATEWAY_QDRANT_URL": ("qdrant", "url"),
    "GATEWAY_QDRANT_API_KEY": ("qdrant", "api_key"),
    "GATEWAY_QDRANT_API_KEY_FILE": ("qdrant", "api_key_file"),
    "GATEWAY_LISTEN": ("listen", "public"),
    "GATEWAY_ADMIN_LISTEN": ("listen", "admin"),
    "GATEWAY_POLICY": ("policy",),
    "GATEWAY_STATE": ("state",),
    "GATEWAY_EMBEDDER": ("embedder", "name"),
    "GATEWAY_VECTOR_CACHE": ("embedder", "vector_cache"),
    "GATEWAY_ASSERTION_KEY_FILE": ("keys", "assertion_file"),
    "GATEWAY_TRACE_FILE": ("telemetry", "trace_file"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("telemetry", "otlp_endpoint"),
}
CONFIG_VARIABLE: Final = "GATEWAY_CONFIG"
UPSTREAM_PREFIX: Final = "GATEWAY_UPSTREAM_"

_SECRETS: Final = (("database", "secret"), ("qdrant", "api_key"))
_PATHS: Final = (
    ("policy",),
    ("state",),
    ("database", "secret_file"),
    ("qdrant", "api_key_file"),
    ("embedder", "vector_cache"),
    ("keys", "assertion_file"),
    ("telemetry", "trace_file"),
)


def load(path: Path | None, env: Mapping[str, str]) -> Settings:
    """The settings of this process, from ``path`` (or GATEWAY_CONFIG), then ``env``.

    Raises: InvalidSettings with every fault at once.
    """
    path = path or (Path(env[CONFIG_VARIABLE]) if env.get(CONFIG_VARIABLE) else None)
    faults: list[SettingFault] = []
    tree = _read(path, faults) if path is not None else {}
    named = _apply_environment(tree, env, faults)
    _read_secrets(tree, path, named, faults)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        faults += [_fault(entry, path, named) for entry in error.errors()]
    if faults:
        raise InvalidSettings(tuple(faults))
    return settings


def _read(path: Path, faults: list[SettingFault]) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        faults.append(SettingFault(str(path), "unreadable", reason, "name a file that exists"))
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(
            SettingFault(str(path), "not_toml", str(error).lower(), "write it as UTF-8 TOML")
        )
        return {}
    for keys in _PATHS:
        section = _section(tree, keys)
        value = section.get(keys[-1]) if section is not None else None
        if section is not None and isinstance(value, str) and value:
            section[keys[-1]] = value if value.startswith("~") else str(path.parent / value)
    return tree


def _upstreams(tree: dict[str, Any]) -> list[str]:
    section = tree.get("upstreams")
    return list(section) if isinstance(section, dict) else []


def _section(tree: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The table that holds the last of ``keys``, or none when something else stands there."""
    node: Any = tree
    for key in keys[:-1]:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None


def _apply_environment(
    tree: dict[str, Any], env: Mapping[str, str], faults: list[SettingFault]
) -> dict[tuple[str, ...], str]:
    """Put the variables into ``tree``; which variable set which key. An empty one is unset."""
    named: dict[tuple[str, ...], str] = {}
    for variable, value in sorted(env.items()):
        if not value:
            continue
        keys = ENVIRONMENT.get(variable)
        if keys is None and variable.startswith(UPSTREAM_PREFIX):
            name = variable.removeprefix(UPSTREAM_PREFIX).lower()
            known = {one.replace("-", "_"): one for one in _upstreams(tree)}
            keys = ("upstreams", known.get(name, name), "address")
        if keys is None:
            _note_misspelling(variable, faults)
            continue
        node = tree
        for key in keys[:-1]:
            child = node.setdefault(key, {})
            if not isinstance(child, dict):
                break
            node = child
        else:
            node[keys[-1]] = value
            if keys in _SECRETS:  # the file's own file must not compete with the variable
                node.pop(f"{keys[-1]}_file", None)
            named[keys] = variable
    return named


def _note_misspelling(variable: str, faults: list[SettingFault]) -> None:
    """Refuse a slip of the pen: it would silently mean the default. Others are not ours."""
    if not variable.startswith("GATEWAY_") or variable == CONFIG_VARIABLE:
        return
    near = difflib.get_close_matches(variable, (*ENVIRONMENT, CONFIG_VARIABLE), 1, 0.9)
    if near:
        faults.append(
            SettingFault(variable, "unknown_variable", "no setting has it", f"write `{near[0]}`")
        )


def _read_secrets(
    tree: dict[str, Any],
    path: Path | None,
    named: dict[tuple[str, ...], str],
    faults: list[SettingFault],
) -> None:
    """Replace each ``*_file`` by what stands in it, without the final line break."""
    for keys in _SECRETS:
        section = _section(tree, keys)
        file_keys = (*keys[:-1], f"{keys[-1]}_file")
        place = named.get(file_keys) or _place(path, file_keys)
        source = section.get(file_keys[-1]) if section is not None else None
        if section is None or not isinstance(source, str):
            continue
        if section.get(keys[-1]) is not None:
            reason = f"`{keys[-1]}` is given beside it"
            faults.append(SettingFault(place, "ambiguous", reason, "keep one of the two"))
            continue
        try:
            text = Path(source).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError, RuntimeError):  # no file, not text, no path, no such home
            faults.append(
                SettingFault(place, "unreadable", "the secret cannot be read", "mend file or path")
            )
            text = "-"  # a fault stands already; this one must not add "too short"
        section[keys[-1]] = SecretStr(text)
    for keys in _SECRETS:
        section = _section(tree, keys)
        if section is not None and isinstance(section.get(keys[-1]), str):
            section[keys[-1]] = SecretStr(section[keys[-1]])


def _place(path: Path | None, keys: tuple[str, ...]) -> str:
    return f"{path or 'settings'}: {'.'.join(keys)}"


_REASONS: Final[Mapping[str, tuple[str, str, str]]] = {
    "extra_forbidden": (
        "unknown_key",
        "no setting has this name",
        "remove it (what opens access belongs in the policy folder) or mend the spelling",
    ),
    "missing": ("missing", "a value is required", "add it"),
}


def _fault(entry: Any, path: Path | None, named: dict[tuple[str, ...], str]) -> SettingFault:
    keys = tuple(str(part) for part in entry["loc"] if part != "[key]")
    place = named.get(keys) or _place(path, keys)
    if entry["type"] in _REASONS:
        return SettingFault(place, *_REASONS[entry["type"]])
    reason = entry["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    return SettingFault(place, "invalid_value", reason, "give a value of the documented form")
