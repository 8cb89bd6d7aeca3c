"""WebSockets of a running gateway: who opens one, what the upstream hears, how it ends.

Provenance: attack log rows W1-W3, S12, O15, D5 and section 4 ("WebSocket"); architecture G5.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode

from tests.gateway.relay.hostile import Peer
from tests.gateway.relay.sockets import Frames, accepted, speaks
from tests.gateway.stage import parse
from tests.gateway.streams.staging import PORTAL, Scene, code_of

HANDSHAKE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def refusal(scene: Scene, **options: object) -> tuple[int, str]:
    """The status and code with which a handshake is refused."""
    with pytest.raises(InvalidStatus) as refused, scene.socket(**options):  # type: ignore[arg-type]
        pass
    response = refused.value.response
    assert response.body is not None
    return response.status_code, code_of(bytes(response.body))


def ask(scene: Scene, line: bytes, lines: bytes = HANDSHAKE, after: bytes = b"") -> bytes:
    return scene.stage.raw(
        line + b"\r\nHost: gateway.test\r\n" + lines + b"Origin: " + PORTAL.encode() + b"\r\n\r\n"
        + after
    )  # fmt: skip


def test_messages_go_both_ways_and_the_end_is_recorded(scene: Scene) -> None:
    """Text, bytes and a close with its code; one record, with what went over."""
    portal = scene.play()
    with scene.socket() as caller:
        caller.send("häy")
        assert caller.recv() == "häy"
        caller.send(b"\x00" * 70_000)
        assert caller.recv() == b"\x00" * 70_000
        assert caller.response is not None
        request_id = caller.response.headers["x-request-id"]
        assert caller.response.headers["x-policy-digest"] == scene.open.digest
        caller.close(4001, "enough")
    record = scene.last()
    assert (record.status, record.decision, record.code) == (101, "allow", "")
    assert (record.route, record.audience) == ("portal-customer", "customer")
    assert (record.bytes_in, record.bytes_out) == (70_004, 70_004)
    assert record.request_id == request_id
    assert len(scene.stage.records.all) == portal.connections == 1


def test_messages_of_both_ways_tell_that_a_socket_is_not_idle(scene: Scene) -> None:
    """What the register counts is what went over it."""
    scene.play()
    with scene.socket() as caller:
        for _ in range(3):
            caller.send("")
            assert caller.recv() == ""
        assert [one.count() for one in scene.stage.streams._open] == [6]


@pytest.mark.parametrize("path", ["/portal/customer/live", "/portal/customer/live/"])
def test_upstream_hears_who_it_is_and_nothing_that_only_we_may_know(
    scene: Scene, path: str
) -> None:
    """The header rules and the signed assertion are those of any relay."""
    portal = scene.play()
    spoofed = {"X-Gateway-Audience": "employee", "X-Forwarded-For": "6.6.6.6", "X_User": "root"}
    with scene.socket(f"{path}?since=1", headers=spoofed) as caller:
        caller.close()
    assert portal.requests[0].startswith(f"GET {path}?since=1 HTTP/1.1\r\n".encode())
    assert portal.header("x-gateway-audience") == ["customer"]
    assert portal.header("x-forwarded-for") == ["127.0.0.1"]
    assert portal.header("origin") == [PORTAL]
    assert len(portal.header("x-gateway-assertion")[0].split(".")) == 3
    assert portal.header("authorization") == portal.header("x_user") == []
    assert portal.header("sec-websocket-extensions") == []


def test_upstream_chooses_the_subprotocol(scene: Scene) -> None:
    """The upstream is dialled first; what it chose is what the caller gets."""
    portal = scene.play(
        speaks(lambda frames: frames.hear(), b"Sec-WebSocket-Protocol: v2")  # type: ignore[arg-type,return-value]
    )
    with scene.socket(subprotocols=["v1", "v2"]) as caller:
        assert caller.subprotocol == "v2"
    assert portal.header("sec-websocket-protocol") == ["v1, v2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"path": "/portal/employee/live", "who": "",
          "origin": "https://intranet.example"}, (401, "unauthenticated")),
        ({"path": "/portal/employee/live", "origin": "https://intranet.example"},
         (403, "forbidden")),
        ({"token": lambda: "not.a.token"}, (401, "unauthenticated")),
        ({"who": "partner"}, (403, "forbidden")),
        ({"origin": "https://evil.example"}, (403, "forbidden")),
        ({"origin": "null"}, (403, "forbidden")),
        ({"origin": "absent"}, (403, "forbidden")),
        ({"origin": PORTAL + ".evil.example"}, (403, "forbidden")),
        ({"origin": PORTAL.replace("https", "http")}, (403, "forbidden")),
        ({"origin": None, "headers": {"Sec-Fetch-Mode": "websocket"}}, (403, "forbidden")),
        ({"headers": {"Origin": PORTAL}}, (403, "forbidden")),
        ({"path": "/portal/employee/live", "who": "employee", "origin": None},
         (403, "forbidden")),
        ({"path": "/portal/partner/live", "who": "partner"}, (501, "upgrade_unsupported")),
        ({"path": "/v1/scope"}, (501, "upgrade_unsupported")),
        ({"path": "/v1/scope/"}, (400, "bad_path")),
        ({"path": "/portal/employee/", "origin": "https://intranet.example"}, (403, "forbidden")),
        ({"path": "/nowhere"}, (404, "not_found")),
    ],
    ids=["anonymous", "another's portal", "bad token", "no row", "foreign page", "null", "word",
         "suffix", "scheme", "browser without origin", "two origins", "absence is not listed",
         "no origins", "guarded", "guarded with a slash", "another's index", "no route"],
)  # fmt: skip
def test_handshake_without_the_right_is_refused_and_nothing_is_dialled(
    scene: Scene, options: dict[str, object], expected: tuple[int, str]
) -> None:
    """W1, W2: an HTTP answer; the upstream saw nothing; one record that says why."""
    portal = scene.play()
    assert refusal(scene, **options) == expected
    assert (portal.connections, portal.requests) == (0, [])
    record = scene.last()
    assert (record.status, record.code, record.decision) == (*expected, "deny")


@pytest.mark.parametrize("origin", [PORTAL, None], ids=["listed", "absent"])
def test_listed_origin_opens_also_without_a_credential(scene: Scene, origin: str | None) -> None:
    """Where the route has a row for anonymous callers, and lists clients that are no browser."""
    scene.play()
    with scene.socket(who="", origin=origin) as caller:
        caller.send("x")
        assert caller.recv() == "x"


@pytest.mark.parametrize(
    ("line", "lines", "status"),
    [
        (b"POST /portal/customer/x HTTP/1.1", HANDSHAKE, 405),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Content-Length: 2\r\n", 400),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Content-Length: 0\r\n", 400),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Transfer-Encoding: chunked\r\n", 400),
        (b"GET /portal/customer/x HTTP/1.0", HANDSHAKE, 400),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE.replace(b"13", b"8"), 501),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Sec-WebSocket-Version: 13\r\n", 501),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Sec-WebSocket-Key: x\r\n", 400),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE.replace(b"Q==", b"R=="), 400),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Upgrade: h2c\r\n", 501),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Sec-WebSocket-Protocol: a, a\r\n", 400),
        (b"GET /portal/customer/x HTTP/1.1", HANDSHAKE + b"Sec-WebSocket-Protocol: a b\r\n", 400),
    ],
    ids=["POST", "body", "empty body", "chunks", "1.0", "version", "two versions", "two keys",
         "key", "two upgrades", "subprotocol twice", "no token"],
)  # fmt: skip
def test_malformed_handshake_is_refused_at_once(
    scene: Scene, line: bytes, lines: bytes, status: int
) -> None:
    """W3: no 101, no hang, nothing dialled."""
    portal = scene.play()
    assert [reply.status for reply in parse(ask(scene, line, lines, b"ab"))] == [status]
    assert portal.connections == 0


def test_second_listener_takes_no_socket(scene: Scene) -> None:
    """What only operators reach opens nothing either."""
    with socket.create_connection(scene.stage.admin_socket.getsockname(), timeout=10) as raw:
        raw.sendall(b"GET /portal/customer/x HTTP/1.1\r\nHost: gateway.test\r\n" + HANDSHAKE)
        raw.sendall(b"\r\n")
        assert raw.recv(12) == b"HTTP/1.1 501"


def test_bytes_sent_before_the_answer_are_held(scene: Scene) -> None:
    """S12: no byte of the caller's reaches an upstream that has not agreed; then it does."""
    agreed = threading.Event()
    seen: list[object] = []

    async def script(peer: Peer) -> None:
        request = await peer.request()
        seen.append(request)
        while not agreed.is_set():
            await peer.say()
        await peer.say(accepted(request))
        seen.append(await Frames(peer).hear())

    portal = scene.play(script)
    line = b"GET /portal/customer/x HTTP/1.1\r\nHost: gateway.test\r\n"
    frame = b"\x81\x85\x00\x00\x00\x00hello"
    with socket.create_connection(("127.0.0.1", scene.stage.port), timeout=10) as raw:
        raw.sendall(line + HANDSHAKE + b"Origin: " + PORTAL.encode() + b"\r\n\r\n" + frame[:5])
        raw.sendall(frame[5:])
        agreed.set()
        assert raw.recv(12) == b"HTTP/1.1 101"
    scene.last()
    assert seen[1] == (Opcode.TEXT, b"hello")
    assert b"hello" not in portal.requests[0]


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        (401, 401, "upstream_unauthenticated"),
        (403, 403, "upstream_forbidden"),
        (404, 404, "upstream_not_found"),
        (429, 429, "upstream_rate_limited"),
        (503, 503, "upstream_overloaded"),
        (200, 502, "upstream_invalid"),
        (302, 502, "upstream_invalid"),
        (400, 502, "upstream_invalid"),
        (500, 502, "upstream_invalid"),
    ],
)
def test_upstream_that_declines_is_a_refusal_and_its_words_stay_here(
    scene: Scene, said: int, status: int, code: str
) -> None:
    """Why a client may do something about is told by the status and by a code that names the
    upstream; what it says besides is an error page of its own and goes nowhere."""

    async def declines(peer: Peer) -> None:
        await peer.request()
        more = (
            b"content-length: 6\r\nset-cookie: secret=1\r\nwww-authenticate: secret\r\n\r\nsecret"
        )
        await peer.say(b"HTTP/1.1 %d No\r\n" % said + more)

    scene.play(declines)
    with pytest.raises(InvalidStatus) as refused, scene.socket():
        pass
    response = refused.value.response
    assert response.body is not None
    assert (response.status_code, code_of(bytes(response.body))) == (status, code)
    assert b"secret" not in bytes(response.body) + str(response.headers).encode()
    challenged = response.headers.get("www-authenticate", "")
    assert challenged.startswith("Bearer ") is (status == 401)
    assert scene.last().code == code


def test_caller_that_leaves_while_the_upstream_is_dialled_takes_it_along(scene: Scene) -> None:
    """D5: before the socket is open, too."""
    lost = threading.Event()

    async def mute(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        lost.set()

    asked = threading.Event()
    scene.play(mute)
    with socket.create_connection(("127.0.0.1", scene.stage.port), timeout=10) as raw:
        raw.sendall(b"GET /portal/customer/x HTTP/1.1\r\nHost: gateway.test\r\n" + HANDSHAKE)
        raw.sendall(b"Origin: " + PORTAL.encode() + b"\r\n\r\n")
        assert asked.wait(10)
    assert lost.wait(2)
    assert scene.last().code == "caller_gone"


def test_caller_that_vanishes_ends_the_upstream(scene: Scene) -> None:
    """D5: a connection that is cut, without a close."""
    lost = threading.Event()

    async def talk(frames: Frames) -> None:
        await frames.hear()
        lost.set()

    scene.play(speaks(talk))
    with scene.socket() as caller:
        caller.socket.shutdown(socket.SHUT_RDWR)
        assert lost.wait(2)
    assert scene.last().code == "caller_gone"


def test_message_that_is_too_big_ends_the_socket(scene: Scene) -> None:
    """A cap on each direction: 1009 to whoever sent it, and it is not passed on."""
    portal = scene.play()
    with scene.socket() as caller:
        caller.send(b"x" * 100_001)
        with pytest.raises(ConnectionClosed):
            caller.recv()
        assert caller.close_code == 1009
    assert portal.connections == 1
    assert scene.last().bytes_out == 0


def test_socket_follows_a_request_on_the_same_connection(scene: Scene) -> None:
    """A connection that was kept is handed over as a new one is; the pipelined one is refused."""
    portal = scene.play()
    line = b"GET /portal/customer/x HTTP/1.1\r\nHost: gateway.test\r\n"
    last = HANDSHAKE + b"Origin: " + PORTAL.encode() + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", scene.stage.port), timeout=10) as raw:
        raw.sendall(b"GET /nowhere HTTP/1.1\r\nHost: gateway.test\r\n\r\n")
        while not raw.recv(65536).endswith(b"}"):
            pass
        raw.sendall(line + last + b"\x81\x82\x00\x00\x00\x00hi")
        received = b""
        while not received.endswith(b"\x81\x02hi"):
            received += raw.recv(65536)
        assert received.startswith(b"HTTP/1.1 101")
    replies = parse(scene.stage.raw(line + b"\r\n" + line + last))
    assert 101 not in [reply.status for reply in replies]
    assert sum(b"ebsocket" in one for one in portal.requests) == 1


def test_sockets_leave_nothing_behind_however_they_end(scene: Scene) -> None:
    """No connection, no lease of the upstream's, no entry, no task, after a hundred of each."""
    scene.play()

    def end(number: int) -> None:
        with scene.socket() as caller:
            caller.send("x")
            caller.recv()
            match number % 3:
                case 0:
                    caller.close()
                case 1:
                    caller.socket.shutdown(socket.SHUT_RDWR)
                case 2:
                    caller.send(b"x" * 100_001)
                    with pytest.raises(ConnectionClosed):
                        caller.recv()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(end, range(60)))

    async def rest() -> list[str]:
        async with asyncio.timeout(20):
            while names := [  # noqa: ASYNC110 - nobody tells of the last task
                task.get_name()
                for task in asyncio.all_tasks()
                if "CallerSocket" in repr(task) or task.get_name() == "streams"
            ]:
                await asyncio.sleep(0.02)
        return names

    assert scene.stage.call(rest()) == []
    assert not scene.stage.streams._open
    assert len(scene.stage.records.all) == 60


def test_no_message_reaches_another_caller(scene: Scene) -> None:
    """Two identities at once, each on a connection of its own, which nobody uses afterwards."""

    async def tells(frames: Frames) -> None:
        while True:
            opcode, data = await frames.hear()
            await frames.say(opcode, data)
            if opcode is Opcode.CLOSE:
                return

    portal = scene.play(speaks(tells))

    def talk(name: str) -> bool:
        with scene.socket(token=lambda: scene.issuers.token("customer", sub=name)) as caller:
            for number in range(50):
                caller.send(f"{name} {number}")
                if caller.recv() != f"{name} {number}":
                    return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(talk, [f"caller-{one}" for one in range(8)]))
    assert portal.connections == 8
    subjects = {line for one in portal.requests for line in one.split(b"\r\n")
                if line.startswith(b"x-gateway-subject")}  # fmt: skip
    assert len(subjects) == 8
