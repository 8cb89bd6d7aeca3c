"""``python -m gateway``: the same as the command ``gateway``."""

from gateway.cli import main

if __name__ == "__main__":
    main()
