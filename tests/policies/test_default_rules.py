"""The default policy against the seed, counted here without the compiler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from policies.snapshot import Snapshot
from policies.vocabulary import FACETS

State = Mapping[str, str]


def open_to(readers: set[str]) -> Callable[[State], bool]:
    return lambda s: s["visibility"] in readers


def human(state: State) -> bool:
    """What holds for all three human audiences: seed 4.10, stricter reading where it is silent."""
    return (
        state["kind"] not in {"code", "incident"}
        and not (state["kind"] == "design" and state["authority"] == "draft")
        and state["readiness"] != "superseded"
        and state["publication_state"] != "withdrawn"
    )


def customer(state: State) -> bool:
    return (
        human(state)
        and state["visibility"] == "public"
        and state["readiness"] == state["publication_state"] == "published"
        and state["authority"] != "draft"
    )


def partner(state: State) -> bool:
    return (
        human(state)
        and state["visibility"] in {"public", "partner"}
        and state["readiness"] == state["publication_state"] == "published"
        and state["authority"] != "draft"
    )


def employee(state: State) -> bool:
    return (
        human(state)
        and state["visibility"] in {"public", "partner", "employee"}
        and state["readiness"] in {"approved", "published"}
    )


RULES = {"customer": customer, "partner": partner, "employee": employee}
GOLDEN = {"customer": (56, 84), "partner": (112, 168), "employee": (984, 1476)}


def states(snapshot: Snapshot) -> list[dict[str, str]]:
    """Every state, made from the vocabulary's lists and not from its ids."""
    lists = [snapshot.vocabulary.facets[facet] for facet in FACETS]
    return [dict(zip(FACETS, values, strict=True)) for values in itertools.product(*lists)]


@pytest.mark.parametrize("audience", RULES)
def test_a_human_audience_reads_exactly_what_the_seed_says(
    audience: str, default: Snapshot
) -> None:
    """Seed 4.11, narrowed by 4.10; risk high needs a consent regardless of audience."""
    grant = default.grant([audience])
    counts = [0, 0]
    for state in states(default):
        class_id = default.vocabulary.class_id(state)
        wanted = RULES[audience](state)
        plain = wanted and state["risk_class"] != "high"
        assert grant.permits_class(class_id, consent=False) is plain
        assert grant.permits_class(class_id, consent=True) is wanted
        counts[0] += plain
        counts[1] += wanted
    assert tuple(counts) == GOLDEN[audience]
    assert not grant.permits_class(-1, consent=True)


def test_customer_lies_within_partner_within_employee(default: Snapshot) -> None:
    lists = [default.grant([audience]) for audience in ("customer", "partner", "employee")]
    for inner, outer in itertools.pairwise(lists):
        assert set(inner.plain) < set(outer.plain)
        assert set(inner.consented) < set(outer.consented)


KINDS = 16 - 2  # all but code and incident
AGENTS = {
    # visibility x readiness x publication x risk x authority x kind, by hand from the rules
    "agent:reader": (3 * 2 * 1 * 2 * 2 * KINDS, 3 * 2 * 1 * 3 * 2 * KINDS),
    "agent:analyst": (4 * 2 * 2 * 2 * 2 * (KINDS + 1), 4 * 2 * 2 * 3 * 2 * (KINDS + 1)),
    # the reader's own, plus eleven kinds in any readiness with authority enacted or draft; what
    # both name (eleven kinds, enacted, approved or published, published) counts once
    "agent:drafter": (3 * 2 * 1 * 2 * 2 * KINDS + 3 * 4 * 2 * 2 * 2 * 11 - 3 * 2 * 1 * 2 * 1 * 11,)
    * 2,
    "agent:incident": (
        4 * 2 * 2 * 2 * 2 * 10 + 4 * 4 * 2 * 2 * 3,
        4 * 2 * 2 * 2 * 2 * 10 + 4 * 4 * 2 * 2 * 3 + 4 * 2 * 2 * 1 * 2 * 4,
    ),
    "agent:auditor": (4 * 3 * 2 * 2 * 2 * KINDS, 4 * 3 * 2 * 3 * 2 * KINDS),
}


@pytest.mark.parametrize("profile", AGENTS)
def test_an_agent_profile_reads_as_many_states_as_its_rules_multiply_to(
    profile: str, default: Snapshot
) -> None:
    grant = default.grant([profile])
    assert (len(grant.plain), len(grant.consented)) == AGENTS[profile]


def test_no_agent_reads_secrets_withdrawn_texts_or_unconsented_risk(default: Snapshot) -> None:
    """Seed 4.10: secrets and blocked materials; 4.11: explicit consent regardless of audience."""
    agents = [p for p, audience in default.vocabulary.profiles.items() if audience == "agent"]
    assert len(agents) == 5
    for profile in agents:
        grant = default.grant([profile])
        for class_id in grant.consented:
            state = default.vocabulary.facets_of(class_id)
            assert state["visibility"] != "restricted"
            assert state["publication_state"] != "withdrawn"
            if profile != "agent:incident":
                assert state["kind"] != "incident"
            if profile not in {"agent:incident", "agent:drafter"}:
                assert state["authority"] != "draft"
                assert state["readiness"] not in {"draft", "under_review"}
        for class_id in grant.plain:
            assert default.vocabulary.facets_of(class_id)["risk_class"] != "high"


def test_threads_are_governed_by_every_profile(default: Snapshot) -> None:
    """A thread that nobody may read would make thread-first retrieval impossible for them."""
    for profile in default.vocabulary.profiles:
        kinds = {default.vocabulary.facets_of(i)["kind"] for i in default.grant([profile]).plain}
        assert "thread" in kinds


def test_the_shipped_policy_trusts_nobody_real(default: Snapshot) -> None:
    """Issuers under `.example` cannot exist; no proxy is believed; no anonymous retrieval."""
    for issuer in default.issuers:
        assert issuer.url.split("/")[2].endswith(".example")
    assert default.trusted_peers == ()
    assert [r.id for r in default.routes if r.anonymous] == ["portal-customer"]
