"""The command ``gateway``: one file per command, no rule in any of them.

Laws
    * What goes wrong is one line: ``gateway: error: CODE: reason; remedy``, on standard error.
    * Exit codes: 0 done, 1 refused or found damaged, 2 usage or settings, 3 policy invalid,
      4 something it needs cannot be reached, 5 port taken, 130 interrupted.
    * Text that came from elsewhere is shown without control or direction characters.
"""

from gateway.settled import loading

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit with its code."""
    with loading():
        from gateway.cli.app import main as run  # late: else it was loaded before
    run()
