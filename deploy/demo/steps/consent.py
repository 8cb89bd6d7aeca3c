"""Material of high risk: never without a consent, for one purpose, until it is taken back."""

from __future__ import annotations

from typing import Final

from deploy.demo.claims import Tour
from deploy.demo.people import client
from gateway.authn.claims import subject_id

NOTICE: Final = "reader-recall.safety-notice"
PURPOSE: Final = "support"
APPROVER: Final = "role:risk_officer"
_GIVE: Final = """
insert into gate.consent (subject_id, purpose, unit_id, approver, expires_at)
select %s, %s, id, 'risk-officer', now() + interval '15 minutes'
from brain.unit where canonical_address = %s returning id
"""
_TAKE: Final = """
update gate.consent set revoked_at = now() where subject_id = %s and revoked_at is null returning id
"""


async def given_and_taken(tour: Tour) -> None:
    """The safety notice of the recall, for the customer who owns the reader."""
    voice, path = tour.voice, f"/v1/units/{NOTICE}"
    receiver = subject_id(tour.stage.directory.issuer(client("customer").realm), "customer")
    await tour.rows(_TAKE, receiver)  # what a tour that was killed may have left
    before = await voice.get("customer", path, purpose=PURPOSE)
    tour.check(before.status_code == 404, "without a consent the notice is not there", before.text)
    decision = tour.stage.gateway.snapshot.decide_consent("customer", PURPOSE, APPROVER, "15m")
    tour.check(decision.allowed, f"the policy lets {APPROVER} give one for 15 minutes", decision)
    await tour.rows(_GIVE, receiver, PURPOSE, NOTICE)
    try:
        after = await voice.get("customer", path, purpose=PURPOSE)
        tour.check(after.status_code == 200, "with it the notice is read", after.text)
        other = await voice.get("customer", path)
        tour.check(other.status_code == 404, "for that purpose only", other.text)
        somebody = await voice.get("globex-customer", path, purpose=PURPOSE)
        tour.check(somebody.status_code == 404, "and by that customer only", somebody.text)
    finally:
        await tour.rows(_TAKE, receiver)
    gone = await voice.get("customer", path, purpose=PURPOSE)
    tour.check(gone.status_code == 404, "taken back, it is not there again", gone.text)
