"""Every facet of a visible unit corrupted eight ways, by every way in: nobody sees more.

Provenance: the issue's "Must hold"; promise G1 (absent, null, unknown, empty = deny).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from policies.vocabulary import FACETS
from retrieval.embedded import Embedded
from retrieval.ingest.identity import unit_id
from tests.gateway.cli.made import environment
from tests.gateway.tokens import Issuers
from tests.services import Database
from tests.system.composed import AUDIENCES, PUBLIC, Composed, Record, composed, thread, unit

WAYS = ("missing", "null", "empty", "mis-cased", "padded", "list", "object", "unknown")
CASES = tuple((facet, way) for facet in FACETS for way in WAYS)
AT_ONCE = 8
QUERY = "corruptible"

Visible = Mapping[str, frozenset[str]]


def spoilt(good: Any, way: str, *, unknown: Any = "everyone") -> Any:
    """``good`` corrupted in one of the eight ways; ``...`` stands for a field that is gone."""
    words: dict[str, Any] = {
        "missing": ...,
        "null": None,
        "empty": "",
        "mis-cased": str(good).upper() if str(good).upper() != str(good) else f"{good}x",
        "padded": f" {good} ",
        "list": [good],
        "object": {"value": good},
        "unknown": unknown,
    }
    return words[way]


def record(address: str, **changes: object) -> Record:
    return unit(address, f"This text is {QUERY}: {address}.", **changes)


@pytest.fixture
def env(services: Embedded, database: Database, tmp_path: Path) -> dict[str, str]:
    return environment(services, database, tmp_path)


def play(
    env: dict[str, str],
    tmp_path: Path,
    scene: Callable[[Composed], Awaitable[None]],
    *,
    mapping: str = "",
) -> None:
    async def main() -> None:
        async with composed(env, Issuers(), tmp_path, mapping=mapping) as stage:
            await scene(stage)

    asyncio.run(main())


async def by_address(stage: Composed, addresses: Iterable[str]) -> Visible:
    """Which of these units each audience gets when it asks for them by address."""
    few = asyncio.Semaphore(AT_ONCE)

    async def seen(who: str, address: str) -> bool:
        async with few:
            reply = await stage.get(f"/v1/units/{address}", who)
        assert reply.status in {200, 404}, reply
        return reply.status == 200

    asked = sorted(addresses)
    found = {}
    for who in AUDIENCES:
        answers = await asyncio.gather(*(seen(who, one) for one in asked))
        found[who] = frozenset(a for a, yes in zip(asked, answers, strict=True) if yes)
    return found


async def by_search(stage: Composed, addresses: Iterable[str]) -> Visible:
    """Which of these units each audience finds."""
    names = {str(unit_id(one)): one for one in addresses}
    found = {}
    for who in AUDIENCES:
        reply = await stage.raw(QUERY, who, k=50)
        assert reply.status == 200
        packs = json.loads(reply.body)["packs"]
        shown = {one["unit_id"] for pack in packs for one in pack["canonical_units"]}
        shown |= {one["unit_id"] for pack in packs for one in pack["supporting_units"]}
        assert all(one in reply.body.decode() for one in shown)
        found[who] = frozenset(name for one, name in names.items() if one in reply.body.decode())
    return found


def none_of(addresses: Iterable[str], visible: Visible) -> None:
    for who, shown in visible.items():
        assert not shown & set(addresses), who


async def quarantined(stage: Composed) -> set[str]:
    rows = await stage.sql("select address from brain.quarantine where resolved_at is null")
    return {address for (address,) in rows}


def test_corrupt_records_take_sight_away_and_are_listed(
    env: dict[str, str], tmp_path: Path
) -> None:
    """JSON lines in our own words; in a public thread, from which a blank could be filled."""
    changed = {f"c/{facet}/{way}": (facet, way) for facet, way in CASES}
    born = {f"b/{facet}/{way}": (facet, way) for facet, way in CASES}

    async def scene(stage: Composed) -> None:
        await stage.ingest(
            thread("thread/c", "Corruptible things"),
            record("control"),
            *(record(address, thread="thread/c") for address in changed),
        )
        before = await by_address(stage, changed)
        assert set(before.values()) == {frozenset(changed)}
        report = await stage.ingest(
            *(
                record(address, thread="thread/c", **{facet: spoilt(PUBLIC[facet], way)})
                for address, (facet, way) in (changed | born).items()
            )
        )
        assert report.quarantined == len(changed) + len(born)
        none_of(changed | born, await by_address(stage, changed | born))
        await stage.indexed()
        for visible in (
            await by_search(stage, [*changed, *born, "control"]),
            await by_address(stage, ["control"]),
        ):
            assert set(visible.values()) == {frozenset({"control"})}
        assert set(changed | born) <= await quarantined(stage)
        assert await stage.events() == []

    play(env, tmp_path, scene)


MAPPING = "\n".join(
    [
        "name: more",
        "fields:",
        *(f"  my_{facet}: {{sort: word, words: [good, other]}}" for facet in FACETS),
        "rules:",
        *(
            f"  - {{when: {{my_{facet}: good}}, set: {{{facet}: {word}}}}}"
            for facet, word in PUBLIC.items()
        ),
        "  - {when: always, set: {lifecycle_stage: other}}",
        "tenant: {value: '*'}",
        "jurisdiction: {value: '*'}",
        "",
    ]
)
IN_YAML = {
    "missing": "",
    "null": "my_{facet}: ~",
    "empty": "my_{facet}: ''",
    "mis-cased": "my_{facet}: GOOD",
    "padded": "my_{facet}: ' good '",
    "list": "my_{facet}: [good]",
    "object": "my_{facet}: {{value: good}}",
    "unknown": "my_{facet}: everyone",
}


def test_corrupt_front_matter_takes_sight_away_and_is_listed(
    env: dict[str, str], tmp_path: Path
) -> None:
    """A folder of Markdown in the source's own words, through a mapping."""
    cases = {f"m/{facet}/{way}": (facet, way) for facet, way in CASES}
    folder = tmp_path / "notes"
    folder.mkdir()

    def write(corrupt: bool) -> None:
        for address, (facet, way) in cases.items():
            lines = {one: f"my_{one}: good" for one in FACETS}
            if corrupt:
                lines[facet] = IN_YAML[way].format(facet=facet)
            front = "\n".join(filter(None, lines.values()))
            text = f"---\naddress: {address}\ntitle: A note\n{front}\n---\n{QUERY} {address}\n"
            (folder / f"{facet}-{way}.md").write_text(text)

    async def scene(stage: Composed) -> None:
        mapping = stage.gateway.snapshot.mappings["more"]
        write(corrupt=False)
        await stage.ingest_path(folder, mapping=mapping)
        assert set((await by_address(stage, cases)).values()) == {frozenset(cases)}
        write(corrupt=True)
        report = await stage.ingest_path(folder, mapping=mapping)
        assert report.quarantined == len(cases)
        none_of(cases, await by_address(stage, cases))
        await stage.indexed()
        none_of(cases, await by_search(stage, cases))
        assert set(cases) <= await quarantined(stage)

    play(env, tmp_path, scene, mapping=MAPPING)


def test_a_corrupt_payload_shows_nothing_more(env: dict[str, str], tmp_path: Path) -> None:
    """Class and compartments of points changed by hand, those of hidden units included.

    What a corrupt payload of a hidden unit makes the index offer is refused and an event: an
    engine matches a list by its elements.
    """
    hiding = {
        "class_id": {"visibility": "internal"},
        "tenant": {"tenant": "elsewhere"},
        "jurisdiction": {"jurisdiction": "elsewhere"},
    }
    cases = {f"{key}/{way}": (key, way) for key in hiding for way in WAYS}
    visible, hidden = [f"v/{one}" for one in cases], [f"h/{one}" for one in cases]
    everything = ["control", *visible, *hidden]

    async def scene(stage: Composed) -> None:
        await stage.ingest(
            record("control"),
            *(record(f"v/{one}") for one in cases),
            *(record(f"h/{one}", **hiding[key]) for one, (key, _) in cases.items()),
        )
        await stage.indexed()
        before = await by_search(stage, everything)
        assert before["customer"] == {"control", *visible}
        good = {"class_id": await stage.class_of("control"), "tenant": "*", "jurisdiction": "*"}
        for one, (key, way) in cases.items():
            word = {key: spoilt(good[key], way, unknown=_unknown(key))}
            for address in (f"v/{one}", f"h/{one}"):
                payload = good | {"unit_id": str(unit_id(address)), "revision": 1} | word
                kept = {name: value for name, value in payload.items() if value is not ...}
                await stage.relabel([address], kept, whole=True)
        after = await by_search(stage, everything)
        for who, shown in after.items():
            assert shown <= before[who], who
            assert "control" in shown
        offered = {one for event in await stage.events() for one in event["unit_ids"]}
        assert offered <= {unit_id(address) for address in hidden}
        assert {unit_id(f"h/{key}/list") for key in hiding} <= offered

    play(env, tmp_path, scene)


def _unknown(key: str) -> object:
    return 32_000 if key == "class_id" else "everyone"


def test_words_changed_in_the_database_show_nothing_more(
    env: dict[str, str], tmp_path: Path
) -> None:
    """By SQL, as the database's owner would: class -1 and a quarantine row, by trigger."""
    cases = {f"s/{facet}/{way}": (facet, way) for facet, way in CASES}
    hidden = {f"h/{way}": way for way in WAYS}

    async def scene(stage: Composed) -> None:
        await stage.ingest(
            record("control"),
            *(record(address) for address in cases),
            *(record(address, visibility="internal") for address in hidden),
        )
        everything = [*cases, *hidden, "control"]
        before = await by_address(stage, everything)
        assert set(cases) <= before["customer"]
        assert not set(hidden) & before["customer"]
        for address, (facet, way) in cases.items():
            word = in_sql(spoilt(PUBLIC[facet], way))
            await stage.sql(
                f"update brain.unit set {facet} = %s where canonical_address = %s", word, address
            )
        for address, way in hidden.items():
            word = in_sql(spoilt("public", way))
            await stage.sql(
                "update brain.unit set visibility = %s where canonical_address = %s", word, address
            )
        after = await by_address(stage, everything)
        none_of([*cases, *hidden], after)
        await stage.indexed()
        found = await by_search(stage, everything)
        assert set(found.values()) == {frozenset({"control"})}
        assert {*cases, *hidden} <= await quarantined(stage)
        assert await stage.sql("select 1 from brain.unit where class_id >= 0 offset 1") == []

    play(env, tmp_path, scene)


def in_sql(value: Any) -> str | None:
    """A column holds text: a list or an object can only stand there in writing."""
    if value is ... or value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value)
