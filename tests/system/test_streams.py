"""Streams of a whole gateway: a release that narrows ends them, one that does not leaves them.

Provenance: architecture G5 ("on activation each open stream is placed and decided anew within
2 s"); issue 4 parts 3 and 7; attack log section 4 ("WebSocket", "Drain").
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.compose.stores import started
from gateway.settings.reading import load
from policies.release import contents_of
from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.gateway.relay.hostile import Peer, Upstream
from tests.gateway.relay.sockets import Frames, accepted, echoes
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import Composed, composed
from tests.system.releases import Press, Signers, Variant, snapshot_of
from tests.system.serving import believing
from tests.system.serving import serving as served
from tests.system.test_reload import serving

pytestmark = pytest.mark.timeout(300)
ISSUERS = Issuers()
ORIGIN = "https://portal.example"
ROUTES = (
    "rules/routes.yaml",
    "anonymous: customer\n",
    f"""anonymous: customer
    origins: [{ORIGIN}]
""",
)
UNRELATED = "rules/routes.csv", "p, R-PAR-1, partner, portal-partner, GET|HEAD|POST, allow\n", ""
NARROWING = "rules/routes.csv", "p, R-CUS-1, customer, portal-customer, GET|HEAD|POST, allow\n", ""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: 1\n\n\r\n"


async def portal(peer: Peer) -> None:
    """Echoes on a socket; else an event every few milliseconds, and never an end."""
    request = await peer.request()
    if b"upgrade: websocket" in request.lower():
        await peer.say(accepted(request))
        await echoes(Frames(peer))
        return
    await peer.say(HEAD)
    with contextlib.suppress(ConnectionError):
        while True:
            await peer.say(EVENT)
            await asyncio.sleep(0.01)


def changed(contents: Mapping[str, bytes], *edits: tuple[str, str, str]) -> Variant:
    files = dict(contents)
    for name, old, new in edits:
        text = files[name].decode()
        assert old in text
        files[name] = text.replace(old, new).encode()
    return Variant(files, snapshot_of(files), frozenset())


@asynccontextmanager
async def events(stage: Composed) -> AsyncIterator[AsyncIterator[str]]:
    token = ISSUERS.token("customer")
    async with stage.client.stream(
        "GET",
        f"{stage.gateway.url}/portal/customer/events",
        headers={"authorization": f"Bearer {token}"},
        timeout=30,
    ) as answer:
        assert answer.status_code == 200
        yield answer.aiter_lines()


def socket(url: str, path: str = "/portal/customer/live", **options: object) -> connect:
    return connect(
        url.replace("http://", "ws://") + path,
        additional_headers={"Authorization": f"Bearer {ISSUERS.token('customer')}"},
        origin=ORIGIN,  # type: ignore[arg-type]
        proxy=None,
        **options,  # type: ignore[arg-type]
    )


def test_activation_ends_what_it_takes_away_and_nothing_else(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """A signed release, staged, prepared and flipped, over the watcher's own connection."""
    signers = Signers()
    overlay = tmp_path / "overlay"
    ISSUERS.write(overlay)
    contents = contents_of(DEFAULT_FOLDER, overlay).contents
    first, unrelated = changed(contents, ROUTES), changed(contents, ROUTES, UNRELATED)
    narrowed = changed(contents, ROUTES, UNRELATED, NARROWING)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(Upstream(portal))
            env = environment(services, database, tmp_path) | signers.settings(tmp_path)
            env["GATEWAY_UPSTREAM_CUSTOMER_PORTAL"] = f"http://127.0.0.1:{upstream.address.port}"
            settings = load(None, env)
            with started(settings, embedded_allowed=False) as stores:
                press = Press(stores, signers)
                await asyncio.to_thread(press.first, settings, first)
            stage = await stack.enter_async_context(composed(env, ISSUERS, tmp_path))
            await scene(stage, press)

    async def scene(stage: Composed, press: Press) -> None:
        async with socket(stage.gateway.url) as caller, events(stage) as lines:
            await caller.send("before")
            assert await caller.recv() == "before"
            await anext(lines)
            await serving([stage], await press.good(unrelated))
            await caller.send("after")
            assert await caller.recv() == "after"
            for _ in range(20):
                await anext(lines)
            await press.good(narrowed)
            with pytest.raises(ConnectionClosed):
                await caller.recv()
            assert (caller.close_code, caller.close_reason) == (1008, "not allowed any more")
            assert {line async for line in lines} <= {"data: 1", ""}
        counted = (await stage.client.get(f"{stage.gateway.admin_url}/metrics")).text
        for sort in ("socket", "events"):
            row = f'gateway_streams_ended_total{{sort="{sort}",reason="narrowed"}} 1'
            assert row in counted

    asyncio.run(main())


def test_foreign_page_and_foreign_caller_open_nothing_in_a_whole_gateway(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """W1, W2: two identities and two pages against the released policy; one socket is dialled."""
    overlay = tmp_path / "overlay"
    ISSUERS.write(overlay)
    text = (DEFAULT_FOLDER / ROUTES[0]).read_text().replace(*ROUTES[1:])
    (overlay / ROUTES[0]).write_text(text)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(Upstream(portal))
            env = environment(services, database, tmp_path)
            env["GATEWAY_UPSTREAM_CUSTOMER_PORTAL"] = f"http://127.0.0.1:{upstream.address.port}"
            stage = await stack.enter_async_context(composed(env, ISSUERS, tmp_path))
            handshake = {
                "connection": "Upgrade",
                "upgrade": "websocket",
                "sec-websocket-version": "13",
                "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            }
            for who, origin, status in (
                ("partner", ORIGIN, 403),
                ("customer", "https://evil.example", 403),
            ):
                reply = await stage.get("/portal/customer/live", who, origin=origin, **handshake)
                assert reply.status == status
            assert upstream.accepted == 0
            async with socket(stage.gateway.url) as caller:
                await caller.send("x")
                assert await caller.recv() == "x"
            assert upstream.accepted == 1

    asyncio.run(main())


def test_terminated_process_tells_its_sockets_and_ends_in_time(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """SIGTERM: 1012, the last whole event, exit code 0."""
    policy = believing(ISSUERS, tmp_path)
    file = policy / ROUTES[0]
    file.write_text(file.read_text().replace(*ROUTES[1:]))

    async def main() -> None:
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(Upstream(portal))
            env = environment(services, database, tmp_path) | {
                "GATEWAY_POLICY": str(policy),
                "GATEWAY_UPSTREAM_CUSTOMER_PORTAL": f"http://127.0.0.1:{upstream.address.port}",
            }
            process = served(env)
            url = await asyncio.to_thread(process.__enter__)
            client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
            token = {"authorization": f"Bearer {ISSUERS.token('customer')}"}
            target = f"{url}/portal/customer/events"
            async with (
                socket(url) as caller,
                client.stream("GET", target, headers=token) as answer,
            ):
                await caller.send("x")
                assert await caller.recv() == "x"
                lines = answer.aiter_lines()
                await anext(lines)
                ending = asyncio.create_task(asyncio.to_thread(process.__exit__, None, None, None))
                with pytest.raises(ConnectionClosed):
                    await caller.recv()
                assert caller.close_code == 1012
                assert {line async for line in lines} <= {"data: 1", ""}
            await ending

    asyncio.run(main())
