"""``python -m retrieval.embedded``: the supervisor's process. Started by ``supervisor.start``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from retrieval.embedded.watch import watch


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m retrieval.embedded", description=__doc__)
    parser.add_argument("--state", type=Path, default=None)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--not-durable", action="store_true")
    given = parser.parse_args()
    return watch(given.state, parent=given.parent, durable=not given.not_durable)


if __name__ == "__main__":
    sys.exit(main())
