"""Tokens and callers that are revoked: how a list is read, and what ends with it.

Provenance: attack log section 2 ("kills the session now") and row O15; RFC 7519.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.authn import delegation
from gateway.authn.bearer import Authenticator
from gateway.authn.claims import LEEWAY_S, subject_id
from gateway.authn.revoked import BadRevocations, Revoked, read_revoked
from gateway.compose.failure import CannotStart
from gateway.compose.trust import revoked_of, strangers
from gateway.settings import Settings
from policies.decision import PolicyDigest
from policies.snapshot import Snapshot
from tests.gateway.fastpath.asking import Caller, head, playing, warm
from tests.gateway.relay.hostile import Peer
from tests.gateway.stage import OK, Stage
from tests.gateway.tokens import URLS, Issuers

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"
ISS = URLS["idp:customers"]
LATER, LATER_TEXT = 4_102_444_800.0, "2100-01-01T00:00:00Z"
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=40)


def line(**words: object) -> bytes:
    return json.dumps({"iss": ISS, "until": LATER_TEXT, **words}).encode()


@given(st.lists(st.tuples(WORD, st.sampled_from(["jti", "sub"]), WORD), max_size=6))
def test_every_line_ends_its_own_token_or_caller_and_nobody_elses(
    told: list[tuple[str, str, str]],
) -> None:
    revoked = read_revoked(b"\n".join(line(iss=iss, **{name: word}) for iss, name, word in told))
    words = {word for _, _, word in told} | {"another"}
    for iss in {iss for iss, _, _ in told} | {"elsewhere"}:
        for word in words:
            claims = {"iss": iss, "jti": word}
            assert revoked.token(claims, LATER - 1) is ((iss, "jti", word) in told)
            assert not revoked.token(claims, LATER + LEEWAY_S)
            name = subject_id(iss, word)
            assert revoked.subject(name, LATER - 1) is ((iss, "sub", word) in told)
            assert not revoked.subject(name, LATER + LEEWAY_S)
    assert revoked.issuers == {iss for iss, _, _ in told}


def test_of_two_lines_about_one_token_the_longer_counts() -> None:
    short = line(jti="a", until="2030-01-01T00:00:00Z")
    for lines in ([short, line(jti="a")], [line(jti="a"), short]):
        assert read_revoked(b"\n".join(lines)).token({"iss": ISS, "jti": "a"}, LATER - 1)


@pytest.mark.parametrize(
    "broken",
    [
        b"not json", b"[]", b'{"iss":"a","jti":"b"}', line(), line(jti="a", sub="b"),
        line(jti=""), line(jti=1), line(sub=None), line(iss="", jti="a"), line(iss=[ISS], jti="a"),
        line(jti="a", until="2100-01-01"), line(jti="a", until=4_102_444_800),
        line(jti="a", until="2100-01-01T00:00:00+00:00"), line(jti="a", until=None),
        line(jti="a", until="2100-1-1T0:0:0Z"), line(jti="a", until="٢١٠٠-01-01T00:00:00Z"),
        line(jti="a", until="2100-02-29T00:00:00Z"), line(jti="a", until="2100-01-01T25:00:00Z"),
        line(jti="a", more=1), b'{"iss":"a","iss":"b","jti":"c","until":"2100-01-01T00:00:00Z"}',
        line(jti="a" * 2_049), b"\xff", b"\xef\xbb\xbf" + line(jti="a"),
    ],
)  # fmt: skip
def test_line_with_another_form_makes_the_whole_list_unusable(broken: bytes) -> None:
    """And is named by its number; nothing of it is told."""
    with pytest.raises(BadRevocations, match=r"^line 3: "):
        read_revoked(line(jti="a") + b"\n\n" + broken + b"\n" + line(jti="b"))


def test_list_without_end_is_refused() -> None:
    with pytest.raises(BadRevocations, match="more than 100000 lines"):
        read_revoked(b"\n" * 100_001)


def test_list_that_cannot_be_read_ends_the_start_with_its_place(
    tmp_path: Path, believing: Snapshot
) -> None:
    """Absent, or with a fault; without a file nobody is revoked. An issuer that policy has not is
    named, so that a typing error is seen."""
    file = tmp_path / "revoked.jsonl"
    settings = Settings.model_validate({"tokens": {"revoked_file": str(file)}})
    with pytest.raises(CannotStart) as caught:
        revoked_of(settings)
    assert (caught.value.code, str(file) in caught.value.reason) == ("revocations_unusable", True)
    file.write_bytes(line(jti="a") + b"\n{}")
    with pytest.raises(CannotStart) as caught:
        revoked_of(settings)
    assert "line 2" in caught.value.reason
    assert "tokens.revoked_file" in caught.value.remedy
    file.write_bytes(line(jti="a") + b"\n" + line(iss="https://typo.example/", sub="b"))
    assert strangers(revoked_of(settings), believing.issuers) == ["https://typo.example/"]
    assert revoked_of(Settings()) == Revoked()


def test_what_was_believed_before_a_revocation_stays_void_when_the_issuer_publishes_elsewhere(
    believing: Snapshot, issuers: Issuers
) -> None:
    """Every change gives a generation that there never was, also one that forgets a set of keys
    together with how often it had changed."""
    here = next(one for one in believing.issuers if one.url == ISS)
    there = replace(here, jwks="", jwks_uri="https://login.example/jwks")

    async def fetch(_: str) -> bytes:
        return here.jwks.encode()

    async def scenario() -> None:
        believer, token = Authenticator(fetch=fetch), issuers.token("customer").encode()
        seen = [believer.generation]
        for binding, digest in (there, "a"), (here, "b"):
            await believer.principal(token, issuers=[binding], digest=PolicyDigest(digest * 64))
            seen.append(believer.generation)
        believer.revoke(read_revoked(line(jti="a")))
        seen.append(believer.generation)
        assert seen == sorted(set(seen))

    asyncio.run(scenario())


@contextmanager
def revoking(stage: Stage, *lines: bytes) -> Iterator[None]:
    """The gateway with this list, and with none afterwards."""

    async def take_over(revoked: Revoked) -> None:
        stage.authenticator.revoke(revoked)
        stage.streams.look()

    stage.streams.keys = lambda: stage.authenticator.generation
    stage.call(take_over(read_revoked(b"\n".join(lines))))
    try:
        yield
    finally:
        stage.call(take_over(Revoked()))


@pytest.mark.parametrize("words", [{"jti": "j-1"}, {"sub": "u-1"}], ids=["token", "caller"])
def test_revoked_token_is_nobodys_from_the_next_request_on(
    stage: Stage, words: dict[str, str]
) -> None:
    """Though it was believed a moment ago and its header block is known; whoever is not named is
    asked for as before, and the token counts again when the list is empty."""
    token = stage.issuers.token("customer", jti="j-1")
    other = stage.issuers.token("customer", jti="j-2", sub="u-2")
    raw, others = head(stage, token=token), head(stage, token=other)
    with Caller(stage) as caller:
        for one in (raw, others, raw, others):
            warm(stage, caller, one)
        stage.upstream.requests.clear()
        taken = stage.lane.taken
        with revoking(stage, line(**words)):
            for _ in range(2):
                answer = caller.ask(raw)
                assert answer.startswith(b"HTTP/1.1 401"), answer
                assert b'error="invalid_token"' in answer
            assert stage.upstream.requests == []
            assert stage.lane.taken == taken
            warm(stage, caller, others)
            assert stage.ask("GET", "/v1/scope", token=token).status == 401
        warm(stage, caller, raw)


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_revocation_that_is_over_ends_nothing(stage: Stage) -> None:
    token, over = stage.issuers.token("customer", jti="j-1"), moment(time.time() - LEEWAY_S - 1)
    with revoking(stage, line(jti="j-1", until=over)), Caller(stage) as caller:
        warm(stage, caller, head(stage, token=token))


def test_token_revoked_until_its_end_is_not_believed_past_it(stage: Stage) -> None:
    """Clocks differ, so a token is believed for some seconds after its end; not a revoked one."""
    ends = int(time.time()) - 5
    token = stage.issuers.token("customer", jti="j-1", iat=ends - 60, exp=ends)
    with Caller(stage) as caller:
        warm(stage, caller, head(stage, token=token))
        for words in {"jti": "j-1"}, {"sub": "u-1"}:
            with revoking(stage, line(**words, until=moment(ends))):
                assert caller.ask(head(stage, token=token)).startswith(b"HTTP/1.1 401")


def test_token_of_another_issuer_with_the_same_words_is_believed(stage: Stage) -> None:
    elsewhere = URLS["idp:partners"]
    token = stage.issuers.token("customer", jti="j-1")
    lines = line(iss=elsewhere, jti="j-1"), line(iss=elsewhere, sub="u-1")
    with revoking(stage, *lines), Caller(stage) as caller:
        warm(stage, caller, head(stage, token=token))


def test_stream_of_a_revoked_caller_ends_whole(stage: Stage) -> None:
    """Within two seconds, after its last whole event; its record says why."""
    raw = head(stage, token=stage.issuers.token("customer", jti="j-1"))

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(EVENTS)
        await peer.gone()

    with playing(stage, script), Caller(stage) as caller:
        caller.sock.settimeout(3)
        caller.sock.sendall(raw)
        until(caller, b"data: 1")
        with revoking(stage, line(jti="j-1")):
            until(caller, b"0\r\n\r\n")
    assert stage.records.all[-1].code == "stream_revoked"


def test_stream_that_opens_after_its_caller_was_revoked_ends_too(stage: Stage) -> None:
    """Its request was let pass before; the revocation came while its upstream was asked, and was
    noticed by then for what is open to others."""
    first, seen = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        if peer.number:
            seen.set()
            await first.wait()
        await peer.request()
        await peer.say(EVENTS)
        await peer.gone()

    async def later() -> None:
        stage.streams._clock = lambda: time.monotonic() + 1
        stage.streams.look()

    raw = head(stage, token=stage.issuers.token("customer", jti="j-1"))
    other = head(stage, token=stage.issuers.token("customer", jti="j-2", sub="u-2"))
    with playing(stage, script), Caller(stage) as bystander, Caller(stage) as caller:
        bystander.sock.sendall(other)
        until(bystander, b"data: 1")
        caller.sock.sendall(raw)
        stage.call(seen.wait())
        with revoking(stage, line(jti="j-1"), line(jti="j-2")):
            until(bystander, b"0\r\n\r\n")
            stage.loop.call_soon_threadsafe(first.set)
            until(caller, b"data: 1")
            stage.call(later())
            until(caller, b"0\r\n\r\n")
            stage.streams._clock = time.monotonic
    assert [record.code for record in stage.records.all[-2:]] == ["stream_revoked"] * 2


def until(caller: Caller, words: bytes) -> None:
    """Return when these words have come."""
    received = b""
    while words not in received:
        piece = caller.sock.recv(65536)
        assert piece, received
        received += piece


def test_nobody_speaks_for_a_revoked_caller(stage: Stage) -> None:
    """A delegation that was signed before is as good as none."""
    service = stage.issuers.sign(
        "idp:services", stage.issuers.claims("idp:services", sub="portal-customer")
    )
    stage.upstream.answer = OK
    with Caller(stage) as caller:
        caller.ask(head(stage))
    told = stage.upstream.requests[-1].split(delegation.HEADER + b": ")[1].split(b"\r\n")[0]
    assert told
    asked = [(delegation.HEADER.decode(), told.decode())]
    assert stage.ask("GET", "/v1/scope", token=service, headers=asked).status == 200
    with revoking(stage, line(sub="u-1")):
        assert stage.ask("GET", "/v1/scope", token=service, headers=asked).status == 401
