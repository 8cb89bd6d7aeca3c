"""Retrieval for the portal's user: through the gateway, with both halves of the proof.

The delegation says *for this user*, the portal's own token says *by this portal*. Either half
alone gets nothing, so a stolen delegation is worthless and the portal can read nothing as itself.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import httpx

DELEGATION: Final = "x-gateway-delegation"
RENEW_S: Final = 30
NO_DELEGATION: Final = "no_delegation"
"""The hop brought no word on whose behalf to retrieve: the visitor is anonymous."""


class RetrievalRefused(Exception):
    """The gateway gave no result; ``code`` is its stable word for why."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


class Backend:
    """One portal's way to the gateway, with its service credential."""

    def __init__(
        self, *, gateway_url: str, token_url: str, name: str, secret: str, http: httpx.Client
    ) -> None:
        self._gateway_url = gateway_url
        self._token_url = token_url
        self._credential = (name, secret)
        self._http = http
        self._renewing = threading.Lock()
        self._token = ("", 0.0)

    def retrieve(self, question: str, delegations: list[str]) -> dict[str, Any]:
        """The wire form of the gateway's answer for the user of this request.

        Raises RetrievalRefused, also when the hop brought no delegation.
        """
        if len(delegations) != 1 or not delegations[0]:  # the hop sends an empty one for nobody
            raise RetrievalRefused(NO_DELEGATION)
        try:
            answer = self._http.post(
                f"{self._gateway_url}/v1/retrieve",
                json={"query": question},
                headers={
                    "authorization": f"Bearer {self._own_token()}",
                    DELEGATION: delegations[0],
                },
            )
            document = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise RetrievalRefused("unreachable") from error
        if answer.status_code != 200 or not isinstance(document, dict):
            code = document.get("code") if isinstance(document, dict) else None
            raise RetrievalRefused(str(code or "unreadable"))
        return document

    def _own_token(self) -> str:
        with self._renewing:
            token, ends = self._token
            if time.monotonic() > ends - RENEW_S:
                answer = self._http.post(
                    self._token_url,
                    data={"grant_type": "client_credentials"},
                    auth=self._credential,
                )
                answer.raise_for_status()
                grant = answer.json()
                token = grant["access_token"]
                self._token = (token, time.monotonic() + grant["expires_in"])
            return token
