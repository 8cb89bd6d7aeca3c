"""A policy as a large organisation would have it: by default 10,000 rules and 200 profiles.

The default policy with a desk's agents added to it, many times: each desk is a profile with a
role of its own, one row that places it and some fifty rows of what it may read. What the rows
open is drawn at random by a fixed seed, so that no two desks are alike and no cell repeats by
design: nothing here is friendlier to a compiler than a hand-kept policy would be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policies.snapshot import DEFAULT_FOLDER

PROFILES: Final = 200
RULES: Final = 10_000
DESK: Final = "agent:desk"

_KINDS: Final = (
    "law", "policy", "sop", "runbook", "faq", "guide", "api_doc", "integration_spec",
    "product_doc", "design", "code", "test", "report", "incident", "thread", "other",
)  # fmt: skip


def contents(
    *, profiles: int = PROFILES, rules: int = RULES, seed: int = 3, note: str = ""
) -> dict[str, bytes]:
    """The covered files of such a policy. Another ``note`` gives it another digest only."""
    found = {
        path.relative_to(DEFAULT_FOLDER).as_posix(): path.read_bytes()
        for part in ("rules", "models", "mappings")
        for path in sorted((DEFAULT_FOLDER / part).iterdir())
    }
    taken = len(_words(found, "profiles"))
    desks = [f"{number:03d}" for number in range(profiles - taken)]
    before = sum(
        line.startswith(b"p,")
        for name, content in found.items()
        if name.endswith(".csv")
        for line in content.splitlines()
    )
    wanted = rules - before - len(desks)
    found["rules/vocabulary.yaml"] = _vocabulary(found["rules/vocabulary.yaml"], desks)
    found["rules/agents.csv"] += b"".join(
        f"p, G-DESK-{desk}, role:desk{desk}, answer, retrieve|pack|unit|scope, {DESK}{desk},"
        " allow\n".encode()
        for desk in desks
    )
    chance = random.Random(seed)
    lines: list[str] = []
    for number, desk in enumerate(desks):
        many = wanted // len(desks) + (number < wanted % len(desks))
        lines += _of_desk(desk, many, chance)
    found["rules/units.csv"] += "".join(lines).encode() + f"# {note}\n".encode()
    return found


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """The files as a policy folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _words(found: dict[str, bytes], key: str) -> list[str]:
    text = found["rules/vocabulary.yaml"].decode().partition(f"\n{key}:\n")[2]
    return text.partition("\n\n")[0].split("\n")


def _vocabulary(content: bytes, desks: list[str]) -> bytes:
    text = content.decode()
    own = "".join(f"  {DESK}{desk}: agent\n" for desk in desks)
    roles = "".join(f", role:desk{desk}" for desk in desks)
    head, found, tail = text.partition("\nprofiles:\n")
    listed, end, rest = tail.partition("\n\n")
    text = f"{head}{found}{listed}\n{own.rstrip()}{end}{rest}"
    head, found, tail = text.partition("\nroles: [")
    listed, end, rest = tail.partition("]")
    return f"{head}{found}{listed}{roles}{end}{rest}".encode()


def _of_desk(desk: str, many: int, chance: random.Random) -> Iterator[str]:
    """Distinct rows: one in twelve closes something that was withdrawn or not yet published."""
    seen: set[str] = set()
    while len(seen) < many:
        closing = chance.random() < 1 / 12
        cells = ", ".join(
            (
                f"{DESK}{desk}",
                _some(("public", "partner", "employee", "internal"), 2, chance),
                _some(("draft", "under_review", "approved", "published"), 2, chance),
                _some(("unpublished", "withdrawn"), 2, chance) if closing
                else chance.choice(("published", "published|unpublished", "published|withdrawn")),
                _some(("low", "standard", "high"), 3, chance),
                _some(("enacted", "draft", "runtime"), 2, chance),
                _some(_KINDS, 4, chance),
                "none|granted" if closing or chance.random() < 0.7 else "granted",
                "deny" if closing else "allow",
            )
        )  # fmt: skip
        if cells not in seen:
            seen.add(cells)
            yield f"p, U-DESK-{desk}-{len(seen)}, {cells}\n"


def _some(words: tuple[str, ...], most: int, chance: random.Random) -> str:
    return "|".join(sorted(chance.sample(words, chance.randint(1, most))))
