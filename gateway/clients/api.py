"""Asks a gateway for passages, as the holder of a token.

Laws
    * What may be read is the gateway's to decide. A client can name a question; what narrows it
      (``audience``, ``task_scope``, ``purpose``) is fixed by who makes the client, and a model
      that writes questions reaches none of it.
    * The token goes to the gateway's own address and nowhere else: TLS or loopback, and no
      redirect is followed. It is asked for anew with each question.
    * A passage comes with its citation. A refusal is an error, never an empty list.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

_SHOWN: Final = ("canonical_units", "supporting_units", "latest_reports")
_LABELS: Final = (
    "title",
    "kind",
    "lifecycle_stage",
    "readiness",
    "authority",
    "risk_class",
    "source",
)


class GatewayRefused(Exception):
    """The gateway answered with a refusal; ``code`` is of its closed list."""

    def __init__(self, status: int, code: str, request_id: str) -> None:
        self.status = status
        self.code = code
        self.request_id = request_id
        super().__init__(f"{status} {code} (request {request_id})")


@dataclass(frozen=True, slots=True)
class Passage:
    """A unit of a pack: its text, its score (None from a thread) and what to cite and surface.

    ``metadata`` has the citation (``pack_id``, ``canonical_address``, ``source_revision``), the
    labels, ``unit_id``, ``thread_id``, ``suspect`` (a reason or None) and ``known_gaps`` of its
    pack (each ``artifact_id`` and ``title``).
    """

    text: str
    score: float | None
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A gateway at ``url``; ``token`` gives a bearer token of whoever asks.

    ``k`` bounds the core units of a pack. ``audience`` narrows to a profile, ``task_scope`` picks
    one of the token's own, ``purpose`` says which consents count. Raises ValueError for a URL
    that a token must not be sent to.
    """

    url: str
    token: Callable[[], str] = field(repr=False)
    k: int = 10
    audience: str | None = None
    task_scope: str | None = None
    purpose: str | None = None
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        url = httpx.URL(self.url)
        if url.scheme != "https" and not (url.scheme == "http" and _loopback(url.host)):
            raise ValueError("a token goes over https, or over http to this machine")

    def retrieve(self, query: str) -> list[Passage]:
        """The passages that answer a question, each unit of a pack once, in reading order.

        Raises: GatewayRefused; httpx.HTTPError when there is no answer.
        """
        with httpx.Client(timeout=self.timeout_s) as client:
            return _passages(client.send(self._request(query)))

    async def aretrieve(self, query: str) -> list[Passage]:
        """As ``retrieve``, on an event loop."""
        async with httpx.AsyncClient(timeout=self.timeout_s) as client:
            return _passages(await client.send(self._request(query)))

    def _request(self, query: str) -> httpx.Request:
        wishes = {
            "audience": self.audience,
            "task_scope": self.task_scope,
            "purpose": self.purpose,
        }
        return httpx.Request(
            "POST",
            httpx.URL(self.url).join("/v1/retrieve"),
            headers={"authorization": f"Bearer {self.token()}"},
            json={"query": query, "k": self.k, **{k: v for k, v in wishes.items() if v}},
        )


def _passages(reply: httpx.Response) -> list[Passage]:
    if reply.status_code != 200:
        raise _refused(reply)
    return [one for pack in reply.json()["packs"] for one in _of_pack(pack)]


def _of_pack(pack: Mapping[str, Any]) -> Iterable[Passage]:
    units = {unit["canonical_address"]: unit for name in _SHOWN for unit in pack[name]}
    suspects = {one["unit_id"]: one["reason"] for one in pack["suspect_links"]}
    gaps = [{name: gap[name] for name in ("artifact_id", "title")} for gap in pack["known_gaps"]]
    for step in pack["recommended_reading_order"]:
        unit = units[step["canonical_address"]]
        metadata = {
            "pack_id": pack["pack_id"],
            "canonical_address": unit["canonical_address"],
            "source_revision": unit["revision"],
            "unit_id": unit["unit_id"],
            "thread_id": pack["thread_id"],
            "suspect": suspects.get(unit["unit_id"]),
            "known_gaps": gaps,
            **{name: unit[name] for name in _LABELS},
        }
        yield Passage(unit["text"], unit["score"], metadata)


def _refused(reply: httpx.Response) -> GatewayRefused:
    """The refusal in an answer; one that is no problem document of ours has no code."""
    try:
        problem = reply.json()
        code, request_id = str(problem["code"]), str(problem["request_id"])
    except (ValueError, KeyError, TypeError):
        code, request_id = "", ""
    return GatewayRefused(reply.status_code, code, request_id)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
