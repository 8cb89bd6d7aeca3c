"""An owner's desk: short ways to edit threads of one source and to look at what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from retrieval.owners.service import Editor, Owners
from retrieval.owners.wire import Edited, ThreadEdit
from retrieval.stores.roles import CURATE, dsn_for
from tests.retrieval.ingest.bench import GOOD, Bench, unit

LABEL = {name: word for name, word in GOOD.items() if name != "lifecycle_stage"}
OPEN = LABEL | {"kind": "thread"}
STAFF = OPEN | {"visibility": "employee"}
_EDIT: TypeAdapter[ThreadEdit] = TypeAdapter(ThreadEdit)

Change = Mapping[str, Any]


def new(title: str = "Refunds", **more: Any) -> dict[str, Any]:
    """The change that makes a thread."""
    return {"do": "set", "title": title, "label": OPEN, **more}


@dataclass(frozen=True, slots=True)
class Desk(Bench):
    """A bench with an owner at it."""

    @property
    def owners(self) -> Owners:
        dsn = dsn_for(CURATE, self.database.url, self.database.secret)
        return Owners(dsn, self.snapshot.vocabulary, self.snapshot.digest)

    def fill(self) -> None:
        term = {"sort": "label", "term": "refund", "aliases": ["RFD", "money back"], **LABEL}
        blank = {"visibility": ..., "inherit": ["visibility"]}
        self.run([unit("u/1"), unit("u/2", **blank), term], origin="ours")
        self.run([unit("v/1")], origin="theirs")

    def edit(
        self,
        *changes: Change,
        thread: str = "t/1",
        expected: int = 0,
        source: str = "ours",
        author: str = "ann",
        reason: str = "tidying up",
    ) -> Edited:
        """One edit of this source, as an owner would send it."""
        edit = _EDIT.validate_python(
            {"thread": thread, "expected_revision": expected, "changes": changes}
        )
        return self.owners.edit(source, edit, Editor(author, reason))

    def class_of(self, table: str, address: str) -> int:
        (found,) = self.one(
            f"select class_id from brain.{table} where canonical_address = %s", address
        )
        return int(found)
