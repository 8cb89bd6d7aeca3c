"""Credentials against a running process: what is not exactly right is 401, and arrives nowhere.

Provenance: attack log section 3.4, rows J1-J23; `tests/gateway/test_tokens.py` has each fault of
each part, key sources and caches. Here every kind once, over real sockets, on both listeners.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.adversary.process import Gateway
from tests.adversary.twice import STANCES
from tests.gateway.tokens import AUDIENCE, URLS, Issuers, encode

pytestmark = STANCES

ALIAS = "idp:staff"
GROUPS = {"groups": ["staff-all"], "tenants": ["acme"]}


def claims(issuers: Issuers, **changes: object) -> dict[str, object]:
    return issuers.claims(ALIAS, **{**GROUPS, **changes})


def unsigned(issuers: Issuers, *, algorithm: str) -> str:
    return f"{encode({'alg': algorithm, 'kid': 'ec'})}.{encode(claims(issuers))}."


def shared_secret(issuers: Issuers) -> str:
    text = f"{encode({'alg': 'HS256', 'kid': 'rsa'})}.{encode(claims(issuers))}"
    public = issuers.rsa.as_pem(private=False)
    return f"{text}.{encode(hmac.new(public, text.encode(), hashlib.sha256).digest())}"


def headed(header: dict[str, object]) -> Callable[[Issuers], str]:
    return lambda issuers: issuers.sign(ALIAS, claims(issuers), header)


def changed(**changes: object) -> Callable[[Issuers], str]:
    return lambda issuers: issuers.sign(ALIAS, claims(issuers, **changes))


def tail(signature: bytes) -> Callable[[Issuers], str]:
    return lambda issuers: issuers.token("employee").rpartition(".")[0] + "." + encode(signature)


def twice(issuers: Issuers) -> str:
    text = json.dumps(claims(issuers))[:-1] + ', "groups": ["staff-all"]}'
    return issuers.sign(ALIAS, text.encode())


def foreign_key(issuers: Issuers) -> str:
    return issuers.sign(ALIAS, claims(issuers), key=issuers.keys["idp:customers"])


def foreign_issuer(issuers: Issuers) -> str:
    named = claims(issuers, iss=URLS["idp:customers"])
    return issuers.sign(ALIAS, named)


BAD: dict[str, Callable[[Issuers], str]] = {
    **{f"J1 alg {word!r}": partial(unsigned, algorithm=word)
       for word in ("none", "None", "NONE", "nOnE", "")},
    "J2 public key as a secret": shared_secret,
    **{f"J3 kid {kid!r}": headed({"kid": kid})
       for kid in ("../../dev/null", "' OR 1=1 --", 1, ["ec"], "", "http://127.0.0.1/")},
    "J4 jku": headed({"jku": "http://127.0.0.1:9/jwks", "kid": "other"}),
    "J5 embedded key": headed({"jwk": {"kty": "EC"}, "kid": "other"}),
    "J6 crit": headed({"crit": ["x"], "x": 1}),
    "J6 empty crit": headed({"crit": []}),
    "J6 b64": headed({"crit": ["b64"], "b64": False}),
    "J7 zeros": tail(b"\x00" * 64),
    "J7 nothing": tail(b""),
    "J8 exp as text": changed(exp=str(int(time.time()) + 300)),
    "J8 exp as truth": changed(exp=True),
    "J8 exp past": changed(exp=1),
    "J8 no exp": changed(exp=None),
    "J8 nbf to come": changed(nbf=int(time.time()) + 3_000),
    "J9 aud prefix": changed(aud=AUDIENCE + ".evil"),
    "J9 aud part": changed(aud=AUDIENCE[:-1]),
    "J9 aud object": changed(aud={AUDIENCE: 1}),
    "J9 aud empty": changed(aud=[]),
    "J10 another's key": foreign_key,
    "J10 another's name": foreign_issuer,
    "J10 no slash": changed(iss=URLS[ALIAS].rstrip("/")),
    "J11 no aud": changed(aud=None),
    "J11 no iss": changed(iss=None),
    "J15 claim twice": twice,
    "J15 nested": lambda issuers: issuers.sign(ALIAS, b"[" * 5_000 + b"]" * 5_000),
    "J16 logout token": headed({"typ": "logout+jwt"}),
    "J17 staging": changed(iss="https://login.staging.example/"),
    "J23 five parts": lambda issuers: issuers.token("employee") + ".a.b",
    "J23 encrypted": headed({"enc": "A256GCM", "alg": "dir"}),
    "J23 packed": headed({"zip": "DEF"}),
}  # fmt: skip


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_token_with_a_fault_is_nobodys(gateway: Gateway, make: Callable[[Issuers], str]) -> None:
    """J1-J11, J15-J17, J23: 401 on every surface, also where nobody needs a token."""
    bearer = [("Authorization", f"Bearer {make(gateway.issuers)}")]
    for target in ("/portal/employee/x", "/portal/customer/x", "/v1/scope"):
        reply = gateway.ask("GET", target, headers=bearer)
        assert reply.status == 401, reply
        assert 'error="invalid_token"' in (reply.header("www-authenticate") or "")
    assert gateway.arrived == []


def test_address_in_a_token_is_called_by_nobody(gateway: Gateway) -> None:
    """J4: a listener whose address every such header names gets no connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.3)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/keys"
        for name in ("jku", "x5u", "kid", "iss"):
            for kid in ("ec", "unknown"):
                token = headed({"kid": kid, name: url})(gateway.issuers)
                gateway.ask("GET", "/v1/scope", headers=[("Authorization", f"Bearer {token}")])
        with pytest.raises(TimeoutError):
            listening.accept()


def test_token_of_a_megabyte_ends_at_the_header_block(gateway: Gateway) -> None:
    """J14: 431 beyond the header block, 401 within it; the process does not read it."""
    for size, statuses in ((1_000_000, {431}), (20_000, {401})):
        bearer = [("Authorization", "Bearer " + "a" * size)]
        assert gateway.ask("GET", "/v1/scope", headers=bearer).status in statuses


@pytest.mark.parametrize("groups", [None, [], "", 0, {}, [[]], ["other"], [None]])
def test_absent_groups_are_the_least(gateway: Gateway, groups: object) -> None:
    """J18: null, empty, absent, malformed: no audience, never all of them."""
    token = changed(groups=groups)(gateway.issuers)
    bearer = [("Authorization", f"Bearer {token}")]
    assert gateway.ask("GET", "/portal/employee/x", headers=bearer).status == 403
    assert gateway.arrived == []


def test_one_bad_credential_spoils_the_good_one(gateway: Gateway) -> None:
    """J21, J22: two headers, two schemes, blanks, a token in the query: refused."""
    good, bad = gateway.token("employee"), gateway.token("customer")
    forms = [
        [f"Bearer {good}", f"Bearer {bad}"], [f"Bearer {good}", f"Bearer {good}"],
        [f"Bearer {good}", "Basic eDp5"], [f"Bearer {good}, Bearer {bad}"],
        [f"Bearer  {good}"], [f"Bearer\t{good}"], [good], [f"Token {good}"], ["Bearer"],
    ]  # fmt: skip
    for values in forms:
        headers = [("Authorization", value) for value in values]
        assert gateway.ask("GET", "/portal/employee/x", headers=headers).status == 401, values
    for name in ("access_token", "id_token", "bearer_token", "ACCESS_TOKEN", "%61ccess_token"):
        target = f"/portal/employee/x?{name}={good}"
        assert gateway.ask("GET", target).status == 400
        assert gateway.ask("GET", target, who="employee").status == 400
    assert gateway.arrived == []


def test_words_of_a_token_are_no_headers(gateway: Gateway) -> None:
    """B8, J19: line breaks, NUL and two at-signs in a subject: what arrives is opaque and ours."""
    seen: set[str] = set()
    for sub in (
        "a\r\nX-Gateway-Audience: admin",
        "a\x00b",
        "a@evil@corp.example",
        "\u0130\U0001f600",
    ):
        token = gateway.issuers.token("employee", sub=sub)
        bearer = [("Authorization", f"Bearer {token}")]
        assert gateway.ask("GET", "/portal/employee/x", headers=bearer).status in {200, 401}
    for one in gateway.arrived:
        seen.add(one.value("x-gateway-subject"))
        assert one.value("x-gateway-audience") == "employee"
    assert all(subject.startswith("s.") and subject[2:].isalnum() for subject in seen)
    assert len(seen) == len(gateway.arrived)


@pytest.mark.parametrize(
    "make", [BAD["J1 alg 'none'"], BAD["J10 another's key"], BAD["J2 public key as a secret"]]
)
def test_operators_door_takes_no_bad_token_either(
    gateway: Gateway, make: Callable[[Issuers], str]
) -> None:
    """J1, J2, J10 on the second listener: the same 401."""
    for bearer in (f"Authorization: Bearer {make(gateway.issuers)}\r\n", ""):
        raw = (
            "POST /admin/v1/policy/live HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            f"{bearer}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        (reply,) = gateway.replies(raw.encode(), listener="second")
        assert reply.status == 401
