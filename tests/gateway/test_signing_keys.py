"""The ring of signing keys: one file, rotated and retired while everything goes on.

Provenance: issue 4, point 5.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from joserfc.jwk import ECKey, RSAKey

from gateway.authn.jws import read
from gateway.authn.key_ring import BadKeyFile, RingKey, read_ring, signer, write_ring
from gateway.authn.own_keys import OwnKeys
from gateway.compose.failure import CannotStart
from gateway.compose.signing import (
    KeyFile,
    KeyRefused,
    key_file,
    opened_keys,
    retire,
    ring_of,
    rotate,
)
from gateway.settings import Settings
from tests.gateway.cli.made import gateway

NOW = 1_800_000_000.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A state folder with a ring of one key."""
    found = Settings.model_validate({"state": tmp_path / "state"})
    key_file(found).parent.mkdir()
    key_file(found).write_text(write_ring([RingKey.fresh()]))
    return found


def kids(settings: Settings) -> list[str]:
    return [one.kid for one in ring_of(settings)]


def test_a_ring_is_read_as_it_was_written() -> None:
    """Order, keys and moments; a key without a moment has none."""
    ring = [RingKey.fresh(NOW), RingKey.fresh(), RingKey.fresh(5)]
    found = read_ring(write_ring(ring).encode())
    assert [(one.kid, one.signs_from) for one in found] == [
        (one.kid, one.signs_from) for one in ring
    ]


def test_a_file_that_openssl_wrote_is_read() -> None:
    """Its parameters block stands before the key and is no key; so is any remark."""
    key = ECKey.generate_key("P-256")
    remark = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    (found,) = read_ring(remark + b"a remark\n" + key.as_pem(private=True))
    assert (found.kid, found.signs_from) == (key.thumbprint(), 0)


def test_what_is_no_ring_is_refused_whole() -> None:
    """Empty, another curve or kind, a public half, one broken key among sound ones, a wrong
    moment, a key twice, too many."""
    sound = RingKey.fresh()
    text = write_ring([sound])
    for wrong in (
        "",
        "not a key",
        ECKey.generate_key("P-384").as_pem(private=True).decode(),
        RSAKey.generate_key(2048).as_pem(private=True).decode(),
        text.replace("MI", "XX"),
        text + text.replace("-----END PRIVATE KEY-----", ""),
        text + ECKey.generate_key("P-384").as_pem(private=True).decode(),
        text + "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        f"signs-from: tomorrow\n{text}",
        text + text,
        write_ring([RingKey.fresh() for _ in range(17)]),
    ):
        with pytest.raises(BadKeyFile):
            read_ring(wrong.encode())
    with pytest.raises(BadKeyFile):
        read_ring(sound.key.as_pem(private=False))


def test_a_new_key_is_published_before_it_signs() -> None:
    """Everybody can know the key of a signature before they meet one."""
    old, new = RingKey.fresh(), RingKey.fresh(NOW + 120)
    now = [NOW]
    keys = OwnKeys([new, old], clock=lambda: now[0])
    published = [one["kid"] for one in json.loads(keys.jwks())["keys"]]
    assert published == [new.kid, old.kid]
    assert read(keys.sign({}, typ="t")).kid == old.kid
    now[0] += 120
    assert read(keys.sign({}, typ="t")).kid == new.kid
    assert keys.public(old.kid) is not None
    assert signer([new], NOW).kid == new.kid  # the only one signs in any case


def test_rotation_and_retirement_by_command(settings: Settings) -> None:
    """One that signs, did a minute ago or is the last one stays, unless told twice."""
    (old,) = kids(settings)
    with pytest.raises(KeyRefused) as refused:
        retire(settings, old, force=True)
    assert refused.value.code == "last_key"
    new = rotate(settings, now=NOW).kid
    assert kids(settings) == [new, old]
    assert signer(ring_of(settings), NOW + 119).kid == old
    assert signer(ring_of(settings), NOW + 120).kid == new
    for moment in (NOW, NOW + 120, NOW + 179):
        with pytest.raises(KeyRefused) as refused:
            retire(settings, old, now=moment)
        assert refused.value.code == "key_in_use"
    with pytest.raises(KeyRefused):
        retire(settings, "nobody", now=NOW + 300)
    retire(settings, old, now=NOW + 180)
    assert kids(settings) == [new]
    swift = rotate(settings, at_once=True, now=NOW + 200).kid
    assert signer(ring_of(settings), NOW + 200).kid == swift
    retire(settings, new, force=True, now=NOW + 201)
    assert kids(settings) == [swift]
    assert stat.S_IMODE(key_file(settings).stat().st_mode) == 0o600


def test_a_link_to_the_keys_stays_a_link(settings: Settings, tmp_path: Path) -> None:
    """Mounted secrets are links; what they lead to is what changes."""
    link = tmp_path / "link.pem"
    link.symlink_to(key_file(settings))
    linked = Settings.model_validate({"keys": {"assertion_file": link}})
    fresh = rotate(linked)
    assert link.is_symlink()
    assert kids(settings)[0] == fresh.kid


def test_a_changed_file_is_taken_over_whole_or_not_at_all(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Last good ring, one line per change; what comes after counts again."""
    file = KeyFile(key_file(settings))
    before = file.keys.jwks()
    file.look()
    assert file.keys.jwks() == before
    rotate(settings, at_once=True)
    file.look()
    after = file.keys.jwks()
    assert len(json.loads(after)["keys"]) == 2
    assert read(file.keys.sign({}, typ="t")).kid == kids(settings)[0]
    good = file.path.read_bytes()
    with caplog.at_level(logging.ERROR):
        file.path.write_bytes(good[: len(good) // 2])
        for _ in range(3):
            file.look()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        file.path.unlink()
        file.look()
    assert file.keys.jwks() == after
    file.path.write_text(write_ring([RingKey.fresh()]))
    file.look()
    assert len(json.loads(file.keys.jwks())["keys"]) == 1
    with pytest.raises(CannotStart, match="key_unusable"):
        KeyFile(file.path.with_name("nothing"))


def test_a_serving_process_follows_its_file(settings: Settings) -> None:
    """Without a signal and without a restart."""

    async def scene() -> None:
        async with AsyncExitStack() as stack:
            keys = await opened_keys(stack, settings)
            fresh = await asyncio.to_thread(rotate, settings)
            async with asyncio.timeout(20):
                while keys.public(fresh.kid) is None:  # noqa: ASYNC110 - what it does on its own
                    await asyncio.sleep(0.05)

    asyncio.run(scene())


def test_the_commands_tell_what_a_key_does(settings: Settings) -> None:
    """`list`, `rotate`, `retire` over the file of the settings; errors are one line."""
    variables = {"GATEWAY_STATE": str(settings.state)}
    (old,) = kids(settings)
    assert gateway("keys", "list", **variables).out.splitlines()[1].split() == [old, "signs", "-"]
    new = gateway("keys", "rotate", **variables).out.split()[0]
    listed = gateway("keys", "list", **variables).out.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [[new, "waits"], [old, "signs"]]
    refused = gateway("keys", "retire", old, **variables)
    assert refused.code == 1
    assert refused.lines[0].startswith("gateway: error: key_in_use: ")
    assert gateway("keys", "retire", new, **variables).code == 0
    assert kids(settings) == [old]
    os.truncate(key_file(settings), 10)
    assert gateway("keys", "rotate", **variables).code == 2


def test_key_whose_id_looks_like_an_option_can_be_retired(settings: Settings) -> None:
    """One in 64: a thumbprint is base64url."""
    while not (key := RingKey.fresh()).kid.startswith("-"):
        pass
    key_file(settings).write_text(write_ring([*ring_of(settings), key]))
    variables = {"GATEWAY_STATE": str(settings.state)}
    assert gateway("keys", "retire", key.kid, **variables).out.split() == [key.kid, "retired"]
    wrong = gateway("keys", "retire", kids(settings)[0], "--forse", **variables)
    assert (wrong.code, len(kids(settings))) == (2, 1)
