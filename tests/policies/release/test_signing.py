"""One strict form of a signed release; whatever is not that form is refused before it is read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey

from policies.release import (
    Manifest,
    ReleaseRefused,
    SigningKey,
    TrustAnchor,
    cosign,
    manifest_of,
    sign,
    signers_of,
    verified,
)
from policies.release.signing import TYPE
from tests.policies.release.made import ANCHOR, ANN, BOB, DEFAULT, EVE, jwks, manifest

TOLD = manifest(DEFAULT, 1)
SIGNED = sign(TOLD, [ANN, BOB])


def code(call: Callable[..., object], *values: object, **named: object) -> str:
    with pytest.raises(ReleaseRefused) as caught:
        call(*values, **named)
    return caught.value.code


def text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def raw(encoded: str) -> bytes:
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


def header(**changes: Any) -> dict[str, Any]:
    told = {"alg": "Ed25519", "kid": "ann", "typ": TYPE} | changes
    return {name: value for name, value in told.items() if value is not ...}


def signed_as(protected: dict[str, Any], key: Any, algorithm: str) -> dict[str, Any]:
    """By joserfc itself, with any header and key."""
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    made = jws.serialize_json([{"protected": protected}], TOLD.payload(), key, registry=registry)
    return {"payload": made["payload"], "signatures": made["signatures"]}


def refusal(release: dict[str, Any]) -> str:
    return code(verified, release, ANCHOR)


def test_every_further_signer_signs_the_very_same_bytes() -> None:
    first = sign(TOLD, [ANN])
    both = cosign(first, BOB)
    assert both == SIGNED  # Ed25519 is deterministic
    assert signers_of(both) == ("ann", "bob")
    assert manifest_of(both) == TOLD
    assert verified(both, ANCHOR).signers == ("ann", "bob")
    assert code(cosign, both, ANN) == "duplicate_signer"
    assert code(sign, TOLD, [ANN, ANN]) == "duplicate_signer"


def test_nobody_counts_twice() -> None:
    twice = {**SIGNED, "signatures": [SIGNED["signatures"][0]] * 2}
    assert refusal(twice) == "duplicate_signer"


def test_the_older_name_of_the_algorithm_is_the_same_algorithm() -> None:
    """RFC 9864 renamed EdDSA over Curve25519; other signers' tools may not know yet."""
    assert verified(_older(), ANCHOR).signers == ("ann",)


def _older() -> dict[str, Any]:
    """Signed by the primitive, as another tool would."""
    protected = text(json.dumps(header(alg="EdDSA"), separators=(",", ":")).encode())
    payload = text(TOLD.payload())
    secret = Ed25519PrivateKey.from_private_bytes(raw(str(ANN.key.as_dict(private=True)["d"])))
    signature = secret.sign(f"{protected}.{payload}".encode())
    return {
        "payload": payload,
        "signatures": [{"protected": protected, "signature": text(signature)}],
    }


def test_no_other_algorithm_is_looked_at() -> None:
    """Not another curve, not a shared secret made of the public key, not none."""
    public = raw(str(ANN.public()["x"]))
    attempts = (
        signed_as(header(alg="ES256"), ECKey.generate_key("P-256", auto_kid=False), "ES256"),
        signed_as(header(alg="HS256"), OctKey.import_key(public), "HS256"),
        signed_as(header(alg="Ed448"), OKPKey.generate_key("Ed448", auto_kid=False), "Ed448"),
    )
    for attempt in attempts:
        assert refusal(attempt) == "wrong_algorithm"
    none = {"protected": text(json.dumps(header(alg="none")).encode()), "signature": "AA"}
    assert refusal({"payload": SIGNED["payload"], "signatures": [none]}) == "wrong_algorithm"


def test_a_signature_for_something_else_is_no_approval() -> None:
    """The same key may sign tokens elsewhere: the type keeps them apart."""
    assert refusal(signed_as(header(typ="JWT"), ANN.key, "Ed25519")) == "wrong_type"
    assert refusal(signed_as(header(typ=...), ANN.key, "Ed25519")) == "malformed_release"


def test_a_header_points_to_nothing() -> None:
    for more in ({"jku": "https://keys.example"}, {"jwk": EVE.public()}, {"b64": False}):
        release = signed_as(header(), ANN.key, "Ed25519")
        protected = text(json.dumps(header(**more), separators=(",", ":")).encode())
        release["signatures"][0]["protected"] = protected
        assert refusal(release) == "malformed_release"
    unprotected = {**SIGNED["signatures"][0], "header": {"kid": "bob"}}
    assert refusal({**SIGNED, "signatures": [unprotected]}) == "malformed_release"


def test_a_key_of_another_signer_does_not_sign_for_one() -> None:
    forged = sign(TOLD, [SigningKey("ann", EVE.key)])
    assert refusal(forged) == "bad_signature"
    mixed = {**SIGNED, "signatures": [*forged["signatures"], SIGNED["signatures"][1]]}
    assert refusal(mixed) == "bad_signature"
    assert refusal(sign(TOLD, [EVE])) == "unknown_signer"


@pytest.mark.parametrize(
    "release",
    [
        {},
        {"payload": SIGNED["payload"]},
        {**SIGNED, "more": 1},
        {**SIGNED, "payload": 7},
        {**SIGNED, "payload": SIGNED["payload"] + "="},
        {**SIGNED, "payload": ""},
        {**SIGNED, "signatures": [7]},
        {**SIGNED, "signatures": [{**SIGNED["signatures"][0], "signature": None}]},
        {**SIGNED, "signatures": [{**SIGNED["signatures"][0], "protected": text(b"[" * 9_000)}]},
        {**SIGNED, "signatures": [{**SIGNED["signatures"][0], "protected": text(b'"x"')}]},
    ],
)
def test_what_is_not_the_one_form_is_refused(release: dict[str, Any]) -> None:
    assert refusal(release) == "malformed_release"


def test_no_signature_at_all_is_said_as_such() -> None:
    several: list[Any] = [[], "x", None, SIGNED["signatures"] * 9]
    for signatures in several:
        assert refusal({**SIGNED, "signatures": signatures}) == "unsigned"


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": 0},
        {"generation": True},
        {"generation": 1.5},
        {"generation": 2**53 + 1},
        {"environment": "Production"},
        {"digest": "F" * 64},
        {"files": {"rules/units.csv": "x"}},
        {"change": "harmless"},
        {"reason": "x" * 2_001},
        {"made_at": "yesterday"},
        {"base_generation": 1},
        {"base_digest": "f" * 64},
        {"base_generation": 1, "base_digest": "f" * 64},
    ],
)
def test_a_manifest_of_another_shape_is_not_read(changes: dict[str, Any]) -> None:
    """Signed or not: the last one's base is not earlier than itself."""
    told = manifest(DEFAULT, **({"generation": 1} | changes))
    assert code(verified, sign(told, [ANN]), ANCHOR) == "bad_manifest"


def test_a_payload_that_is_no_manifest_is_not_read() -> None:
    for payload in (b"", b"7", b"{}", b"[" * 100_000, TOLD.payload()[:-1]):
        assert code(Manifest.read, payload) == "bad_manifest"


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_file_says_whose_key_it_is() -> None:
    """By the keys of the environment, else by its own line."""
    pem = ANN.to_pem()
    assert SigningKey.from_pem(pem).signer == "ann"
    bare = pem.split(b"\n", 1)[1]
    assert code(SigningKey.from_pem, bare) == "key_unusable"
    assert SigningKey.from_pem(bare, ANCHOR).signer == "ann"
    misnamed = pem.replace(b"signer: ann", b"signer: bob")
    assert SigningKey.from_pem(misnamed, ANCHOR).signer == "ann"
    assert code(SigningKey.from_pem, EVE.to_pem(), ANCHOR) == "unknown_key"


def test_only_one_ed25519_private_key_is_a_key_file() -> None:
    p256 = ECKey.generate_key("P-256", auto_kid=False).as_pem(private=True)
    x25519 = OKPKey.generate_key("X25519", auto_kid=False).as_pem(private=True)
    public = ANN.key.as_pem(private=False)
    for wrong in (b"", p256, x25519, public, ANN.to_pem() + BOB.to_pem()):
        assert code(SigningKey.from_pem, wrong) == "key_unusable"


def test_a_private_key_never_shows() -> None:
    secret = ANN.key.as_dict(private=True)["d"]
    assert str(secret) not in repr(ANN)
    assert "d" not in ANN.public()


def test_an_environment_has_enough_different_public_keys() -> None:
    """One person under two names would be two signers."""
    private = {**EVE.key.as_dict(private=True), "kid": "eve"}
    p256 = {**ECKey.generate_key("P-256", auto_kid=False).as_dict(private=False), "kid": "eve"}
    sets: list[bytes] = [
        b"",
        b"{}",
        b'{"keys": []}',
        b'{"keys": [7, 8]}',
        jwks(ANN),
        jwks(ANN, ANN),
        jwks(ANN, SigningKey("bob", ANN.key)),
        jwks(ANN, SigningKey("Bob", BOB.key)),
        json.dumps({"keys": [ANN.public(), private]}).encode(),
        json.dumps({"keys": [ANN.public(), p256]}).encode(),
        json.dumps({"keys": [ANN.public(), {**BOB.public(), "x": "AA"}]}).encode(),
        json.dumps({"keys": [ANN.public(), {"kty": "OKP", "crv": "Ed25519"}]}).encode(),
    ]
    believe = partial(TrustAnchor.from_jwks, environment="production")
    for listed in sets:
        assert code(believe, listed) == "keys_unusable"
    assert code(believe, jwks(ANN, BOB), widening_signers=0) == "keys_unusable"
