"""Whether who decides is who wrote, where people are named in two ways.

Laws
    * The listener writes a verified caller down by its opaque id (`s.…`); a command writes what
      its operator said. `ISSUER:SUB` of an issuer of the policy is the id of that caller.
    * Two names of one way are one person or two. An id and a word cannot be compared: then the
      policy must allow it whether they are one person or not.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.authn.claims import subject_id
from policies.decision import Decision
from policies.kinds import LabelAuthor
from policies.snapshot import Snapshot

_ID: Final = re.compile(r"s\.[0-9a-f]{40}")


def person(snapshot: Snapshot, said: str) -> str:
    """Who is meant by `--as`: the opaque id for `ISSUER:SUB`, else the name itself."""
    for issuer in sorted(snapshot.issuers, key=lambda one: len(one.alias), reverse=True):
        sub = said.removeprefix(f"{issuer.alias}:")
        if sub not in ("", said):
            return subject_id(issuer.url, sub)
    return said.strip()


def decide(snapshot: Snapshot, profile: str, role: str, *, author: str, approver: str) -> Decision:
    """The policy's word on opening a label to a profile; of two words the one that denies."""
    words = [snapshot.decide_label(profile, role, one) for one in _authors(author, approver)]
    return next((word for word in words if not word.allowed), words[0])


def why_denied(author: str, approver: str) -> tuple[str, str]:
    """Who was refused, for a message (empty: somebody else than the author), and what helps."""
    match _authors(author, approver):
        case (LabelAuthor.SAME,):
            return " that wrote it", "see rules/labels.csv for roles"
        case (LabelAuthor.OTHER,):
            return "", "see rules/labels.csv for roles"
        case _ if _is_id(author):
            told = f" that cannot be compared with its author `{author}`"
            return told, "say --as ISSUER:SUB, with an issuer's alias of the policy"
        case _:
            told = f" that cannot be compared with its author `{author[:60]}`"
            return told, "say --as NAME, as the author was named"


def _authors(author: str, approver: str) -> tuple[LabelAuthor, ...]:
    """Who the approver may be. Names that differ in case or edges only are one."""
    if _is_id(author) is not _is_id(approver):
        return (LabelAuthor.SAME, LabelAuthor.OTHER)
    return (LabelAuthor.SAME if _folded(author) == _folded(approver) else LabelAuthor.OTHER,)


def _is_id(name: str) -> bool:
    return _ID.fullmatch(_folded(name)) is not None


def _folded(name: str) -> str:
    return name.strip().casefold()
