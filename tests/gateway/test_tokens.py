"""Bearer tokens: everything that is not perfect is 401, and retrieval never hears of it.

Provenance: attack log section 3.4, rows J1-J23; Wycheproof JWS vectors.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from gateway.authn.bearer import Authenticator
from gateway.authn.claims import subject_id
from gateway.authn.jws import BadToken, decode_base64url, read, verify
from gateway.authn.key_source import FRESH_S, REFRESH_S, STALE_S, BadKeySet, KeySource, parse_jwks
from gateway.errors import GatewayError, Refusal
from gateway.relay.upstream import UpstreamUnavailable
from policies.decision import PolicyDigest
from policies.snapshot import Snapshot
from tests.gateway.stage import Stage
from tests.gateway.tokens import AUDIENCE, URLS, Issuers, encode, signature

SCOPE = "/v1/scope"


def status(stage: Stage, token: str) -> int:
    return stage.ask("GET", SCOPE, token=token).status


def test_sound_tokens_of_both_key_kinds_are_believed(stage: Stage) -> None:
    """The control: what is refused below is refused for its fault alone."""
    issuers = stage.issuers
    claims = issuers.claims("idp:staff", groups=["staff-all"])
    assert status(stage, issuers.sign("idp:staff", claims)) == 200
    assert status(stage, issuers.sign("idp:staff", claims, key=issuers.rsa)) == 200
    assert status(stage, issuers.sign("idp:staff", claims, {"typ": "at+jwt"})) == 200
    assert status(stage, issuers.sign("idp:staff", {**claims, "typ": "Bearer"})) == 200
    assert status(stage, issuers.sign("idp:staff", {**claims, "token_use": "access"})) == 200
    aud = issuers.token("customer", aud=["https://other.example", AUDIENCE])
    assert status(stage, aud) == 200


HEADERS: dict[str, dict[str, Any] | bytes] = {
    "J1 none": {"alg": "none"},
    "J1 None": {"alg": "None"},
    "J1 NONE": {"alg": "NONE"},
    "J1 empty": {"alg": ""},
    "J2 HS256": {"alg": "HS256"},
    "not in the issuer's list": {"alg": "ES384"},
    "alg is a list": {"alg": ["ES256"]},
    "J3 traversal": {"kid": "../../dev/null"},
    "J3 sql": {"kid": "' OR 1=1"},
    "J3 number": {"kid": 1},
    "J3 list": {"kid": ["ec"]},
    "J3 empty": {"kid": ""},
    "kid of another key kind": {"kid": "rsa"},
    "J4 jku": {"jku": "http://127.0.0.1:1/jwks"},
    "J4 x5u": {"x5u": "http://127.0.0.1:1/x5u"},
    "J5 jwk": {"jwk": {"kty": "EC"}},
    "x5c": {"x5c": ["a"]},
    "J6 unknown crit": {"crit": ["exp"]},
    "J6 empty crit": {"crit": []},
    "J6 b64": {"b64": False, "crit": ["b64"]},
    "J14 long header": {"x": "a" * 4096},
    "J15 doubled": b'{"alg":"ES256","kid":"ec","kid":"ec"}',
    "J16 logout token": {"typ": "logout+jwt"},
    "J16 security event": {"typ": "secevent+jwt"},
    "J16 proof of possession": {"typ": "dpop+jwt"},
    "our own delegation's type": {"typ": "gateway-delegation+jwt"},
    "typ is a number": {"typ": 1},
    "J23 zip": {"zip": "DEF"},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_header_with_a_fault_is_refused(stage: Stage, header: dict[str, Any] | bytes) -> None:
    """J1-J6, J14-J16: signed by the right key over the right claims, and still refused."""
    token = stage.issuers.sign("idp:customers", stage.issuers.claims("idp:customers"), header)
    assert status(stage, token) == 401


def faults(now: int) -> dict[str, dict[str, Any]]:
    """Claims with a fault, at this moment: a suite runs for longer than a token is valid."""
    return {
        "J8 exp over": {"exp": now - 120},
        "J8 exp text": {"exp": str(now + 300)},
        "J8 exp true": {"exp": True},
        "J8 exp zero": {"exp": 0},
        "J8 exp missing": {"exp": None},
        "J8 exp list": {"exp": [now + 300]},
        "J8 exp huge": {"exp": 10**400},
        "J8 nbf ahead": {"nbf": now + 600},
        "J8 nbf text": {"nbf": "0"},
        "iat missing": {"iat": None},
        "iat ahead": {"iat": now + 600},
        "older than the issuer's max_age": {"iat": now - 4_000},
        "J9 prefix": {"aud": AUDIENCE + "/"},
        "J9 substring": {"aud": "https://gateway"},
        "J9 object": {"aud": {AUDIENCE: 1}},
        "J9 empty list": {"aud": []},
        "J9 list with a number": {"aud": [AUDIENCE, 1]},
        "J11 no aud": {"aud": None},
        "J11 no iss": {"iss": None},
        "J10 slash": {"iss": URLS["idp:customers"].rstrip("/")},
        "J10 case": {"iss": URLS["idp:customers"].replace("login", "LOGIN")},
        "J10 list": {"iss": [URLS["idp:customers"]]},
        "J10 another issuer's": {"iss": URLS["idp:staff"]},
        "sub missing": {"sub": None},
        "sub empty": {"sub": ""},
        "sub number": {"sub": 7},
        "B8 sub with a line break": {"sub": "a\r\nX: y"},
        "jti that no list of revocations can name": {"jti": 7},
        "jti empty": {"jti": ""},
        "jti without end": {"jti": "a" * 2_049},
        "J16 ID token": {"nonce": "n"},
        "J16 at_hash": {"at_hash": "h"},
        "J16 logout events": {"events": {}},
        "J16 ID token by its own words": {"typ": "ID"},
        "J16 refresh token by its own words": {"typ": "Refresh"},
        "J16 purpose is a list": {"typ": ["Bearer"]},
        "J16 ID token of another provider": {"token_use": "id"},
        "bound to a key": {"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}},
        "bound to nothing": {"cnf": {}},
    }


@pytest.mark.parametrize("name", faults(0))
def test_claim_with_a_fault_is_refused(stage: Stage, name: str) -> None:
    """J8-J11, J16: exact values of exact types, or nothing."""
    changes = faults(int(time.time()))[name]
    assert status(stage, stage.issuers.token("customer", **changes)) == 401


PAYLOADS = {
    "J15 doubled claim": '{"sub":"a","sub":"b",',
    "J15 NaN": '{"x":NaN,',
    "J15 deep": '{"x":' + "[" * 4000 + "]" * 4000 + ",",
    "long number": '{"x":' + "1" * 5000 + ",",
    "lone surrogate": '{"x":"\\ud800",',
}


@pytest.mark.parametrize("start", PAYLOADS.values(), ids=PAYLOADS)
def test_payload_that_is_not_strict_json_is_refused(stage: Stage, start: str) -> None:
    """J15: what two parsers would read differently is nobody's claim."""
    claims = stage.issuers.claims("idp:customers", groups=["customers"])
    claims.pop("sub" if "sub" in start else "x", None)
    payload = (start + json.dumps(claims)[1:]).encode()
    assert status(stage, stage.issuers.sign("idp:customers", payload)) == 401


@pytest.mark.parametrize("algorithm", ["RS512", "PS256"])
def test_algorithm_counts_only_if_the_issuer_lists_it(stage: Stage, algorithm: str) -> None:
    """J2: a right signature by the issuer's own key, under an algorithm that it does not use."""
    issuers = stage.issuers
    claims = json.dumps(issuers.claims("idp:staff", groups=["staff-all"])).encode()
    header = {"alg": algorithm, "kid": "rsa"}
    token = jws.serialize_compact(header, claims, issuers.rsa, algorithms=[algorithm])
    verify(read(token.encode()), issuers.rsa)
    assert status(stage, token) == 401


def test_public_key_is_no_shared_secret(stage: Stage) -> None:
    """J2: HS256 keyed with the published RSA key."""
    import hashlib
    import hmac

    issuers = stage.issuers
    for secret in (issuers.rsa.as_pem(private=False), issuers.rsa.as_der(private=False)):
        text = encode({"alg": "HS256", "kid": "rsa"}) + "." + encode(issuers.claims("idp:staff"))
        mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        assert status(stage, f"{text}.{encode(mac)}") == 401


def test_signature_must_be_the_issuers_own(stage: Stage) -> None:
    """J7, J10, J17: empty, all-zero, of another issuer, of an unknown key."""
    issuers = stage.issuers
    token = issuers.token("customer")
    text = token.rpartition(".")[0]
    for raw in (b"", b"\x00" * 64, signature(text.encode(), issuers.keys["idp:staff"])):
        assert status(stage, f"{text}.{encode(raw)}") == 401
    stranger = issuers.sign(
        "idp:customers", issuers.claims("idp:customers"), key=ECKey.generate_key("P-256")
    )
    assert status(stage, stranger) == 401


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t + "=",
        lambda t: t + "A",
        lambda t: t.replace(".", ".."),
        lambda t: t + ".x.y",
        lambda t: t[:-1] + chr(ord(t[-1]) + 1),
        lambda _: "A" * 200_000,
        lambda t: t.partition(".")[0],
        lambda t: t.upper(),
    ],
    ids=["padding", "longer", "dots", "J23 five parts", "loose bits", "J14 huge", "one", "case"],
)
def test_text_of_a_token_has_one_form(stage: Stage, change: Any) -> None:
    """Two texts of one token would be two keys in caches and deny lists."""
    assert status(stage, change(stage.issuers.token("customer"))) in {401, 431}


@pytest.mark.parametrize(
    "values",
    [
        ["Bearer {t}", "Bearer {t}"],
        ["Bearer {t}", "Basic eA=="],
        ["Bearer  {t}"],
        ["Bearer {t} {t}"],
        ["Bearer {t}, Bearer {t}"],
        ["Token {t}"],
        ["{t}"],
        ["Bearer"],
        ["Bearer "],
        [""],
        ["Bearer,{t}"],
        ["Basic eA=="],
    ],
)
def test_credential_is_one_well_formed_bearer(stage: Stage, values: list[str]) -> None:
    """J21, J22: also where anonymous would be let in, a bad credential is a refusal."""
    token = stage.issuers.token("customer")
    headers = [("Authorization", value.format(t=token)) for value in values]
    assert stage.ask("GET", SCOPE, headers=headers).status == 401
    assert stage.ask("GET", "/portal/customer/x", headers=headers).status == 401
    assert stage.upstream.requests == []


def test_scheme_is_read_without_case(stage: Stage) -> None:
    """RFC 9110 11.1: `bearer` is Bearer; everything else is exact."""
    token = stage.issuers.token("customer")
    assert stage.ask("GET", SCOPE, headers=[("Authorization", f"bearer {token}")]).status == 200


@pytest.mark.parametrize("name", ["access_token", "Access_Token", "access%5ftoken", "id_token"])
def test_credential_in_the_query_is_refused(stage: Stage, name: str) -> None:
    """J22: it would end in logs and referrers; on no route, for no caller."""
    token = stage.issuers.token("customer")
    for target in (f"/portal/customer/x?{name}={token}", f"/portal/customer/x?a=b&{name}=x"):
        assert stage.ask("GET", target).status == 400
        assert stage.ask("GET", target, token=token).status == 400
    assert stage.upstream.requests == []


@pytest.mark.parametrize("groups", [None, [], "", {}, [None], ["Customers"], ["customers "], 1])
def test_absent_or_strange_groups_place_nowhere(stage: Stage, groups: object) -> None:
    """J18: null, empty and malformed are the least, never a bypass."""
    token = stage.issuers.token("customer", groups=groups)
    reply = stage.ask("GET", SCOPE, token=token)
    assert (reply.status, json.loads(reply.body)["code"]) == (403, "no_audience")


@pytest.mark.parametrize("tenant", [None, "*", ["*"], "", "a b", ["acme", 1], {"a": 1}])
def test_strange_tenants_are_no_tenants(stage: Stage, tenant: object) -> None:
    """A claim never gives a caller the shared compartment, or a guessed one."""
    reply = stage.ask("GET", SCOPE, token=stage.issuers.token("customer", tenant=tenant))
    assert json.loads(reply.body)["tenants"] == []


def test_subject_is_opaque_and_belongs_to_its_issuer() -> None:
    """Two issuers with one `sub` are two people; moving bytes across the border is no collision."""
    names = {
        subject_id("https://a/", "u"),
        subject_id("https://b/", "u"),
        subject_id("https://a/u", ""),
        subject_id("https://a", "/u"),
    }
    assert len(names) == 4
    assert all("u-1" not in name for name in (subject_id(URLS["idp:staff"], "u-1"),))


def test_remembered_token_ends_with_its_time_and_its_policy(
    believing: Snapshot, issuers: Issuers
) -> None:
    """The cache never outlives exp, and is emptied when the policy changes."""
    now = [time.time()]

    async def no_fetch(url: str) -> bytes:
        raise AssertionError(url)

    async def scenario() -> None:
        believer = Authenticator(fetch=no_fetch, wall_clock=lambda: now[0])
        token = issuers.token("customer", exp=int(now[0]) + 10).encode()
        arguments: dict[str, Any] = {"issuers": believing.issuers, "digest": believing.digest}
        first = await believer.principal(token, **arguments)
        assert await believer.principal(token, **arguments) is first
        other = await believer.principal(
            token, issuers=believing.issuers, digest=PolicyDigest("f" * 64)
        )
        assert other is not first
        with pytest.raises(Refusal):
            await believer.principal(token, issuers=(), digest=PolicyDigest("e" * 64))
        now[0] += 100
        with pytest.raises(Refusal):
            await believer.principal(token, **arguments)

    asyncio.run(scenario())


class Provider:
    """An issuer's key address that can fail, lie and be counted."""

    def __init__(self, text: bytes) -> None:
        self.text: bytes | GatewayError = text
        self.calls = 0

    async def fetch(self, _url: str) -> bytes:
        self.calls += 1
        await asyncio.sleep(0)
        if isinstance(self.text, GatewayError):
            raise self.text
        return self.text


def source(provider: Provider, clock: list[float]) -> KeySource:
    return KeySource(uri="https://idp/jwks", text="", fetch=provider.fetch, clock=lambda: clock[0])


def jwks(*keys: ECKey) -> bytes:
    listed = [{**key.as_dict(private=False), "kid": f"k{i}"} for i, key in enumerate(keys)]
    return json.dumps({"keys": listed}).encode()


def test_flood_of_unknown_kids_costs_one_refresh(issuers: Issuers) -> None:
    """J12: a thousand kids at once, one call per thirty seconds, single flight."""
    provider, clock = Provider(jwks(issuers.keys["idp:staff"])), [0.0]

    async def flood(keys: KeySource) -> None:
        async def one(number: int) -> None:
            with pytest.raises(BadToken):
                await keys.key_for(f"unknown-{number}", "ES256")

        await asyncio.gather(*(one(number) for number in range(1000)))

    async def scenario() -> None:
        keys = source(provider, clock)
        await flood(keys)
        assert provider.calls == 1
        clock[0] += REFRESH_S + 1
        await flood(keys)
        assert provider.calls == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "broken",
    [
        UpstreamUnavailable("down"),
        b"",
        b"<html>",
        b"{}",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AA"}]}',
        b'{"keys": [1, null]}',
        b" " * 10_000_000,
    ],
    ids=["down", "empty", "html", "object", "no keys", "symmetric", "junk", "huge"],
)
def test_last_good_keys_outlive_a_broken_provider_for_a_while(
    issuers: Issuers, broken: bytes | GatewayError
) -> None:
    """J13: kept up to a cap, then 503, never unsigned."""
    provider, clock = Provider(jwks(issuers.keys["idp:staff"])), [0.0]

    async def scenario() -> None:
        keys = source(provider, clock)
        assert await keys.key_for("k0", "ES256")
        provider.text = broken
        clock[0] += FRESH_S + 1
        assert await keys.key_for("k0", "ES256")
        clock[0] += STALE_S
        assert not keys.healthy
        with pytest.raises(Refusal, match="identity_unavailable"):
            await keys.key_for("k0", "ES256")

    asyncio.run(scenario())


def test_rotated_key_is_found_and_counts_as_a_new_generation() -> None:
    """An unknown kid asks once; remembered tokens of the old keys are forgotten."""
    old, new = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")
    provider, clock = Provider(jwks(old)), [0.0]

    async def scenario() -> None:
        keys = source(provider, clock)
        await keys.key_for("k0", "ES256")
        before = keys.generation
        provider.text = jwks(old, new)
        clock[0] += REFRESH_S + 1
        assert await keys.key_for("k1", "ES256")
        assert keys.generation > before

    asyncio.run(scenario())


def test_token_without_kid_needs_a_single_key(issuers: Issuers) -> None:
    """With several candidates there is no guessing; two keys of one kid are no key."""
    one, two = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")

    async def scenario() -> None:
        clock = [0.0]
        assert await source(Provider(jwks(one)), clock).key_for(None, "ES256")
        with pytest.raises(BadToken):
            await source(Provider(jwks(one, two)), clock).key_for(None, "ES256")
        doubled = jwks(one, two).replace(b'"k1"', b'"k0"')
        with pytest.raises(BadToken):
            await source(Provider(doubled), clock).key_for("k0", "ES256")

    asyncio.run(scenario())


def test_key_set_gives_no_private_or_weak_key() -> None:
    """Private parts are dropped; a short RSA key fits no algorithm."""
    private = ECKey.generate_key("P-256").as_dict(private=True)
    (key,) = parse_jwks(json.dumps({"keys": [private]}).encode())
    assert not key.is_private
    with pytest.raises(BadKeySet):
        parse_jwks(b'{"keys": [], "keys": []}')


KEY_SAYS_OTHERWISE = {"wp-jws-346", "wp-jws-347", "wp-jws-350", "wp-jws-351"}
NO_PAYLOAD = {"wp-jws-259", "wp-jws-264", "wp-jws-268", "wp-jws-272", "wp-jws-320", "wp-jws-325"}
"""A token without claims names nobody: its empty part is refused with the encoding."""
KINDS: dict[str, Any] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey, "oct": OctKey}


def test_wycheproof_vectors_are_accepted_exactly_when_valid(shared_data: Path) -> None:
    """All 401 vectors: no invalid one is accepted; valid asymmetric ones are, but the named ten.

    Shared-secret algorithms are refused as such, and so are keys shorter than 2048 bits.
    """
    lines = (shared_data / "jose" / "wycheproof_jws.jsonl").read_text().splitlines()
    vectors = [json.loads(line) for line in lines]
    assert len(vectors) == 401
    accepted, wrongly, missed = 0, [], []
    for vector in vectors:
        key_text = vector["key"]
        try:
            key = KINDS[key_text["kty"]].import_key(key_text)
            algorithm = key_text.get("alg")
            token = read(vector["jws"].encode(), {algorithm} if algorithm else {"ES256", "RS256"})
            verify(token, key)
            ok = True
        except (BadToken, JoseError, ValueError, KeyError):
            ok = False
        if ok and vector["result"] != "valid":
            wrongly.append(vector["id"])
        if not ok and vector["result"] == "valid" and key_text["kty"] != "oct":
            missed.append(vector["id"])
        accepted += ok
    assert wrongly == []
    assert set(missed) == KEY_SAYS_OTHERWISE | NO_PAYLOAD
    assert accepted >= 20


@pytest.mark.parametrize(
    "text", [b"", b"A", b"AA=", b"AA==", b"AB", b"A A", b"+/", b"A\n", b"AAA="]
)
def test_base64url_that_is_not_the_only_form_is_refused(text: bytes) -> None:
    """Padding, blanks, foreign alphabet, loose last bits."""
    with pytest.raises(BadToken):
        decode_base64url(text)
