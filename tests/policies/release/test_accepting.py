"""Two signers open, one closes, and nobody goes back: every way around it has its own refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.decision import PolicyDigest
from policies.files import digest_of
from policies.release import Artefact, ReleaseRefused, TrustAnchor, accept, accepting
from policies.release.accepting import Fetch
from tests.policies.release.made import (
    ANCHOR,
    ANN,
    BOB,
    DEFAULT,
    EVE,
    ISSUERS,
    UNITS,
    Shelf,
    edited,
    jwks,
    narrower,
    noted,
    on_loopback,
    release,
    wider,
)

FIRST = release(DEFAULT, 1)


EMPTY = Shelf()


def refusal(artefact: Artefact, fetch: Fetch = EMPTY, **more: Any) -> str:
    """The code with which it is refused; every refusal says what to do."""
    with pytest.raises(ReleaseRefused) as caught:
        accept(artefact, more.pop("anchor", ANCHOR), fetch=fetch, **({"newer_than": 0} | more))
    assert caught.value.reason
    assert caught.value.remedy
    return caught.value.code


def test_a_release_of_two_signers_stands_by_itself() -> None:
    """A first one, and one that opens something on a base that is not even here."""
    assert accept(FIRST, ANCHOR, newer_than=0, fetch=Shelf()).digest == FIRST.digest
    second = release(wider(), 2, base=FIRST)
    assert accept(second, ANCHOR, newer_than=1, fetch=Shelf()).digest == second.digest


def test_one_signer_is_not_enough_for_a_first_release() -> None:
    assert refusal(release(DEFAULT, 1, by=[ANN])) == "too_few_signers"


def test_one_signer_may_narrow_and_may_change_nothing() -> None:
    """Link by link: each stands on the one before it."""
    second = release(narrower(), 2, by=[BOB], base=FIRST)
    third = release(noted(narrower(), "why"), 3, by=[ANN], base=second)
    shelf = Shelf(FIRST, second)
    assert accept(second, ANCHOR, newer_than=1, fetch=shelf).digest == second.digest
    assert accept(third, ANCHOR, newer_than=2, fetch=shelf).digest == third.digest
    assert accept(third, ANCHOR, newer_than=0, fetch=shelf).digest == third.digest


@pytest.mark.parametrize("claimed", ["none", "narrowing", "widening"])
def test_one_signer_opens_nothing_whatever_the_manifest_claims(claimed: str) -> None:
    second = release(wider(), 2, by=[ANN], base=FIRST, change=claimed)
    assert refusal(second, Shelf(FIRST), newer_than=1) == "too_few_signers"


def test_a_chain_with_one_link_that_opens_is_refused_from_there_on() -> None:
    """Also when what it opened was closed again: nobody accepted what lies between."""
    second = release(wider(), 2, by=[ANN], base=FIRST)
    third = release(DEFAULT, 3, by=[BOB], base=second)
    shelf = Shelf(FIRST, second)
    assert refusal(third, shelf, newer_than=1) == "too_few_signers"
    signed_again = release(wider(), 4, base=FIRST)
    fifth = release(narrower(wider()), 5, by=[ANN], base=signed_again)
    assert accept(fifth, ANCHOR, newer_than=1, fetch=Shelf(signed_again)).digest == fifth.digest


def test_numbers_only_grow() -> None:
    for newest in (1, 2, 1_000):
        assert refusal(FIRST, newer_than=newest) == "older_generation"


def test_narrowing_something_of_long_ago_reopens_nothing() -> None:
    """Generation 3 closed something; 4 closes less, compared with generation 1."""
    third = release(narrower(), 3, base=FIRST)
    fourth = release(noted(DEFAULT, "less"), 4, by=[ANN], base=FIRST)
    assert refusal(fourth, Shelf(FIRST, third), newer_than=3) == "base_superseded"


def test_what_was_accepted_before_ends_a_chain_but_only_as_it_was() -> None:
    """A running gateway need not walk back to the first release each time."""
    second = release(narrower(), 2, by=[BOB], base=FIRST)
    third = release(noted(narrower(), "why"), 3, by=[ANN], base=second)
    known = {2: second.digest}
    found = accept(third, ANCHOR, newer_than=2, fetch=Shelf(second), accepted=known)
    assert found.digest == third.digest
    assert refusal(third, Shelf(second), newer_than=2) == "base_missing"
    other = {2: PolicyDigest("f" * 64)}
    assert refusal(third, Shelf(second), newer_than=2, accepted=other) == "generation_reused"
    known = {3: PolicyDigest("f" * 64)}
    assert refusal(third, Shelf(second, FIRST), accepted=known) == "generation_reused"


def test_a_base_that_is_missing_or_another_is_refused() -> None:
    second = release(narrower(), 2, by=[ANN], base=FIRST)
    assert refusal(second, Shelf()) == "base_missing"
    assert refusal(second, Shelf(release(wider(), 1))) == "base_mismatch"
    unsigned = replace(FIRST, jws=None)
    assert refusal(second, Shelf(unsigned)) == "unsigned"
    swapped = replace(FIRST, contents=wider())
    assert refusal(second, Shelf(swapped)) == "hash_mismatch"


def test_a_chain_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "CHAIN_MAX", 2)
    chain = [FIRST]
    for number in range(2, 5):
        noting = noted(DEFAULT, str(number))
        chain.append(release(noting, number, by=[ANN], base=chain[-1]))
    assert accept(chain[2], ANCHOR, newer_than=0, fetch=Shelf(*chain)).digest == chain[2].digest
    assert refusal(chain[3], Shelf(*chain)) == "chain_too_long"


def test_what_was_not_signed_is_not_served() -> None:
    """A file more, a file less, another file, another number, another place."""
    more = {**DEFAULT, "mappings/other.yaml": b"version: 1\n"}
    fewer = {path: content for path, content in DEFAULT.items() if path != "rules/routes.csv"}
    assert refusal(replace(FIRST, contents=more)) == "extra_file"
    assert refusal(replace(FIRST, contents=fewer)) == "missing_file"
    assert refusal(replace(FIRST, contents=narrower())) == "hash_mismatch"
    assert refusal(replace(FIRST, generation=2)) == "mislabelled"
    assert refusal(replace(FIRST, digest=PolicyDigest("f" * 64))) == "mislabelled"
    assert refusal(replace(FIRST, jws=None)) == "unsigned"
    assert refusal(release(DEFAULT, 1, environment="staging")) == "other_environment"
    assert refusal(release(DEFAULT, 1, digest="f" * 64)) == "mislabelled"


def test_a_stranger_among_the_signers_spoils_the_release() -> None:
    """Somebody added a signature, so it is not what was handed over."""
    assert refusal(release(DEFAULT, 1, by=[ANN, BOB, EVE])) == "unknown_signer"
    assert refusal(release(DEFAULT, 1, by=[EVE])) == "unknown_signer"


def test_a_signed_policy_that_is_invalid_is_refused() -> None:
    invalid = edited(DEFAULT, UNITS, b"U-CUS-1, customer", b"U-CUS-1, custmer")
    assert refusal(release(invalid, 1)) == "policy_invalid"


def test_one_signer_is_enough_where_the_anchor_says_so() -> None:
    alone = TrustAnchor.from_jwks(jwks(ANN), environment="production", widening_signers=1)
    made = release(wider(), 1, by=[ANN])
    assert accept(made, alone, newer_than=0, fetch=Shelf()).digest == made.digest


def test_development_believes_every_valid_policy_and_no_wrong_digest() -> None:
    anchor = TrustAnchor.unsigned()
    made = Artefact(2, digest_of(wider()), None, wider())
    assert accept(made, anchor, newer_than=1, fetch=Shelf()).digest == made.digest
    assert refusal(made, newer_than=2, anchor=anchor) == "older_generation"
    assert refusal(replace(made, contents=DEFAULT), anchor=anchor) == "hash_mismatch"


def test_an_issuer_on_loopback_is_believed_of_an_overlay_in_development_only() -> None:
    """What serves from the database holds to what the folder's own reader holds to."""
    anchor, contents = TrustAnchor.unsigned(), on_loopback()
    plain = Artefact(2, digest_of(contents), None, contents)
    laid = replace(plain, overlaid=frozenset({ISSUERS}))
    assert accept(laid, anchor, newer_than=1, fetch=Shelf()).digest == plain.digest
    assert refusal(plain, anchor=anchor) == "policy_invalid"
    assert refusal(replace(laid, overlaid=frozenset({UNITS})), anchor=anchor) == "policy_invalid"
    signed = replace(release(contents, 1), overlaid=frozenset({ISSUERS}))
    assert refusal(signed) == "policy_invalid"
