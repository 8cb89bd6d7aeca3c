"""What a decision record consists of, as one table: writer, reader, redaction and JSON Schema.

Theory
    A field is a path (``profile``, ``units.denied``), a form and a meaning. Everything else is
    derived: the reader checks forms, redaction knows which paths there are, `schema` writes
    the published JSON Schema, and a test keeps the README's table equal to this one.

    A *masked* value is ``***`` or a keyed hash (``~`` and 24 hex digits); a word never has
    either form. An *erased* field is absent. A record names both, so that a reader can tell
    what is unknown from what is empty.

A new field is a change of this version as long as old readers may miss it; a changed meaning
is a new version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.reasons import Why

SCHEMA: Final = "audience-gateway/decision/1"
STARS: Final = "***"
WORD_CHARACTERS: Final = "[A-Za-z0-9_.:=/+@-]"
WORD_MAX: Final = 256
WORD: Final = re.compile(f"{WORD_CHARACTERS}{{0,{WORD_MAX}}}")
"""Every id and word that can stand in a record. No blank, no quote, no control character."""
MASKED: Final = re.compile(r"\*\*\*|~[0-9a-f]{24}")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
STATIONS: Final = ("", "admit", "match", "identify", "place", "decide", "relay", "inspect")
POLICY_REASONS: Final = ("rule", "no_rule", "denied_by_rule", "no_audience", "ambiguous_audience")
"""Why a decision of the policy fell as it did."""
REASONS: Final = tuple(dict.fromkeys(("", *POLICY_REASONS, *map(str, Why))))


class Form(StrEnum):
    """What the value of a field looks like in JSON."""

    SCHEMA = "schema"
    WORD = "word"
    WORDS = "words"
    EFFECT = "effect"
    REASON = "reason"
    STATION = "station"
    TIME = "time"
    COUNT = "count"
    CLASS = "class"
    FLAG = "flag"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Field:
    """One leaf of the record. ``fixed`` ones can be neither masked nor dropped."""

    path: str
    form: Form
    meaning: str
    fixed: bool = False


FIELDS: Final = (
    Field("schema", Form.SCHEMA, "name and version of this form", fixed=True),
    Field("decision_id", Form.WORD, "this record's own random id", fixed=True),
    Field("request_id", Form.WORD, "as in the answer's `X-Request-Id`, span, access log, event"),
    Field("trace_id", Form.WORD, "32 hex digits, as in the span and the journal"),
    Field("at", Form.TIME, "when the request began, UTC, microseconds", fixed=True),
    Field("policy_digest", Form.WORD, "the policy that decided; empty: refused before any did"),
    Field(
        "surface", Form.WORD, "which surface: `data`, `forward_auth` where a proxy asked, `admin`"
    ),
    Field("route", Form.WORD, "id of the matched route, never a path; empty: none"),
    Field("method", Form.WORD, "HTTP method; `_OTHER` for an unknown one"),
    Field(
        "issuer",
        Form.WORD,
        "alias of the caller's issuer; of the one that a refused credential names, unproven",
    ),
    Field("claims", Form.WORDS, "`claim=alias` pairs of the verified claims, sorted"),
    Field("audience", Form.WORD, "where policy placed the caller; empty: nowhere"),
    Field("profile", Form.WORD, "the caller's own profile"),
    Field("profiles", Form.WORDS, "the profiles that were intersected, the own one first"),
    Field("task_scope", Form.WORD, "task in force; of a caller not placed, the one it named"),
    Field("purpose", Form.WORD, "purpose named, as far as the vocabulary has it"),
    Field("narrowed", Form.WORD, "profile that the request named to narrow itself"),
    Field("actor", Form.WORD, "upstream that acts for the caller; empty: none"),
    Field(
        "station",
        Form.STATION,
        "the station that refused the request, else the last one that it passed",
    ),
    Field("effect", Form.EFFECT, "`allow`, or `deny` for every refused request"),
    Field(
        "code",
        Form.WORD,
        "code of a refusal, `caller_gone`, `truncated`, or `stream_*`: why we ended it",
    ),
    Field(
        "reason",
        Form.REASON,
        "why the caller was refused (below), else why the policy's last decision fell as it did",
    ),
    Field("rules", Form.WORDS, "ids of the rules that decided: placement, then route"),
    Field("units.returned", Form.COUNT, "governed objects in the answer that left"),
    Field("units.denied", Form.COUNT, "units that were kept from the caller at the door"),
    Field("units.stale", Form.COUNT, "units that were held back because an index was late"),
    Field("classes.class_id", Form.CLASS, "class of units (`classes.lock`); -1: without a label"),
    Field("classes.consent", Form.FLAG, "whether a live consent named these units"),
    Field("classes.allowed", Form.COUNT, "how many of them were in the answer that left"),
    Field("classes.denied", Form.COUNT, "how many of them were kept from the caller"),
    Field(
        "classes.not_by_class",
        Form.COUNT,
        "how many of `denied` the class would have let pass: a compartment, or a text of another",
    ),
    Field("duration_us", Form.COUNT, "microseconds from the first byte in to the last one out"),
    Field(
        "sampled",
        Form.RATIO,
        "share of such requests that is written; 1 for whatever is always written",
        fixed=True,
    ),
    Field(
        "dropped",
        Form.COUNT,
        "records lost since the last written one: rate limit, full queue",
        fixed=True,
    ),
    Field("masked", Form.WORDS, "paths whose values are masked in this record", fixed=True),
    Field("erased", Form.WORDS, "paths that are left out of this record", fixed=True),
)
BY_PATH: Final = {field.path: field for field in FIELDS}
CONTAINERS: Final = ("units", "classes")
TOP_LEVEL: Final = tuple(dict.fromkeys(field.path.partition(".")[0] for field in FIELDS))
REDACTABLE: Final = tuple(field.path for field in FIELDS if not field.fixed)
"""Every leaf that may be masked or dropped; a container stands for all of its leaves."""


def leaves(path: str) -> tuple[str, ...]:
    """The redactable leaves under a path: itself, or those of a container; empty if unknown."""
    if path in CONTAINERS:
        return tuple(one for one in REDACTABLE if one.startswith(f"{path}."))
    return (path,) if path in REDACTABLE else ()
