"""Credentials with one thing wrong each, the word for it, and what an operator gets to see."""

from __future__ import annotations

import json
import time

from gateway.decisions.reader import read_records
from gateway.decisions.writing import values_of
from gateway.reasons import Why
from gateway.telemetry.access_log import line
from gateway.telemetry.fields import RequestRecord
from tests.gateway.tokens import Issuers

OURS = "idp:customers"


def bad_tokens(issuers: Issuers) -> dict[Why, tuple[str, str]]:
    """A token for each word, and the issuer that policy knows it to name."""
    now = int(time.time())
    sign, claims, token = issuers.sign, issuers.claims(OURS), issuers.token
    return {
        Why.MALFORMED_TOKEN: ("a.b.c", ""),
        Why.UNKNOWN_ISSUER: (token("customer", iss="https://evil.example/"), ""),
        Why.WRONG_ALGORITHM: (sign(OURS, claims, {"alg": "RS512"}), OURS),
        Why.UNKNOWN_KEY: (sign(OURS, claims, {"kid": "canary"}), OURS),
        Why.BAD_SIGNATURE: (Issuers().token("customer"), OURS),
        Why.NOT_AN_ACCESS_TOKEN: (token("customer", nonce="canary"), OURS),
        Why.BOUND_TOKEN: (token("customer", cnf={"jkt": "canary"}), OURS),
        Why.WRONG_TOKEN_AUDIENCE: (token("customer", aud="https://canary.example"), OURS),
        Why.BAD_CLAIM: (token("customer", sub=None), OURS),
        Why.EXPIRED: (token("customer", exp=now - 60), OURS),
        Why.NOT_YET_VALID: (token("customer", nbf=now + 300), OURS),
        Why.TOO_OLD: (token("customer", iat=now - 90 * 86_400), OURS),
    }


def seen(record: RequestRecord) -> tuple[str, str, str, str]:
    """Code, reason, station and issuer of a refused request: in the decision log, and as far as
    the access log has them the same there."""
    (told,) = read_records([json.dumps(values_of(record, sampled=1.0))])
    access = json.loads(line(record))
    assert (access["gateway.code"], access["gateway.reason"]) == (told.code, told.reason)
    assert "canary" not in line(record)
    return told.code, told.reason, told.station, told.issuer


def unauthenticated(why: Why, issuer: str = "") -> tuple[str, str, str, str]:
    """What is to be seen of a credential that is not believed."""
    return "unauthenticated", str(why), "identify", issuer
