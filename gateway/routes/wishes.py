"""What a caller asks for, beside who it is: body and query of the guarded routes.

``audience``, ``task_scope`` and ``purpose`` stand in the body of a POST and in the query of a
GET. They are wishes: placement checks each against policy and verified claims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote_to_bytes

from pydantic import ValidationError

from gateway.egress.cursors import FORM as CURSOR
from gateway.errors import Code, Headers, Refusal
from gateway.ingress.strict_json import NotStrictJson, parse_object
from retrieval.contract import CheckRequest, FeedbackRequest, RetrieveRequest, UnitsRequest

_WORD: Final = re.compile(r"[a-z][a-z0-9_.:-]{0,63}")
_LIMIT: Final = re.compile(r"[1-9][0-9]{0,2}")
_WISHES: Final = frozenset({"audience", "task_scope", "purpose"})
_FILTERS: Final = frozenset({"kind", "lifecycle_stage", "label"})
_OTHER_FORM: Final = "{}: string_pattern_mismatch"
_LISTING: Final = _WISHES | _FILTERS | {"cursor", "limit", "text"}

Request = RetrieveRequest | CheckRequest | FeedbackRequest
BODIES: Final[Mapping[str, type[Request]]] = {
    "retrieve": RetrieveRequest,
    "check": CheckRequest,
    "feedback": FeedbackRequest,
}
"""What stands in the body, by the operation of the route; the others take none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The caller's wishes; an empty text means none. ``request`` is the body of a POST, ``page``
    and ``cursor`` the query of a listing."""

    audience: str = ""
    task_scope: str = ""
    purpose: str = ""
    request: Request | None = None
    page: UnitsRequest | None = None
    cursor: str = ""


def of_query(query: bytes) -> Wish:
    """The wishes in a query string.

    Raises: Refusal ``bad_query`` for an unknown, doubled, empty or malformed one.
    """
    return _wishes(_pairs(query, _WISHES))


def of_listing(query: bytes) -> Wish:
    """The wishes and the page in the query string of a listing. Raises: Refusal ``bad_query``."""
    found = _pairs(query, _LISTING)
    limit, text, cursor = found.get("limit", "50"), found.get("text", "false"), found.get("cursor")
    if not _LIMIT.fullmatch(limit):
        raise Refusal(Code.BAD_QUERY, _OTHER_FORM.format("limit"))
    if text not in {"true", "false"}:
        raise Refusal(Code.BAD_QUERY, "text: bool_parsing")
    if cursor is not None and not CURSOR.fullmatch(cursor):
        raise Refusal(Code.BAD_QUERY, _OTHER_FORM.format("cursor"))
    try:
        page = UnitsRequest(
            limit=int(limit),
            kind=found.get("kind"),
            lifecycle_stage=found.get("lifecycle_stage"),
            label=found.get("label"),
            text=text == "true",
        )
    except ValidationError as error:
        raise Refusal(Code.BAD_QUERY, first_fault(error)) from error
    return replace(_wishes(found), page=page, cursor=cursor or "")


def of_body(headers: Headers, body: bytes, operation: str) -> Wish:
    """The wishes in the body of a POST.

    Raises: Refusal ``unsupported_media_type`` or ``bad_body``.
    """
    require_json(headers)
    try:
        parse_object(body)  # one reading only; then by the contract, which knows JSON's types
        request = BODIES[operation].model_validate_json(body, strict=True)
    except NotStrictJson as error:
        raise Refusal(Code.BAD_BODY, str(error)) from error
    except ValidationError as error:
        raise Refusal(Code.BAD_BODY, first_fault(error)) from error
    return Wish(
        audience=request.audience or "",
        task_scope=request.task_scope or "",
        purpose=request.purpose or "",
        request=request,
    )


def first_fault(error: ValidationError) -> str:
    """The first place in a caller's own body or query that was not accepted, and why, in a fixed
    word.

    Of what the caller sent it says names, and no value.
    """
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['type']}"


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
            raise Refusal(Code.BAD_QUERY, f"{name.decode()}: credential")


def refuse_query(query: bytes) -> None:
    """Refuse any query: the wishes stand in the body. Raises: Refusal ``bad_query``."""
    _pairs(query, frozenset())


def _pairs(query: bytes, names: frozenset[str]) -> dict[str, str]:
    """Each of these parameters that is given, once and not empty; no other may be."""
    found: dict[str, str] = {}
    for pair in query.split(b"&") if query else ():
        name, _, value = pair.partition(b"=")
        word = name.decode("ascii", "replace")
        if word not in names:
            raise Refusal(Code.BAD_QUERY, f"{word or 'query'}: extra_forbidden")
        if word in found:
            raise Refusal(Code.BAD_QUERY, f"{word}: repeated")
        try:
            found[word] = unquote_to_bytes(value).decode()
        except UnicodeDecodeError as error:
            raise Refusal(Code.BAD_QUERY, f"{word}: string_unicode") from error
        if not found[word]:
            raise Refusal(Code.BAD_QUERY, f"{word}: string_too_short")
    return found


def _wishes(found: Mapping[str, str]) -> Wish:
    for name, word in found.items():
        if name in _WISHES and not _WORD.fullmatch(word):
            raise Refusal(Code.BAD_QUERY, _OTHER_FORM.format(name))
    return Wish(
        audience=found.get("audience", ""),
        task_scope=found.get("task_scope", ""),
        purpose=found.get("purpose", ""),
    )


def _is_json(value: bytes) -> bool:
    kind, _, parameter = value.lower().partition(b";")
    return kind.strip() == b"application/json" and parameter.strip() in {b"", b"charset=utf-8"}
