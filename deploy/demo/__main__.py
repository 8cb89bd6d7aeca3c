"""``python -m deploy.demo``: see ``deploy.demo.command``, which takes two seconds to import."""

from __future__ import annotations

import sys
from typing import Final

from gateway.settled import loading

INTERRUPTED: Final = 130
"""``gateway.cli.failure.Exit.INTERRUPTED``, before it can be imported."""

if __name__ == "__main__":
    try:
        with loading():
            from deploy.demo.command import main

        code = main()
    except KeyboardInterrupt:  # so early that nothing was started
        code = INTERRUPTED
    sys.exit(code)
