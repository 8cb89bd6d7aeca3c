"""What owners send and get: edits, threads, revisions. Closed, strict, bounded.

The command line, the operators' listener and the service read the same models. A label is given
in our own words; a facet that is left out stays as it is (as it is wished, where a wider word
waits for approval).
"""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from retrieval.wire import Wire

CHANGES_MAX: Final = 200
PAGE_MAX: Final = 200


def _composed(text: str) -> str:
    if not unicodedata.is_normalized("NFC", text):
        raise ValueError("not in Unicode normal form C")
    return text


Address = Annotated[
    str,
    StringConstraints(min_length=1, max_length=300, pattern=r"^[^\s\x00-\x1f\x7f]+$"),
    AfterValidator(_composed),
]
Source = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
_SHOWN: Final = r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"
Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=_SHOWN)]
Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z_]{0,59}$")]
Compartment = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Stage = Literal["law", "design", "code", "test", "report", "incident", "other"]


class Label(Wire):
    """Words of a label; None leaves a facet as it is."""

    visibility: Word | None = None
    readiness: Word | None = None
    publication_state: Word | None = None
    risk_class: Word | None = None
    authority: Word | None = None
    kind: Word | None = None
    tenant: Compartment | None = None
    jurisdiction: Compartment | None = None


class SetThread(Wire):
    """The thread's own words. A new thread needs a title and a whole label."""

    do: Literal["set"]
    title: Line | None = None
    aliases: Annotated[tuple[Line, ...], Field(max_length=100)] | None = None
    description: Text | None = None
    purpose: Text | None = None
    status: Literal["active", "retired"] | None = None
    label: Label = Label()


class AddMember(Wire):
    """A unit of the same source joins, or its link is said anew. ``status`` None: not judged."""

    do: Literal["add_member"]
    unit: Address
    role: Literal["canonical", "supporting", "report"] = "canonical"
    confidence: Share = 1.0
    status: Literal["active", "needs_human", "wrong_link"] | None = None


class DropMember(Wire):
    do: Literal["drop_member"]
    unit: Address


class Expect(Wire):
    """Something that the thread should hold one day; it needs a whole label of its own."""

    do: Literal["expect"]
    title: Line
    lifecycle_stage: Stage
    label: Label


class Unexpect(Wire):
    do: Literal["unexpect"]
    title: Line
    lifecycle_stage: Stage


class AddTerm(Wire):
    """A term of the controlled vocabulary (of the same source) names this thread."""

    do: Literal["add_term"]
    term: Line
    version: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    tenant: Compartment = "*"


class DropTerm(Wire):
    do: Literal["drop_term"]
    term: Line
    version: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    tenant: Compartment = "*"


class AddEdge(Wire):
    """An edge from a member of this thread to any unit."""

    do: Literal["add_edge"]
    source: Address
    target: Address
    relation: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    confidence: Share = 1.0


class DropEdge(Wire):
    do: Literal["drop_edge"]
    source: Address
    target: Address
    relation: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]


class Bury(Wire):
    """The thread is gone for every reader; a later ``set`` brings it back as it was."""

    do: Literal["bury"]


Change = Annotated[
    SetThread | AddMember | DropMember | Expect | Unexpect | AddTerm | DropTerm | AddEdge
    | DropEdge | Bury,
    Field(discriminator="do"),
]  # fmt: skip


class ThreadEdit(Wire):
    """Changes of one thread, all of them or none.

    ``expected_revision`` is the one that the editor saw; 0 makes a new thread.
    """

    thread: Address
    expected_revision: Annotated[int, Field(ge=0, lt=2**31)]
    changes: Annotated[tuple[Change, ...], Field(min_length=1, max_length=CHANGES_MAX)]


class Waits(Wire):
    """A label that this edit wishes and that somebody else has to approve."""

    sort: str
    object_id: UUID
    opens_to: tuple[str, ...]
    closed: bool


class Edited(Wire):
    """``revision`` is the thread's after the edit; ``changed``: whether it said anything new."""

    thread_id: UUID
    thread: str
    revision: int
    changed: bool
    waiting: tuple[Waits, ...]


class Listed(Wire):
    """One line of a source's list. ``class_id`` -1: nobody reads the thread now."""

    thread_id: UUID
    thread: str
    title: str
    status: str
    revision: int
    class_id: int
    members: int
    buried: bool


class Page(Wire):
    """Threads of one source by address; ``after`` asks for more, None when there are none."""

    threads: tuple[Listed, ...]
    after: str | None


class Member(Wire):
    unit: str
    role: str
    confidence: float
    status: str


class Artifact(Wire):
    title: str
    lifecycle_stage: str
    label: dict[str, str | None]


class Term(Wire):
    term: str
    version: int
    aliases: tuple[str, ...]


class Edge(Wire):
    source: str
    relation: str
    target: str
    confidence: float


class Part(Wire):
    """Health of the units of one class and compartment, as the last check left it."""

    class_id: int
    tenant: str
    jurisdiction: str
    units: int
    last_activity: datetime | None
    health: dict[str, Any]


class Shown(Wire):
    """A thread with all that belongs to it. ``wished`` is a label that waits for approval."""

    thread_id: UUID
    thread: str
    source: str
    revision: int
    title: str
    aliases: tuple[str, ...]
    description: str
    purpose: str
    status: str
    label: dict[str, str | None]
    wished: dict[str, str | None] | None
    class_id: int
    buried: bool
    members: tuple[Member, ...]
    artifacts: tuple[Artifact, ...]
    terms: tuple[Term, ...]
    edges: tuple[Edge, ...]
    parts: tuple[Part, ...]


class Changed(Wire):
    """One changed thing: ``key`` names it (addresses where it has one), None was not there."""

    what: str
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Revision(Wire):
    """Who changed a thread, when, why and how."""

    revision: int
    made_at: datetime
    author: str
    reason: str
    changes: tuple[Changed, ...]


class History(Wire):
    """Revisions, the newest first; ``before`` asks for older ones, None when there are none."""

    thread_id: UUID
    thread: str
    revisions: tuple[Revision, ...]
    before: int | None
