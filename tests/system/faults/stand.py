"""Everything as processes that can be killed: stores, gateway and portal."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from retrieval.ingest.identity import thread_id
from tests.gateway.cli.made import ROOT, clean, environment, gateway
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import Record, thread, unit
from tests.system.faults.asking import Seen, ask, until

WORLD: tuple[Record, ...] = (
    thread("thread/returns", "Returning goods"),
    unit("law/returns", "Goods may be returned within thirty days.", thread="thread/returns"),
    unit("faq/shipping", "Shipping takes two days."),
)
PACK = f"/v1/threads/{thread_id('thread/returns')}/pack"


@dataclass(slots=True)
class Portal:
    """The upstream's process; killed and started again at the same port."""

    process: subprocess.Popen[str]
    port: int

    @classmethod
    def start(cls, port: int = 0) -> Portal:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.faults.portal", str(port)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        return cls(process, int(process.stdout.readline()))

    def asked(self) -> None:
        """Return when a question has arrived that will not be answered."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "asked\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def again(self) -> None:
        self.process = self.start(self.port).process


@dataclass(slots=True)
class Stand:
    """A gateway that serves, over stores and a portal that the test may kill."""

    process: subprocess.Popen[str]
    url: str
    admin_url: str
    portal: Portal
    issuers: Issuers
    config: Path
    log: list[str] = field(default_factory=list)

    def get(self, target: str, who: str = "customer", **more: object) -> Seen:
        return ask(self.url, target, self.issuers.token(who) if who else "", **more)  # type: ignore[arg-type]

    def retrieve(self, query: str, **more: object) -> Seen:
        body = json.dumps({"query": query, **more}).encode()
        return self.get("/v1/retrieve", method="POST", body=body)

    def guarded(self) -> dict[str, Callable[[], Seen]]:
        """A question of every guarded route, and of every way that retrieval takes."""
        return {
            "scope": partial(self.get, "/v1/scope"),
            "unit": partial(self.get, "/v1/units/law/returns"),
            "hidden": partial(self.get, "/v1/units/law/nothing"),
            "pack": partial(self.get, PACK),
            "keyword": partial(self.retrieve, "returning goods"),
            "raw": partial(self.retrieve, "shipping", mode="raw"),
        }

    def ready(self) -> tuple[int, str]:
        found = httpx.get(f"{self.admin_url}/readyz", trust_env=False, timeout=20)
        return found.status_code, str(found.json()["status"])

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@contextmanager
def standing(
    pair: Embedded,
    tmp_path: Path,
    *arguments: str,
    settings: str = "",
    limits: str = "",
    telemetry: str = "",
    world: bool = False,
    database: Database | None = None,
) -> Iterator[Stand]:
    """A gateway over this pair, with a portal and, if wanted, something to retrieve.

    ``database`` is one of this pair that is the test's own; without it the pair's only one.
    """
    issuers = Issuers()
    issuers.write(tmp_path / "overlay")
    policy = tmp_path / "policy"
    shutil.copytree(DEFAULT_FOLDER, policy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copytree(tmp_path / "overlay", policy, dirs_exist_ok=True)
    if database is None:
        database = Database(url=pair.database_url, secret=pair.database_secret, name="gateway")
    env = environment(pair, database, tmp_path) | {"GATEWAY_POLICY": str(policy)}
    portal = Portal.start()
    config = Path(env["GATEWAY_CONFIG"])
    config.write_text(
        f"{config.read_text()}{telemetry}\n"
        + f'[upstreams.customer-portal]\naddress = "http://127.0.0.1:{portal.port}"\n'
        + f"breaker_open_ms = 500\n{settings}\n[limits]\n{limits}\n"
    )
    with ExitStack() as stack:
        stack.callback(portal.kill)
        stand = stack.enter_context(_serving(env, arguments, portal, issuers))
        if world:
            file = tmp_path / "records.jsonl"
            file.write_text("".join(f"{json.dumps(one)}\n" for one in WORLD))
            ended = gateway("ingest", str(file), "--mapping", "native", **env)
            assert ended.code == 0, ended.lines
            until(lambda: stand.ready() == (200, "ready"), "readiness")
        yield stand
        portal = stand.portal


@contextmanager
def _serving(
    env: dict[str, str], arguments: tuple[str, ...], portal: Portal, issuers: Issuers
) -> Iterator[Stand]:
    config = Path(env["GATEWAY_CONFIG"])
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--no-embedded", *arguments],
        env=clean() | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    log = [told]
    while told.startswith("{"):  # a warning of one of several workers
        log.append(told := process.stderr.readline())
    rest = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
    rest.start()
    try:
        assert told.startswith("gateway: listening on "), (told, log)
        words = told.split()
        yield Stand(process, words[3], words[6].rstrip(")"), portal, issuers, config, log)
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        rest.join(10)
        process.stderr.close()
