"""Reading and editing the threads of one source: the service behind command line and listener.

Laws
    * An edit is one transaction: all of its changes or none, and at most one revision.
    * It is made against the revision that the editor saw. Another one in between is a conflict.
    * Whoever was decided on under one policy edits under that one, or not at all.
    * Only threads of the named source exist here. Who may name which source, the caller decides.

Blocking, one session a call: owners edit by hand. Cost of an edit: some ten statements a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors

from policies.vocabulary import Vocabulary
from retrieval.ingest.errors import IngestRefused
from retrieval.ingest.identity import thread_id
from retrieval.ingest.ownership import FOREIGN, owner_named
from retrieval.owners import reading
from retrieval.owners.applying import Applier
from retrieval.owners.errors import OwnersRefused, Why, bad_edit
from retrieval.owners.wire import PAGE_MAX, Edited, History, Page, Shown, ThreadEdit, Waits

Connection = psycopg.Connection[Any]
_AT_WORK: Final = """
    select set_config('gw.origin', %(source)s, true), set_config('gw.adopt', 'off', true),
        set_config('gw.author', %(author)s, true), set_config('gw.reason', %(reason)s, true),
        set_config('gw.mapping', '', true), set_config('gw.mapping_sha256', '', true)"""
_ENFORCED: Final = "select digest from gate.active_revision"
_LOCKED: Final = "select origin from brain.thread where id = %s for no key update"
_REVISION: Final = (
    "select coalesce(max(revision), 0) from brain.thread_revision where thread_id = %s"
)
_WAITING: Final = """
    select c.sort, c.object_id, c.gained, c.closed from gate.label_change c
    where c.origin = %s and c.state = 'pending' and c.proposed_at = now() order by 1, 2"""
_OPTIONS: Final = "-c statement_timeout=20000 -c lock_timeout=5000"


@dataclass(frozen=True, slots=True)
class Editor:
    """Who edits and why; both are kept with the revision."""

    author: str
    reason: str


@dataclass(frozen=True, slots=True)
class Owners:
    """``dsn`` logs in as ``gw_curate``; ``digest`` is of the policy that let the editor edit."""

    dsn: str
    vocabulary: Vocabulary
    digest: str

    def threads(self, source: str, *, after: str = "", limit: int = PAGE_MAX) -> Page:
        """The threads of a source, by address. Raises: OwnersRefused."""
        with self._session(source, Editor("", "")) as connection:
            return reading.listed(connection, source, after=after, limit=limit)

    def show(self, source: str, address: str) -> Shown:
        """One thread with all that belongs to it. Raises: OwnersRefused."""
        with self._session(source, Editor("", "")) as connection:
            return reading.shown(connection, source, address)

    def history(
        self, source: str, address: str, *, before: int = 2**31 - 1, limit: int = PAGE_MAX
    ) -> History:
        """Its revisions, the newest first. Raises: OwnersRefused."""
        with self._session(source, Editor("", "")) as connection:
            return reading.history(connection, source, address, before=before, limit=limit)

    def edit(self, source: str, edit: ThreadEdit, editor: Editor) -> Edited:
        """Make an edit, or nothing of it. Raises: OwnersRefused."""
        if not editor.author.strip() or not editor.reason.strip():
            raise bad_edit("an edit needs an author and a reason", "say who edits and why")
        ident = thread_id(edit.thread)
        with self._session(source, editor) as connection:
            _expect(connection, source, edit)
            applier = Applier(connection, self.vocabulary, source, edit.thread, editor.author)
            for number, change in enumerate(edit.changes, start=1):
                applier.apply(change, f"change {number}")
            revision = _revision(connection, edit.thread)
            if revision > edit.expected_revision + 1:  # there was nothing to hold on to yet
                raise _conflict("somebody made the same meanwhile")
            waiting = connection.execute(_WAITING, [source]).fetchall()
        return Edited(
            thread_id=ident,
            thread=edit.thread,
            revision=revision,
            changed=revision != edit.expected_revision,
            waiting=tuple(
                Waits(sort=sort, object_id=of, opens_to=tuple(gained), closed=closed)
                for sort, of, gained, closed in waiting
            ),
        )

    @contextmanager
    def _session(self, source: str, editor: Editor) -> Iterator[Connection]:
        """One transaction for this source; committed when the block ends well."""
        try:
            owner_named(source, adopts=False)
        except IngestRefused as refused:
            raise bad_edit(refused.reason, refused.remedy) from refused
        try:
            with psycopg.connect(self.dsn, connect_timeout=10, options=_OPTIONS) as connection:
                connection.execute(
                    _AT_WORK,
                    {"source": source, "author": editor.author, "reason": editor.reason},
                )
                row = connection.execute(_ENFORCED).fetchone()
                if row is None or row[0] != self.digest:
                    raise OwnersRefused(
                        Why.POLICY_CHANGED, "the database enforces another policy", "ask again"
                    )
                yield connection
        except errors.UniqueViolation as error:
            raise _conflict("somebody made the same meanwhile") from error
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            raise _conflict("somebody else is writing to it") from error
        except psycopg.Error as error:
            reason = f"the record of truth refused it ({error.sqlstate or type(error).__name__})"
            raise OwnersRefused(Why.STORE_UNAVAILABLE, reason, "try again later") from error


def _expect(connection: Connection, source: str, edit: ThreadEdit) -> None:
    """Hold the thread, and return when it stands at the revision that the editor saw."""
    row = connection.execute(_LOCKED, [thread_id(edit.thread)]).fetchone()
    if row is not None and row[0] != source:
        if edit.expected_revision == 0:
            raise bad_edit(f"`{edit.thread}` {FOREIGN}", "take another address")
        raise reading.unknown(edit.thread)
    if row is None and edit.expected_revision > 0:
        raise reading.unknown(edit.thread)
    if row is None and edit.changes[0].do != "set":
        raise bad_edit("a new thread begins with `set`: a title and a label")
    now = _revision(connection, edit.thread)
    if now != edit.expected_revision:
        raise _conflict(f"the thread is at revision {now}, not {edit.expected_revision}")


def _revision(connection: Connection, address: str) -> int:
    row = connection.execute(_REVISION, [thread_id(address)]).fetchone()
    return int(row[0]) if row is not None else 0


def _conflict(reason: str) -> OwnersRefused:
    return OwnersRefused(Why.CONFLICT, reason, "look at it again, then edit what is there now")
