"""One file and the environment become settings, or every fault of both is named at once."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from gateway.settings.model import Settings


@dataclass(frozen=True, slots=True, order=True)
class SettingFault:
    """One thing wrong with one setting. ``place`` is ``FILE: key.path`` or a variable's name."""

    place: str
    code: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.reason}; {self.remedy}"


class InvalidSettings(Exception):
    """The gateway must not start; ``faults`` lists every reason, sorted."""

    def __init__(self, faults: tuple[SettingFault, ...]) -> None:
        self.faults = tuple(sorted(set(faults)))
        super().__init__("\n".join(map(str, self.faults)))


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
    "GATEWAY_EMBEDDER_MODEL": ("embedder", "model"),
    "GATEWAY_EMBEDDER_URL": ("embedder", "url"),
    "GATEWAY_EMBEDDER_API_KEY": ("embedder", "api_key"),
    "GATEWAY_EMBEDDER_API_KEY_FILE": ("embedder", "api_key_file"),
    "GATEWAY_ASSERTION_KEY_FILE": ("keys", "assertion_file"),
    "GATEWAY_TRACE_FILE": ("telemetry", "trace_file"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("telemetry", "otlp_endpoint"),
    "GATEWAY_RELEASE_ENVIRONMENT": ("release", "environment"),
    "GATEWAY_RELEASE_KEYS_FILE": ("release", "keys_file"),
    "GATEWAY_DECISION_LOG_FILE": ("decision_log", "file"),
    "GATEWAY_DECISION_LOG_MASK_KEY": ("decision_log", "mask_key"),
    "GATEWAY_DECISION_LOG_MASK_KEY_FILE": ("decision_log", "mask_key_file"),
    "GATEWAY_WEBHOOK_SECRET": ("signals", "webhook_secret"),
    "GATEWAY_WEBHOOK_SECRET_FILE": ("signals", "webhook_secret_file"),
}
CONFIG_VARIABLE: Final = "GATEWAY_CONFIG"
UPSTREAM_PREFIX: Final = "GATEWAY_UPSTREAM_"

_SECRETS: Final = (
    ("database", "secret"),
    ("qdrant", "api_key"),
    ("embedder", "api_key"),
    ("decision_log", "mask_key"),
    ("signals", "webhook_secret"),
)
_UPSTREAMS: Final = ("upstreams",)
_PATHS: Final = (
    ("policy",),
    ("state",),
    ("database", "secret_file"),
    ("qdrant", "api_key_file"),
    ("embedder", "vector_cache"),
    ("embedder", "api_key_file"),
    ("embedder", "folder"),
    ("keys", "assertion_file"),
    ("tokens", "revoked_file"),
    ("telemetry", "trace_file"),
    ("decision_log", "file"),
    ("release", "keys_file"),
    ("decision_log", "mask_key_file"),
    ("signals", "webhook_secret_file"),
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
    upstreams = ((*_UPSTREAMS, name, "ca_file") for name in _upstreams(tree))
    for keys in (*_PATHS, *upstreams):
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
            keys = (*_UPSTREAMS, known.get(name, name), "address")
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
    reason, _, remedy = entry["msg"].removeprefix("Value error, ").partition("; ")
    reason = reason[:1].lower() + reason[1:]
    remedy = remedy or "give a value of the documented form"
    return SettingFault(place, "invalid_value", reason, remedy)
