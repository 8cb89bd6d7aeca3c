"""The decision log of the composed gateway: complete where it must be, silent about content.

Provenance: issue 3 item 7. Ratio 0 and a rate of one a second are the hardest settings: every
denial of a unit is there all the same. A canary stands wherever a caller or a source can put
words; it is in no sink. Answers are the same bytes with and without the log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from gateway.decisions.reader import read_records
from gateway.decisions.record import DecisionRecord
from gateway.decisions.sampling import kept
from policies.decision import Effect
from retrieval.embedded import Embedded
from retrieval.ingest.identity import thread_id, unit_id
from tests.gateway.cli.made import environment
from tests.gateway.decisions.test_sinks import plain, told
from tests.gateway.telemetry.collector import collector
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import Composed, Record, Reply, composed, thread, unit

CANARY = "zirconium-heron"
HIDDEN = "law/hidden-zirconium-heron"
OPEN = "law/open-zirconium-heron"
HIDING = {"visibility": "internal"}
WORLD: tuple[Record, ...] = (
    thread("thread/zirconium-heron", f"Returning goods {CANARY}"),
    unit(
        OPEN,
        f"Goods may be returned within thirty days {CANARY}.",
        title=f"Returns {CANARY}",
        thread="thread/zirconium-heron",
    ),
    unit(
        HIDDEN,
        f"Returning goods: the limit is {CANARY}.",
        title=f"Limit {CANARY}",
        thread="thread/zirconium-heron",
        **HIDING,
    ),
)
ISSUERS = Issuers()


@pytest.fixture
def env(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    return environment(services, database, tmp_path)


def configured(env: dict[str, str], telemetry: str = "", **settings: object) -> None:
    """Add a decision log to the settings' file."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    path = Path(env["GATEWAY_CONFIG"])
    path.write_text(path.read_text() + telemetry + "\n".join(["[decision_log]", *lines, ""]))


def play(env: dict[str, str], tmp_path: Path, scene: Callable[[Composed], Awaitable[None]]) -> None:
    async def main() -> None:
        async with composed(env, ISSUERS, tmp_path) as stage:
            await scene(stage)

    asyncio.run(main())


async def filled(stage: Composed) -> None:
    await stage.ingest(*WORLD)
    await stage.indexed()


async def everything(stage: Composed, who: str) -> list[Reply]:
    """Every kind of question, with a canary in each place for words."""
    query = f"returning goods limit {CANARY}"
    headers = {"user-agent": CANARY, "x-request-id": CANARY, "traceparent": CANARY}
    return [
        await stage.raw(query, who),
        await stage.retrieve(query, who, thread="thread/zirconium-heron"),
        await stage.retrieve(query, who, purpose="zirconium"),
        await stage.get(f"/v1/threads/{thread_id('thread/zirconium-heron')}/pack", who, **headers),
        await stage.get(f"/v1/units/{OPEN}", who),
        await stage.get(f"/v1/units/{HIDDEN}", who),
        await stage.get(f"/v1/units/law/absent-{CANARY}", who, **headers),
        await stage.get(f"/v1/scope?audience={CANARY}", who),
        await stage.get("/v1/scope", who),
        await stage.get(f"/{CANARY}", who),
    ]


async def of(stage: Composed, file: Path) -> dict[str, DecisionRecord]:
    """Every record so far, by request id."""
    await asyncio.to_thread(stage.gateway.telemetry.flush)
    text = await asyncio.to_thread(file.read_text)
    found = list(read_records(text.splitlines()))
    assert len({one.request_id for one in found}) == len(found)
    return {one.request_id: one for one in found}


def ids(replies: Sequence[Reply]) -> set[str]:
    return {reply.request_id for reply in replies}


def test_every_denial_of_a_unit_is_recorded_and_no_word_of_anybody(
    env: dict[str, str], tmp_path: Path
) -> None:
    """Ratio 0, one record a second; a payload relabelled by hand makes real leaks to withhold."""
    file = tmp_path / "decisions.jsonl"

    async def scene(stage: Composed) -> None:
        await filled(stage)
        await stage.relabel([HIDDEN], {"class_id": await stage.class_of(OPEN)})
        asked = [reply for who in ("customer", "partner") for reply in await everything(stage, who)]
        token = ISSUERS.token("customer", sub=CANARY, groups=[CANARY], tenant=CANARY)
        bearer = {"authorization": f"Bearer {token}"}
        await stage.client.get(f"{stage.gateway.url}/v1/scope", headers=bearer)
        found = await of(stage, file)
        events = await stage.events()
        assert len(events) >= 2
        for event in events:
            record = found[event["request_id"]]
            assert record.units.denied == event["unit_count"]
            assert (record.trace_id, record.policy_digest) == (
                event["trace_id"],
                event["policy_digest"],
            )
        named = [asked[place] for place in (5, 6, 15, 16)]  # hidden and absent units by name
        assert {one.status for one in named} == {404}
        assert ids(named) <= found.keys()
        assert not [
            one for one in found.values() if one.effect is Effect.ALLOW and not one.units.denied
        ]

    with collector() as (address, bodies):
        configured(
            env,
            telemetry=f'otlp_endpoint = "{address}"\nsample_ratio = 0.0\n',
            file=str(file),
            otlp=True,
            sample_ratio=0.0,
            rate_max=1,
        )
        play(env, tmp_path, scene)
    lines = file.read_text()
    assert lines.count("\n") >= 6
    sent = [
        plain(one.body)
        for body in bodies["/v1/logs"]
        for one in told(body)
        if one.event_name == "audience-gateway.decision"
    ]
    assert sent == [json.loads(line) for line in lines.splitlines()]
    for forbidden in ("zirconium", "heron", "eturning", str(unit_id(HIDDEN)), "127.0.0.1", "law/"):
        assert forbidden not in lines
        assert forbidden not in json.dumps(sent)
    assert CANARY.encode() not in b"".join(bodies["/v1/logs"])


def test_allows_follow_the_ratio_by_their_request_id(env: dict[str, str], tmp_path: Path) -> None:
    """Anybody who knows the ids can say which are in it; each says its ratio."""
    file = tmp_path / "decisions.jsonl"
    configured(env, file=str(file), sample_ratio=0.3)

    async def scene(stage: Composed) -> None:
        replies = [await stage.get("/v1/scope") for _ in range(60)]
        refused = [await stage.get("/v1/scope?x=1") for _ in range(3)]
        found = await of(stage, file)
        assert found.keys() - ids(refused) == {one for one in ids(replies) if kept(one, 0.3)}
        assert ids(refused) <= found.keys()
        assert {one.sampled for one in found.values()} == {0.3, 1.0}
        assert all(one.rules == ("A-CUS-1", "R-SCOPE-1") for one in found.values() if one.rules)

    play(env, tmp_path, scene)


def test_no_byte_of_an_answer_depends_on_the_log(env: dict[str, str], tmp_path: Path) -> None:
    """Off; on with masks, drops and a file; on with a disk that takes nothing: same answers."""
    answers: list[list[object]] = []

    async def scene(stage: Composed) -> None:
        if not answers:
            await filled(stage)
            await stage.relabel([HIDDEN], {"class_id": await stage.class_of(OPEN)})
        asked = [
            reply for who in ("customer", "employee") for reply in await everything(stage, who)
        ]
        answers.append([reply.same for reply in asked])

    play(env, tmp_path, scene)
    plain_settings = Path(env["GATEWAY_CONFIG"]).read_text()
    configured(
        env,
        file=str(tmp_path / "decisions.jsonl"),
        mask=["claims", "classes"],
        drop=["issuer", "units"],
        mask_key="key",
        queue_max=1,
        rate_max=1,
    )
    play(env, tmp_path, scene)
    if Path("/dev/full").exists():
        Path(env["GATEWAY_CONFIG"]).write_text(plain_settings)
        configured(env, file="/dev/full")
        play(env, tmp_path, scene)
    assert all(one == answers[0] for one in answers)
    assert len(answers) >= 2
