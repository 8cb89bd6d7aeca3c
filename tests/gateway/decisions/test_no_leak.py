"""No word of a caller reaches a decision record: not its token, cookie, query, path or body.

Provenance: attack on the decision log (issue 3, part 7: secrets, tokens and subject hashes are
masked). Every field is held against the words that it may have, so a new field without such a
list fails here.
"""

from __future__ import annotations

import copy
import json
import re
import string
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.authn.claims import subject_id
from gateway.decisions.fields import (
    BY_PATH,
    FIELDS,
    MASKED,
    REASONS,
    REDACTABLE,
    SCHEMA,
    STARS,
    STATIONS,
    leaves,
)
from gateway.decisions.redaction import Redaction
from gateway.decisions.writing import Values, values_of
from gateway.errors import Code
from policies.decision import Effect
from policies.snapshot import Snapshot
from tests.gateway import answers
from tests.gateway.stage import Stage
from tests.gateway.tokens import URLS

HEX = re.compile(r"[0-9a-f]{32}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
WINDOW = 12
"""Characters of a token that would be told apart from everything else in a record."""

Drawn = tuple[str, dict[str, Any], list[tuple[str, str]], str, bytes, list[str]]
"""Whose token with which claims, headers, request line, body; and every canary in them."""
canaries = st.text(string.ascii_lowercase, min_size=10, max_size=14).map("canary".__add__)
"""Nobody's word but the caller's. They look like words of a policy, so no filter drops them."""


def words_of(snapshot: Snapshot) -> dict[str, Callable[[Any], bool]]:
    """What may stand in each field: words of the policy, numbers, ids and times of ours."""
    vocabulary = snapshot.vocabulary
    aliases = {
        f"{claim}={alias}"
        for issuer in snapshot.issuers
        for claim, mapped in issuer.claims.items()
        for alias in mapped.values.values()
    }
    rules = {row.id for one in snapshot.table.relations.values() for row in one.rows}

    def one_of(*words: str) -> Callable[[Any], bool]:
        return {"", *words}.__contains__

    def several_of(*words: str) -> Callable[[Any], bool]:
        return lambda value: set(value) <= set(words)

    def number(value: Any) -> bool:
        return isinstance(value, (int, float))

    def ours(value: Any) -> bool:
        return HEX.fullmatch(value) is not None

    profiles = one_of(*vocabulary.profiles)
    return {
        "schema": one_of(SCHEMA),
        "decision_id": ours,
        "request_id": ours,
        "trace_id": ours,
        "at": lambda value: TIME.fullmatch(value) is not None,
        "policy_digest": one_of(snapshot.digest),
        "surface": one_of("data", "forward_auth", "admin"),
        "route": one_of(*(route.id for route in snapshot.routes)),
        "method": one_of("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "_OTHER"),
        "issuer": one_of(*(issuer.alias for issuer in snapshot.issuers)),
        "claims": several_of(*aliases),
        "audience": one_of(*vocabulary.audiences),
        "profile": profiles,
        "profiles": several_of(*vocabulary.profiles),
        "task_scope": one_of(*vocabulary.tasks),
        "purpose": one_of(*vocabulary.purposes),
        "narrowed": profiles,
        "actor": one_of(*snapshot.upstreams),
        "station": one_of(*STATIONS),
        "effect": one_of(*Effect),
        "code": one_of(*Code, "caller_gone", "truncated"),
        "reason": one_of(*REASONS),
        "rules": several_of(*rules),
        **{path: number for path in BY_PATH if path.partition(".")[0] in ("units", "classes")},
        "duration_us": number,
        "sampled": number,
        "dropped": number,
        "masked": several_of(*REDACTABLE),
        "erased": several_of(*REDACTABLE, "units", "classes"),
    }


def at(values: Values, path: str) -> list[Any]:
    """The values of one field: several where a record has a list of objects."""
    name, _, leaf = path.partition(".")
    held = values.get(name)
    if not leaf:
        return [held] if name in values else []
    holders = held if isinstance(held, list) else [held] if isinstance(held, dict) else []
    return [one[leaf] for one in holders if leaf in one]


def single(values: list[Any]) -> list[Any]:
    """The values of a field, those of lists one by one."""
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def test_every_field_has_a_list_of_what_may_stand_in_it(believing: Snapshot) -> None:
    """A field that is new is judged, or fails."""
    assert words_of(believing).keys() == BY_PATH.keys()


@st.composite
def requests(draw: st.DrawFn) -> Drawn:
    """A request of whoever tries to be quoted: in each place that it can fill."""
    said: list[str] = []

    def canary() -> str:
        said.append(draw(canaries))
        return said[-1]

    who = draw(st.sampled_from(["customer", "partner", "employee", "agent"]))
    claims: dict[str, Any] = {
        "sub": canary(),
        "email": f"{canary()}@x.example",
        "name": canary(),
        canary(): canary(),
        "jti": canary(),
    }
    if draw(st.booleans()):
        claims["tenants"] = [canary()]
        claims["tenant"] = canary()
    if draw(st.booleans()):
        claims["groups"] = [canary(), f"grp:{canary()}", "customers", "staff-all"]
    headers = [
        ("Cookie", f"session={canary()}; __Host-gateway_x={canary()}"),
        ("User-Agent", canary()),
        ("X-Request-Id", canary()),
        ("X-Gateway-Subject", canary()),
        ("X-Forwarded-For", canary()),
        ("Referer", f"https://{canary()}.example/{canary()}"),
        ("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"),
    ]
    said.append("ab" * 16)
    if draw(st.booleans()):
        headers.append(("X-Gateway-Delegation", f"{canary()}.{canary()}.{canary()}"))
    named = draw(st.sampled_from(["audience", "purpose", "task_scope", "q"]))
    line = draw(
        st.sampled_from(
            [
                "GET /v1/scope?{0}={1}",
                "GET /v1/units/{1}",
                "GET /v1/threads/{1}/pack",
                "GET /portal/customer/{1}?{0}={1}",
                "DELETE /portal/customer/{1}",
                "GET /{1}/{1}",
                "POST /v1/retrieve",
            ]
        )
    ).format(named, canary())
    body = b""
    if line.startswith("POST"):
        asked = {"query": canary()}
        if named != "q":
            asked[named] = canary()
        if draw(st.booleans()):
            asked[canary()] = canary()
        body = json.dumps(asked).encode()
        headers.append(("Content-Type", "application/json"))
    return who, claims, headers, line, body, said


def recorded(stage: Stage, drawn: Drawn) -> tuple[Values, str]:
    """The record of a request, and the token that it bore."""
    who, claims, headers, line, body, _ = drawn
    token = stage.issuers.token(who, **claims)
    stage.records.all.clear()
    stage.records.some.clear()
    method, _, target = line.partition(" ")
    stage.ask(method, target, token=token, headers=headers, body=body)
    assert stage.records.some.wait(5)
    return values_of(stage.records.all[-1], sampled=1.0), token


@given(drawn=requests())
def test_no_word_of_a_caller_stands_in_any_field(stage: Stage, drawn: Drawn) -> None:
    """Accepted or refused, wherever it was said; nor any twelve characters of its token, nor the
    hash that stands for its subject elsewhere."""
    stage.registry.labels = {answers.key("open"): answers.label(stage.snapshot)}
    stage.retrieval.script = lambda ask: answers.answer(ask, ["open"])
    values, token = recorded(stage, drawn)
    text = json.dumps(values)
    assert [one for one in drawn[-1] if one in text] == []
    pieces = {token[start : start + WINDOW] for start in range(len(token) - WINDOW + 1)}
    assert [one for one in pieces if one in text] == []
    assert not any(subject_id(url, drawn[1]["sub"]) in text for url in URLS.values())
    for path, may_stand in words_of(stage.snapshot).items():
        assert all(map(may_stand, at(values, path))), (path, at(values, path))


@given(
    drawn=requests(),
    mask=st.sets(st.sampled_from(REDACTABLE)),
    drop=st.sets(st.sampled_from(REDACTABLE)),
    key=st.sampled_from(["", "a key"]),
)
def test_a_field_that_is_masked_or_dropped_tells_nothing_of_its_value(
    stage: Stage, drawn: Drawn, mask: set[str], drop: set[str], key: str
) -> None:
    """Every field, alone or with others: stars or a keyed hash, or absent; the rest as it was."""
    stage.retrieval.script = lambda ask: answers.answer(ask, [])
    values, _ = recorded(stage, drawn)
    redacted = Redaction(mask=mask, drop=drop, key=key).applied(copy.deepcopy(values))
    gone = {leaf for path in drop for leaf in leaves(path)}
    masked = {leaf for path in mask for leaf in leaves(path)} - gone
    for field in FIELDS:
        before, after = at(values, field.path), at(redacted, field.path)
        if field.path in gone:
            assert after == []
        elif field.path in masked:
            told = single(after)
            assert not set(single(before)) & set(told)
            assert all(MASKED.fullmatch(one) and (one == STARS) is not bool(key) for one in told)
        elif field.path not in ("masked", "erased"):
            assert after == before


def test_the_control_of_these_laws_finds_a_leak(stage: Stage, believing: Snapshot) -> None:
    """A record with a caller's word in any field of words is noticed by the list of that field."""
    values, _ = recorded(stage, ("customer", {}, [], "GET /v1/scope", b"", []))
    lists = words_of(believing)
    for field in FIELDS:
        for found in at(values, field.path):
            if isinstance(found, str):
                assert not lists[field.path]("canaryabcdefghij"), field.path
            elif isinstance(found, list):
                assert not lists[field.path](["canaryabcdefghij"]), field.path
