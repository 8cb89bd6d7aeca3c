"""A forge whose Casbin is wrong about one word; started by path, as a process of its own."""

from __future__ import annotations

import sys

sys.path.insert(0, sys.argv[1])

from gateway.reload import forge
from policies import oracle

_right = oracle.meets


def _wrong(request: str, cell: str) -> bool:
    return _right(request, cell) and request != "sandbox" and not (
        request == "faq" and "guide" in cell
    )  # fmt: skip


oracle.meets = _wrong
forge.main()
