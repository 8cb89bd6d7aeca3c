"""The retrievers for other frameworks, against a running gateway, and the published contract.

The libraries have an environment of their own (`make clients`); where it is missing the tests
that need it are skipped, in CI they fail.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.clients.api import Gateway, GatewayRefused
from gateway.surfaces.openapi import FILE
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import Composed, composed
from tests.system.test_consumer import WORLD

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
QUERY = "returning goods"


def python() -> Path:
    """The environment with the libraries. Skips where there is none; fails in CI."""
    if not PYTHON.exists():
        message = "the clients' libraries are not installed: `make clients`"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return PYTHON


async def asked(stage: Composed, library: str, who: str) -> dict[str, Any]:
    """What a library's retriever got, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(python(), "-m", "tests.system.clients.ask", library, stage.gateway.url, QUERY),
        cwd=ROOT,
        env={"NO_PROXY": "*", "HOME": str(stage.scratch), "PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate(stage.issuers.token(who).encode())
    assert process.returncode == 0, err.decode()
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.timeout(180)
@pytest.mark.parametrize("library", ["langchain", "llamaindex"])
def test_a_retriever_gets_what_its_caller_may_read_with_citations(
    services: Embedded, database: Database, tmp_path: Path, library: str
) -> None:
    """Mandated by issue 5, part 10: the same units as over HTTP, and citations that hold."""
    python()

    async def main() -> None:
        env = environment(services, database, tmp_path)
        async with composed(env, Issuers(), tmp_path) as stage:
            await stage.ingest(*WORLD)
            await stage.indexed()
            for who in ("customer", "employee"):
                pack = (await stage.retrieve(QUERY, who)).json["packs"][0]
                answer = await asked(stage, library, who)
                assert answer["refused"] == [401, "unauthenticated"]
                for found in answer["found"]:
                    order = [one["metadata"]["canonical_address"] for one in found]
                    steps = pack["recommended_reading_order"]
                    assert order == [step["canonical_address"] for step in steps]
                    assert ("sop/returns" in order) == (who == "employee")
                    await _citations_hold(stage, found, who)

    asyncio.run(main())


async def _citations_hold(stage: Composed, found: list[dict[str, Any]], who: str) -> None:
    cited = ("pack_id", "canonical_address", "source_revision")
    claims = [{"citations": [{name: one["metadata"][name] for name in cited}]} for one in found]
    gaps = [gap["artifact_id"] for one in found for gap in one["metadata"]["known_gaps"]]
    checked = await stage.post(
        "/v1/answers/check", {"claims": claims, "surfaced": sorted(set(gaps))}, who
    )
    assert checked.json["verdict"] == "accepted"


def test_the_document_is_valid_openapi() -> None:
    """By the specification's own schema, with every reference resolved."""
    line = [str(python()), "-m", "openapi_spec_validator", str(FILE)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("url", ["http://gateway.example", "ftp://localhost", "gateway.example"])
def test_a_token_goes_over_tls_or_stays_on_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Gateway(url=url, token=str)


class Elsewhere(BaseHTTPRequestHandler):
    """A server that sends everybody elsewhere: to itself, by another path."""

    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.send_response(307)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keeps the terminal quiet."""


def test_a_redirect_is_a_refusal_and_is_not_followed() -> None:
    """Never an empty list; and the token goes to one address only."""
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        gateway = Gateway(url=f"http://127.0.0.1:{server.server_port}", token=lambda: "secret")
        try:
            with pytest.raises(GatewayRefused) as refused:
                gateway.retrieve("anything")
        finally:
            server.shutdown()
            serving.join()
    assert (refused.value.status, refused.value.code) == (307, "")
    assert Elsewhere.paths == ["/v1/retrieve"]
    assert "secret" not in repr(gateway)
