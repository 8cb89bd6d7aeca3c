"""Asking the running gateway as one of the demo people, over real HTTP with real tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

from deploy.demo.identity import Directory
from deploy.demo.people import client


class Voice:
    """One HTTP client that can speak for every demo person. Tokens are fetched once each."""

    def __init__(self, http: httpx.AsyncClient, gateway_url: str, directory: Directory) -> None:
        self._http = http
        self._url = gateway_url
        self._directory = directory
        self._tokens: dict[str, str] = {}

    async def ask(self, name: str, question: str, **fields: object) -> httpx.Response:
        """``POST /v1/retrieve``; ``fields`` are the request's further ones (``audience``…)."""
        return await self._http.post(
            f"{self._url}/v1/retrieve",
            json={"query": question, **fields},
            headers=await self._credential(name),
        )

    async def get(self, name: str, path: str, **query: str) -> httpx.Response:
        return await self._http.get(
            f"{self._url}{path}", params=query, headers=await self._credential(name)
        )

    async def anonymous(self, url: str) -> httpx.Response:
        """A GET without any credential; ``url`` is absolute."""
        return await self._http.get(url)

    async def token(self, name: str) -> str:
        """The access token of a demo person."""
        if name not in self._tokens:
            answer = await self._http.post(
                self._directory.token_url(client(name).realm),
                data={"grant_type": "client_credentials"},
                auth=(name, self._directory.secret(name)),
            )
            answer.raise_for_status()
            self._tokens[name] = answer.json()["access_token"]
        return self._tokens[name]

    async def _credential(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {await self.token(name)}"}


def addresses(answer: httpx.Response) -> frozenset[str]:
    """Every unit address that stands anywhere in an answer, links and suspects included."""
    return frozenset(_addresses(answer.json()))


def gap_titles(answer: httpx.Response) -> frozenset[str]:
    return frozenset(gap["title"] for pack in answer.json()["packs"] for gap in pack["known_gaps"])


def thread_titles(answer: httpx.Response) -> frozenset[str]:
    """The titles of the threads of an answer; empty for a fallback."""
    titles = (pack["thread_title"] for pack in answer.json()["packs"])
    return frozenset(title for title in titles if title is not None)


_KEYS = frozenset({"canonical_address", "from_address", "to_address"})


def _addresses(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in _KEYS:
                yield inner
            elif name == "source_revisions":
                yield from inner
            else:
                yield from _addresses(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _addresses(inner)
