"""What values of settings may be: addresses, names, secrets, times; and what a section is."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
)


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


def unread(url: str) -> bool:
    """Whether nobody on the way can read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in {"127.0.0.1", "::1", "localhost"}


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
Times = Annotated[int, Field(ge=1, le=1_000_000)]
Milliseconds = Annotated[int, Field(ge=1, le=600_000)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
