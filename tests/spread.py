"""How the files of the suite are given to its processes, so that all end at about the same time.

A file goes to one process as a whole. Measured on two cores: a long file that begins last runs
alone for minutes, and what only a few files share is made in every process that gets one of them.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

LONG: Final = (
    "tests/properties/",
    "tests/system/",
    "tests/congruence/",
    "tests/adversary/",
    "tests/fuzz/",
    "tests/gateway/cli/",
    "tests/retrieval/fallback/",
)
"""Where the files are that take half a minute to three minutes."""

TOGETHER: Final = (
    # the corpus of PEPs, filled
    (
        "tests/system/test_peps_real_input.py",
        "tests/system/test_peps_ranking.py",
        "tests/retrieval/ingest/test_peps.py",
    ),
    # a world with a unit in every state
    (
        "tests/congruence/test_emitted_scripts.py",
        "tests/congruence/test_guard.py",
        "tests/congruence/test_row_level_security.py",
    ),
)
"""Files that go to one process: their fixtures take it 10 to 30 s."""

_FIRST: Final = {file: files[0] for files in TOGETHER for file in files}


def is_short(nodeid: str) -> bool:
    """Whether a test is in none of the long files; a key for sorting."""
    return not nodeid.startswith(LONG)


def scope(nodeid: str) -> str:
    """What goes to one process as a whole, by the name of its first file."""
    file = nodeid.split("::", 1)[0]
    return _FIRST.get(file, file)


class Spread(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """The files in the order of the collection, those of ``TOGETHER`` as one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)
