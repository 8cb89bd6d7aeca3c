"""Where an upstream listens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Host and port of one upstream process.

    ``tls`` verifies the name, against ``ca_file`` when it is given, else against the system's
    trust store.
    """

    host: str
    port: int
    tls: bool = False
    ca_file: str = ""

    @property
    def authority(self) -> bytes:
        """The Host value that goes with it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        standard = self.port == (443 if self.tls else 80)
        return (host if standard else f"{host}:{self.port}").encode("ascii")
