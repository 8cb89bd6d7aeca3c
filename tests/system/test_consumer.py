"""What comes after a pack, over HTTP: answers checked, feedback, packs found again, the listing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from policies.snapshot import DEFAULT_FOLDER
from retrieval.embedded import Embedded
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import PUBLIC, Composed, Record, Reply, composed, thread, unit

WORLD: tuple[Record, ...] = (
    thread("thread/returns", "Returning goods"),
    unit("law/returns", "Goods may be returned within thirty days.", thread="thread/returns"),
    unit("faq/returns", "Returning goods is free of charge.", thread="thread/returns"),
    unit("faq/shipping", "Shipping takes two days."),
    unit("sop/returns", "Clerks accept every parcel.", thread="thread/returns",
         visibility="employee", kind="sop"),
    {"sort": "artifact", "thread": "thread/returns", "title": "Report on returns",
     "lifecycle_stage": "report", "tenant": "*", "jurisdiction": "*", **PUBLIC, "kind": "report"},
)  # fmt: skip


def run(
    act: Callable[[Composed], Awaitable[None]],
    services: Embedded,
    database: Database,
    path: Path,
    issuers: Issuers | None = None,
) -> None:
    """``act`` on a gateway that serves the world."""

    async def main() -> None:
        env = environment(services, database, path)
        async with composed(env, issuers or Issuers(), path) as stage:
            report = await stage.ingest(*WORLD)
            assert not report.reasons
            await stage.indexed()
            await act(stage)

    asyncio.run(main())


def as_other(stage: Composed, who: str = "customer") -> dict[str, str]:
    """The header of somebody else of that audience."""
    return {"authorization": f"Bearer {stage.issuers.token(who, sub='somebody else')}"}


def test_an_answer_is_checked_and_its_breaches_stand_in_the_contract_log(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Mandated by issue 5, part 7: verdicts by claim, breaches without any content."""

    async def act(stage: Composed) -> None:
        pack = (await stage.retrieve("returning goods")).json["packs"][0]
        law = {"pack_id": pack["pack_id"], "canonical_address": "law/returns", "source_revision": 1}
        gaps = [gap["artifact_id"] for gap in pack["known_gaps"]]
        sound = await stage.post(
            "/v1/answers/check", {"claims": [{"citations": [law]}], "surfaced": gaps}
        )
        assert sound.json["verdict"] == "accepted"
        wrong = {**law, "canonical_address": "sop/returns"}
        claims = [{"citations": [law, {**law, "source_revision": 7}]}, {}, {"citations": [wrong]}]
        bad = await stage.post("/v1/answers/check", {"claims": claims})
        assert bad.json["verdict"] == "rejected"
        assert [one["code"] for one in bad.json["claims"]] == [
            "unsupported", "uncited", "unsupported",
        ]  # fmt: skip
        log = await stage.sql(
            "select kind, request_id, event_id, detail - 'subject_hash' - 'policy_digest'"
            " from gate.consumer_contract_log order by kind"
        )
        who = {"audience": "customer", "profile": "customer", "count": 1}
        assert log == [
            (kind, bad.request_id, None, who)
            for kind in ("gap_not_surfaced", "not_delivered", "uncited_claim", "wrong_revision")
        ]
        assert not await stage.events()

    run(act, services, database, tmp_path)


def test_somebody_elses_pack_and_no_pack_get_the_same_bytes(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Mandated by issue 5, part 7: on every operation that names a pack."""

    async def act(stage: Composed) -> None:
        theirs = (await stage.retrieve("returning goods")).json["packs"][0]["pack_id"]
        other = as_other(stage)

        async def asked(pack_id: str) -> list[Reply]:
            cited = {"pack_id": pack_id, "canonical_address": "law/returns", "source_revision": 1}
            return [
                await stage.post(
                    "/v1/answers/check", {"claims": [{"citations": [cited]}]}, **other
                ),
                await stage.post(
                    "/v1/feedback", {"pack_id": pack_id, "kind": "sufficient"}, **other
                ),
                await stage.get(f"/v1/packs/{pack_id}", **other),
            ]

        foreign, absent = await asked(theirs), await asked(str(uuid4()))
        assert [one.same for one in foreign] == [one.same for one in absent]
        assert foreign[0].json["claims"] == [
            {"code": "unsupported", "citations": ["not_delivered"]}
        ]
        assert [(one.status, one.code) for one in foreign[1:]] == [(404, "not_delivered")] * 2
        assert (await stage.get(f"/v1/packs/{theirs}")).json["pack_id"] == theirs
        assert (await stage.get("/v1/packs/nothing-like-an-id")).code == "not_delivered"

    run(act, services, database, tmp_path)


def test_feedback_is_taken_once_and_no_faster_than_it_may(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Mandated by issue 5, part 7: a rate by subject, without any setting."""

    async def act(stage: Composed) -> None:
        pack_id = (await stage.retrieve("returning goods")).json["packs"][0]["pack_id"]
        said = {"pack_id": pack_id, "kind": "noisy_context"}
        replies = [await stage.post("/v1/feedback", said) for _ in range(75)]
        codes = {one.status for one in replies}
        assert codes == {200, 429}
        assert {one.body for one in replies if one.status == 200} == {b'{"recorded":true}'}
        assert "retry-after" in next(one for one in replies if one.status == 429).headers
        assert (await stage.post("/v1/feedback", said, **as_other(stage))).status == 404
        ((rows,),) = await stage.sql(
            "select count(*) from brain.retrieval_metric_event where kind = 'noisy_context'"
        )
        assert rows == 1

    run(act, services, database, tmp_path)


def test_the_listing_goes_on_by_cursor_for_the_same_question_only(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Mandated by issue 5, part 10: bound to subject, scope, filters and digest; never forged."""

    async def act(stage: Composed) -> None:
        found: list[str] = []
        target = "/v1/units?limit=1"
        while True:
            page = (await stage.get(target)).json
            found += [one["canonical_address"] for one in page["units"]]
            if page["next_cursor"] is None:
                break
            target = f"/v1/units?limit=1&cursor={page['next_cursor']}"
        assert found == ["faq/returns", "faq/shipping", "law/returns"]
        cursor = (await stage.get("/v1/units?limit=1")).json["next_cursor"]
        behind = f"/v1/units?limit=200&cursor={cursor}"
        assert len((await stage.get(behind)).json["units"]) == 2
        others = [
            await stage.get(behind, **as_other(stage)),
            await stage.get(behind, "employee"),
            await stage.get(f"{behind}&kind=faq"),
            await stage.get(f"{behind}&purpose=support"),
        ]
        assert [(one.status, one.code) for one in others] == [(409, "cursor_outdated")] * 4
        narrow = await stage.get("/v1/units?limit=1", "employee")
        narrowed = f"/v1/units?audience=customer&cursor={narrow.json['next_cursor']}"
        assert (await stage.get(narrowed, "employee")).code == "cursor_outdated"
        forged = [
            await stage.get(f"/v1/units?cursor={one}")
            for one in (cursor[:-2], cursor[:-1] + "Q", "abc", "A" * 100, "%41%42")
        ]
        assert [(one.status, one.code) for one in forged] == [(400, "bad_query")] * 5
        with_text = await stage.get("/v1/units?text=true&kind=faq")
        assert "Shipping takes two days." in [one["text"] for one in with_text.json["units"]]
        assert (await stage.get("/v1/units")).json["units"][0]["text"] is None

    run(act, services, database, tmp_path)


def test_another_policy_makes_a_cursor_outdated(
    services: Embedded, database: Database, tmp_path: Path
) -> None:
    """Mandated by retrieval failure 21: a cursor never outlives its policy."""

    async def first(stage: Composed) -> None:
        page = await stage.get("/v1/units?limit=1")
        cursors.append(page.json["next_cursor"])
        digests.append(page.headers["x-policy-digest"])

    async def second(stage: Composed) -> None:
        page = await stage.get(f"/v1/units?cursor={cursors[0]}")
        assert page.headers["x-policy-digest"] != digests[0]
        assert (page.status, page.code) == (409, "cursor_outdated")

    cursors: list[str] = []
    digests: list[str] = []
    issuers = Issuers()
    run(first, services, database, tmp_path, issuers)
    overlay = tmp_path / "overlay" / "rules" / "agents.csv"
    shipped = (DEFAULT_FOLDER / "rules" / "agents.csv").read_text()
    overlay.write_text(shipped.replace("answer|summarise, retrieve", "answer, retrieve", 1))
    run(second, services, database, tmp_path, issuers)
