"""The published schema of a pack: the file is the code's, and packs are what it says."""

from __future__ import annotations

import json

from hypothesis import given

from retrieval.context_pack import FIFTEEN, Pack
from retrieval.pack.gather import Member
from retrieval.pack.schema import FILE, VERSION, pack_schema, text
from tests.retrieval.pack.materials import members
from tests.retrieval.pack.test_pack import made_of


def test_the_published_schema_is_that_of_the_code() -> None:
    """Run `python -m retrieval.pack.schema` when this fails; a new version if readers must know."""
    assert FILE.read_text(encoding="utf-8") == text()


def test_the_schema_names_its_version_and_wants_all_fifteen_keys() -> None:
    """Mandated by seed 4.4: minimum fields, always there, null or not."""
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    assert schema["$id"].endswith(f":{VERSION}")
    assert set(FIFTEEN) <= set(schema["required"])
    assert schema["additionalProperties"] is False


@given(listed=members)
def test_a_pack_has_exactly_the_keys_of_the_schema(listed: list[Member]) -> None:
    """What is sent is what was published, one level down as well."""
    schema = pack_schema()
    sent = made_of(*listed).model_dump(mode="json")
    assert sent.keys() == schema["properties"].keys() == Pack.model_fields.keys()
    for unit in sent["canonical_units"]:
        assert unit.keys() == schema["$defs"]["UnitRef"]["properties"].keys()
    if sent["cut"] is not None:
        assert sent["cut"].keys() == schema["$defs"]["Cut"]["properties"].keys()
