"""Whether who decides is who wrote, where people are named in two ways.

Laws
    * The listener writes a verified caller down by its opaque id (`s.…`); a command writes what
      its operator said. `ISSUER:SUB` of an issuer of the policy is the id of that caller.
    * Two names of one way are one person or two. An id and a word cannot be compared: then the
      policy must allow it whether they are one person or not.
    * What opens to nobody may open something under the next policy, which asks no approver: never
      without a decider.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.authn.claims import subject_id
from policies.decision import Decision
from policies.kinds import LabelAuthor
from policies.snapshot import Snapshot

_ID: Final = re.compile(r"s\.[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Opening:
    """The policy's word on opening something to all who gain. ``denied``: whom not to, empty when
    it may be; ``rules``: those that allow it."""

    denied: str
    rules: tuple[str, ...]


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


def decide_opening(
    snapshot: Snapshot,
    gains: Sequence[str],
    role: str,
    *,
    author: str,
    approver: str,
    gained: Sequence[str] = (),
) -> Opening:
    """Whether an approver may open something to everybody of ``gains``.

    When nobody gains: to everybody who would have gained when it was asked (``gained``). When the
    policy knows none of those: to anybody at all.
    """
    known = snapshot.vocabulary.profiles
    asked = list(gains) or [profile for profile in gained if profile in known]
    decisions = {
        profile: decide(snapshot, profile, role, author=author, approver=approver)
        for profile in asked or known
    }
    denied = sorted(profile for profile, one in decisions.items() if not one.allowed)
    rules = {rule for one in decisions.values() if one.allowed for rule in one.rules}
    if asked and denied:
        return Opening(", ".join(denied), ())
    if len(denied) == len(decisions):
        return Opening("anybody", ())
    return Opening("", tuple(sorted(rules)))


def may_close(
    snapshot: Snapshot, gains: Sequence[str], role: str, *, gained: Sequence[str] = ()
) -> bool:
    """Whether a role could open it to one of those who gain, or gained; else to anybody at all."""
    known = snapshot.vocabulary.profiles
    asked = gains or [profile for profile in gained if profile in known] or known
    return any(snapshot.decide_label(one, role, LabelAuthor.OTHER).allowed for one in asked)


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
