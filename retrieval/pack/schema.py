"""The published JSON Schema of a context pack, made from its wire model.

    python -m retrieval.pack.schema       # writes pack.schema.json beside this module

Its ``$id`` carries the version that packs say of themselves (``schema_version``): a change that a
reader of the old version would not understand takes a new one. Draft 2020-12.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from retrieval.context_pack import Pack

FILE: Final = Path(__file__).with_name("pack.schema.json")
VERSION: Final[str] = Pack.model_fields["schema_version"].default


def pack_schema() -> dict[str, Any]:
    """The schema of a pack as it is sent: every field is there."""
    _, shared = models_json_schema([(Pack, "serialization")])
    own = shared["$defs"].pop("Pack")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:audience-gateway:context-pack:{VERSION}",
        **own,
        "$defs": shared["$defs"],
    }


def text() -> str:
    """The schema as it stands in its file."""
    return json.dumps(pack_schema(), indent=1, ensure_ascii=True, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
