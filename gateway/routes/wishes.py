"""What a caller asks for, beside who it is: body and query of the guarded routes.

``audience``, ``task_scope`` and ``purpose`` stand in the body of a POST and in the query of a
GET. They are wishes: placement checks each against policy and verified claims.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from pydantic import ValidationError

from gateway.errors import Code, Headers, Refusal
from gateway.ingress.strict_json import NotStrictJson, parse_object
from retrieval.contract import RetrieveRequest

_WORD: Final = re.compile(r"[a-z][a-z0-9_.:-]{0,63}")
_NAMES: Final = frozenset({"audience", "task_scope", "purpose"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The caller's wishes; an empty text means none. ``request`` is the body of a retrieve."""

    audience: str = ""
    task_scope: str = ""
    purpose: str = ""
    request: RetrieveRequest | None = None


def of_query(query: bytes) -> Wish:
    """The wishes in a query string.

    Raises: Refusal ``bad_query`` for an unknown, doubled, empty or malformed one.
    """
    found: dict[str, str] = {}
    for pair in query.split(b"&") if query else ():
        name, _, value = pair.partition(b"=")
        word = name.decode("ascii", "replace")
        text = unquote_to_bytes(value).decode("ascii", "replace")
        if word not in _NAMES or word in found or not _WORD.fullmatch(text):
            raise Refusal(Code.BAD_QUERY, "not a known parameter with a word, once")
        found[word] = text
    return Wish(
        audience=found.get("audience", ""),
        task_scope=found.get("task_scope", ""),
        purpose=found.get("purpose", ""),
    )


def of_body(headers: Headers, body: bytes) -> Wish:
    """The wishes in the body of a retrieve.

    Raises: Refusal ``unsupported_media_type`` or ``bad_body``.
    """
    require_json(headers)
    try:
        parse_object(body)  # doubled names and the like, which the model's own reader lets pass
        request = RetrieveRequest.model_validate_json(body, strict=True)
    except (NotStrictJson, ValidationError) as error:
        raise Refusal(Code.BAD_BODY, type(error).__name__) from error
    return Wish(
        audience=request.audience or "",
        task_scope=request.task_scope or "",
        purpose=request.purpose or "",
        request=request,
    )


def require_json(headers: Headers) -> None:
    """Return for a body that says it is plain JSON. Raises: Refusal ``unsupported_media_type``."""
    types = [value for name, value in headers if name == b"content-type"]
    if len(types) != 1 or not _is_json(types[0]):
        raise Refusal(Code.UNSUPPORTED_MEDIA_TYPE, "one JSON content type")
    if any(name == b"content-encoding" for name, _ in headers):
        raise Refusal(Code.UNSUPPORTED_MEDIA_TYPE, "an encoded body")


def refuse_tokens(query: bytes) -> None:
    """Refuse a query string that carries a credential: it would end in logs and referrers."""
    for pair in query.split(b"&") if query else ():
        name = unquote_to_bytes(pair.partition(b"=")[0].replace(b"+", b" ")).strip().lower()
        if name in {b"access_token", b"id_token", b"bearer_token"}:
            raise Refusal(Code.BAD_QUERY, "a credential in the query")


def _is_json(value: bytes) -> bool:
    kind, _, parameter = value.lower().partition(b";")
    return kind.strip() == b"application/json" and parameter.strip() in {b"", b"charset=utf-8"}
