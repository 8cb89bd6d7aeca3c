"""The parser that everything else rests on: the C one, or no gateway.

Provenance: attack log row S11 and section 4 (`auto` falls back to a parser that keeps ambiguous
connections open).
"""

from __future__ import annotations

import subprocess
import sys

from tests.gateway.cli.made import clean

WITHOUT = """
import sys
sys.modules["httptools"] = None
sys.argv = ["gateway", "serve", "--no-embedded"]
from gateway.cli import main
main()
"""


def test_gateway_without_its_parser_does_not_start() -> None:
    """S11: one line with the reason and the remedy, and nothing listens."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env=clean(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith("gateway: error: part_missing: `httptools`")
    assert line.endswith("; reinstall the locked requirements")


def test_parser_is_the_compiled_one_and_is_named_not_chosen() -> None:
    """S11: the class is ours over httptools; no `auto`, no h11, no WebSocket library behind it."""
    import httptools

    from gateway.ingress.limits import Limits
    from gateway.ingress.protocol import GuardedProtocol
    from gateway.server import server_for

    config = server_for(None, Limits(), graceful_s=1).config
    assert isinstance(config.http, type)
    assert issubclass(config.http, GuardedProtocol)
    assert httptools.HttpRequestParser.feed_data.__class__.__name__ in {
        "method_descriptor",
        "cython_function_or_method",
    }
