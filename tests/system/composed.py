"""The composed gateway on the shared stores, in this process: real listeners, tokens and roles.

Nothing is scripted: a test changes the stores behind the gateway's back and asks by HTTP.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg

from gateway.compose.embedding import open_embedder
from gateway.compose.filling import ingest_into
from gateway.compose.running import Running, running
from gateway.settings.model import Settings
from gateway.settings.reading import load
from policies.mapping import IngestMapping
from retrieval.ingest import Report
from retrieval.ingest.identity import unit_id
from retrieval.stores import thread_index
from tests.gateway.tokens import Issuers
from tests.system.steady import steady

AUDIENCES = ("customer", "partner", "employee", "agent")
WORKER_LOCK = 0x67_77_5F_69_6E_64_65_78
PUBLIC = {
    "visibility": "public",
    "readiness": "published",
    "publication_state": "published",
    "risk_class": "standard",
    "authority": "enacted",
    "kind": "faq",
}
"""What every audience may read."""
WAIT_SECONDS = 30.0

Record = Mapping[str, Any]


def unit(address: str, body: str, **changes: object) -> Record:
    """A native record; a change to ``...`` takes the field away."""
    record = {
        "sort": "unit",
        "address": address,
        "title": f"About {address.replace('/', ' ')}",
        "body": body,
        "lifecycle_stage": "other",
        "tenant": "*",
        "jurisdiction": "*",
        **PUBLIC,
        **changes,
    }
    return {name: value for name, value in record.items() if value is not ...}


def thread(address: str, title: str) -> Record:
    compartments = {"tenant": "*", "jurisdiction": "*"}
    label = PUBLIC | {"kind": "thread"} | compartments
    return {"sort": "thread", "address": address, "title": title, **label}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; ``same`` is what may not depend on anything hidden (all but date and random
    ids)."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def same(self) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
        kept = tuple(
            sorted((k, v) for k, v in self.headers.items() if k not in {"x-request-id", "date"})
        )
        return self.status, self.steady, kept

    @property
    def steady(self) -> bytes:
        """The body, less ids and times that each answer draws anew."""
        return steady(self.body, self.request_id)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


@dataclass(frozen=True, slots=True)
class Composed:
    """A running gateway with a caller of each audience, and hands on its stores."""

    gateway: Running
    settings: Settings
    issuers: Issuers
    client: httpx.AsyncClient
    scratch: Path

    # --- asking ---------------------------------------------------------------------------

    async def get(self, target: str, who: str = "customer", **headers: str) -> Reply:
        return await self._send("GET", target, who, None, headers)

    async def raw(self, query: str, who: str = "customer", **more: object) -> Reply:
        """The vector path, whatever threads there are."""
        return await self.retrieve(query, who, mode="raw", **more)

    async def retrieve(self, query: str, who: str = "customer", **more: object) -> Reply:
        return await self.post("/v1/retrieve", {"query": query, **more}, who)

    async def post(self, target: str, body: object, who: str = "customer", **headers: str) -> Reply:
        return await self._send("POST", target, who, body, headers)

    async def _send(
        self, method: str, target: str, who: str, body: Any, headers: Mapping[str, str]
    ) -> Reply:
        bearer = {"authorization": f"Bearer {self.issuers.token(who)}", **headers}
        found = await self.client.request(
            method, f"{self.gateway.url}{target}", json=body, headers=bearer, timeout=30
        )
        return Reply(found.status_code, found.content, dict(found.headers))

    async def ready(self) -> tuple[int, dict[str, str]]:
        found = await self.client.get(f"{self.gateway.admin_url}/readyz")
        return found.status_code, found.json()["checks"]

    # --- changing the world ---------------------------------------------------------------

    async def ingest(self, *records: Record, mapping: IngestMapping | None = None) -> Report:
        """As ``gateway ingest`` does it; does not wait for the index."""
        file = self.scratch / "records.jsonl"
        file.write_text("".join(f"{json.dumps(one)}\n" for one in records))
        return await self.ingest_path(file, mapping=mapping)

    async def ingest_path(self, path: Path, *, mapping: IngestMapping | None = None) -> Report:
        chosen = mapping or self.gateway.snapshot.mappings["native"]
        model = open_embedder(self.settings)
        return await asyncio.to_thread(ingest_into, self.gateway.stores, path, chosen, model)

    async def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Something that the product never does, as the database's superuser."""
        url = self.gateway.stores.database_url
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
            cursor = await admin.execute(statement.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def indexed(self) -> None:
        """Return when the gateway's own worker has carried everything over, and made what
        threads are found by."""
        deadline = time.monotonic() + WAIT_SECONDS
        pending = "select 1 from brain.outbox where done_at is null limit 1"
        model = open_embedder(self.settings).name
        url = self.gateway.stores.database_url
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
            while await self.sql(pending) or await thread_index.waiting(admin, model):
                assert time.monotonic() < deadline, "the outbox is not worked off"
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def worker_held_back(self) -> AsyncIterator[None]:
        """The outbox stays as it is: somebody else holds the writer's lock."""
        url = self.gateway.stores.database_url
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
            await admin.execute("select pg_advisory_lock(%s)", [WORKER_LOCK])
            yield

    async def relabel(
        self, addresses: Iterable[str], payload: Mapping[str, object], *, whole: bool = False
    ) -> None:
        """Change payloads by hand, through the index's REST interface; or replace them."""
        key = {"api-key": self.gateway.stores.qdrant_api_key}
        url, name = self.gateway.stores.qdrant_url, self.settings.qdrant.collection
        answer = await self.client.request(
            "PUT" if whole else "POST",
            f"{url}/collections/{name}/points/payload?wait=true",
            json={"payload": payload, "points": [str(unit_id(one)) for one in addresses]},
            headers=key,
        )
        assert answer.status_code == 200, answer.text

    # --- what operators see ---------------------------------------------------------------

    async def events(self, *replies: Reply) -> list[dict[str, Any]]:
        """The journal's rows of these requests (of all, without any), oldest first.

        Each with its escalations and contract rows counted.
        """
        rows = await self.sql(
            "select kind, severity, layer, action, audience, route, unit_ids, unit_count,"
            " request_id, trace_id, policy_digest,"
            " (select count(*) from gate.escalation x where x.event_id = e.id),"
            " (select count(*) from gate.consumer_contract_log l where l.event_id = e.id)"
            " from gate.security_event e"
            " where %s or request_id = any(%s) order by occurred_at",
            not replies,
            [reply.request_id for reply in replies],
        )
        names = ("kind", "severity", "layer", "action", "audience", "route", "unit_ids",
                 "unit_count", "request_id", "trace_id", "policy_digest", "escalations",
                 "contract")  # fmt: skip
        return [dict(zip(names, row, strict=True)) for row in rows]

    async def span(self, request_id: str) -> dict[str, Any]:
        """The exported span of one request."""
        await asyncio.to_thread(self.gateway.telemetry.flush)
        file = self.settings.telemetry.trace_file
        assert file is not None
        spans = [json.loads(line) for line in file.read_text().splitlines()]
        (found,) = [s for s in spans if s["attributes"]["gateway.request_id"] == request_id]
        return dict(found)

    async def class_of(self, address: str) -> int:
        ((class_id,),) = await self.sql(
            "select class_id from brain.unit where canonical_address = %s", address
        )
        return int(class_id)


@asynccontextmanager
async def composed(
    env: Mapping[str, str], issuers: Issuers, scratch: Path, *, mapping: str = ""
) -> AsyncIterator[Composed]:
    """A gateway with the settings of ``env``, believing ``issuers``.

    ``mapping`` is the YAML of one more ingest mapping of its policy.
    """
    overlay = scratch / "overlay"
    if not overlay.exists():
        issuers.write(overlay)
    if mapping:
        (overlay / "mappings").mkdir(exist_ok=True)
        (overlay / "mappings" / "more.yaml").write_text(mapping)
    settings = load(None, {"GATEWAY_TRACE_FILE": str(scratch / "spans.jsonl"), **env})
    async with (
        running(settings, overlay=overlay, embedded=False) as gateway,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        yield Composed(gateway, settings, issuers, client, scratch)


def ids_of(addresses: Iterable[str]) -> list[UUID]:
    return sorted(map(unit_id, addresses))
