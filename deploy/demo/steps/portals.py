"""The portals: in front of them the gateway, behind them the gateway again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Final

from deploy.demo.claims import QUESTION, Tour
from deploy.demo.expected import allowed
from deploy.demo.portals.app import PORTALS
from deploy.demo.servers import HOST

WANTED: Final[Mapping[str, tuple[str, str]]] = {
    "customer-portal": ("customer", "refund-webhooks.faq"),
    "partner-portal": ("partner", "refund-webhooks.retry-guide"),
    "employee-portal": ("employee", "refund-webhooks.replay-sop"),
}
"""By upstream: who visits it, and what must stand on the page."""

_CITED: Final = re.compile(r"<cite>\[([^ ]+) @ \d+\]</cite>")


async def for_the_user(tour: Tour) -> None:
    """Delegation and own credential together retrieve for the visitor; either alone does not."""
    for portal in PORTALS:
        name, wanted = WANTED[portal.upstream]
        answer = await tour.voice.get(name, portal.path, q=QUESTION)
        cited = frozenset(unescape(one) for one in _CITED.findall(answer.text))
        tour.check(
            answer.status_code == 200 and wanted in cited,
            f"{portal.title}: cites {wanted} to the {name}",
            f"{answer.status_code} {answer.text[:300]}",
        )
        tour.check(
            cited <= allowed(name, tour.corpus),
            f"{portal.title}: all {len(cited)} units on the page are its visitor's",
            sorted(cited - allowed(name, tour.corpus)),
        )
        alone = await tour.voice.ask(portal.client, QUESTION)
        tour.check(
            alone.status_code == 403 and alone.json()["code"] == "delegation_required",
            f"{portal.title}: its own credential alone retrieves nothing",
            alone.text,
        )
        direct = await tour.voice.anonymous(
            f"http://{HOST}:{tour.stage.portal_ports[portal.upstream]}{portal.path}"
        )
        tour.check(
            direct.status_code == 403, f"{portal.title}: refuses whoever comes past the gateway"
        )
    stranger = await tour.voice.get("customer", PORTALS[2].path, q=QUESTION)
    tour.check(
        stranger.status_code == 403, "a customer does not get into the employees' portal", stranger
    )
