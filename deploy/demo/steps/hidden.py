"""What a caller may not see answers exactly like what is not there."""

from __future__ import annotations

from deploy.demo.claims import Tour, normalised

ABSENT = "refund-webhooks.no-such-unit"
CASES = (
    ("customer", "/v1/units/refund-webhooks.incident-2031", f"/v1/units/{ABSENT}"),
    ("partner", "/v1/units/globex-cod.agreement", f"/v1/units/{ABSENT}"),
    ("employee", "/v1/units/secrets.secrets-law", f"/v1/units/{ABSENT}"),
    ("customer", "/v1/threads/ledger/pack", "/v1/threads/no-such-thread/pack"),
    ("employee", "/v1/threads/secrets/pack", "/v1/threads/no-such-thread/pack"),
)


async def same_bytes(tour: Tour) -> None:
    """Body, status and headers are equal byte for byte, request id and date apart."""
    for name, hidden, absent in CASES:
        one = await tour.voice.get(name, hidden)
        other = await tour.voice.get(name, absent)
        same_size = len(one.content) == len(other.content)
        tour.check(
            one.status_code == 404 and normalised(one) == normalised(other) and same_size,
            f"{name}: {hidden} is as absent as {absent}",
            f"{one.status_code} {one.text} / {other.status_code} {other.text}",
        )
