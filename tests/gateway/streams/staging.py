"""A running gateway whose customer and employee portals take sockets, and policies to move to."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from policies.snapshot import DEFAULT_FOLDER, Snapshot, load
from tests.gateway.relay.hostile import Peer, Script
from tests.gateway.relay.sockets import echoes, speaks
from tests.gateway.stage import Stage, Upstream
from tests.gateway.tokens import Issuers

PORTAL = "https://portal.example"
ROUTES, DOORS, UNITS = "rules/routes.yaml", "rules/routes.csv", "rules/units.csv"
OPENED = {
    ROUTES: [
        ("    anonymous: customer\n",
         f"    anonymous: customer\n    origins: [{PORTAL}, absent]\n"),
        ("    upstream: employee-portal\n",
         "    upstream: employee-portal\n    origins: [https://intranet.example]\n"),
    ]
}  # fmt: skip
ECHOES = speaks(echoes)
Edits = Mapping[str, list[tuple[str, str]]]


def policy(issuers: Issuers, folder: Path, *more: Edits) -> Snapshot:
    """The default policy with sockets on two portals, the tests' issuers, and these edits."""
    if folder.exists():
        shutil.rmtree(folder)
    issuers.write(folder)
    texts: dict[str, str] = {}
    for edits in (OPENED, *more):
        for name, pairs in edits.items():
            text = texts.get(name) or (DEFAULT_FOLDER / name).read_text()
            for old, new in pairs:
                assert old in text, (name, old)
                text = text.replace(old, new)
            texts[name] = text
    for name, text in texts.items():
        (folder / name).write_text(text)
    return load(overlay=folder)


class Portal:
    """An upstream that does what a script says on each connection, and records."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, self.connections, self.requests)
        self.connections += 1
        try:
            await self.script(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway is gone: what it did is in the records
        finally:
            writer.close()

    def header(self, name: str) -> list[str]:
        """The values of a header in the last request, as they were received."""
        lines = self.requests[-1].decode("latin-1").split("\r\n")
        pairs = [line.partition(": ") for line in lines]
        return [value for key, _, value in pairs if key.lower() == name]


@dataclass
class Scene:
    """The stage, its portal, and the policies that may come into force."""

    stage: Stage
    issuers: Issuers
    open: Snapshot
    others: dict[str, Snapshot] = field(default_factory=dict)

    def play(self, script: Script = ECHOES) -> Portal:
        """Begin anew: the first policy, an upstream of this script, no record."""
        self.stage.upstream = Upstream()
        self.stage.reset()
        self.enforce(self.open)
        portal = Portal(script)
        self.stage.upstream = portal  # type: ignore[assignment]  # serves, and that is all
        return portal

    def enforce(self, snapshot: Snapshot) -> None:
        """Bring a policy into force, as a prepared one comes."""

        async def advance() -> None:
            self.stage.holder.prepare(snapshot)
            assert self.stage.holder.advance(snapshot.digest)

        self.stage.call(advance())

    def look(self) -> None:
        """Tell the gateway that something was revoked."""

        async def called() -> None:
            self.stage.streams.look(called=True)

        self.stage.call(called())

    def socket(
        self,
        path: str = "/portal/customer/live",
        *,
        who: str = "customer",
        origin: str | None = PORTAL,
        headers: Mapping[str, str] | None = None,
        token: Callable[[], str] | None = None,
        **options: Any,
    ) -> AbstractContextManager[ClientConnection]:
        """A caller's socket, open; ``who`` empty is a caller without a credential."""
        more = dict(headers or {})
        if who:
            text = token() if token is not None else self.issuers.token(who)
            more["Authorization"] = f"Bearer {text}"
        return connect(
            f"ws://127.0.0.1:{self.stage.port}{path}",
            origin=origin,  # type: ignore[arg-type]  # a NewType of theirs
            additional_headers=more,
            compression=None,
            proxy=None,
            open_timeout=10,
            ping_interval=None,
            **options,
        )

    def last(self) -> Any:
        """The next record that is written."""
        assert self.stage.records.some.wait(10)
        return self.stage.records.all[-1]


def code_of(body: bytes) -> str:
    return str(json.loads(body)["code"])
