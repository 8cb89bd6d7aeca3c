"""The published form is the table of fields: the JSON Schema's file and the README's table."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions.fields import CONTAINERS, FIELDS, REDACTABLE
from gateway.decisions.redaction import Redaction
from gateway.decisions.schema import FILE, schema, text
from gateway.decisions.writing import values_of
from policies.snapshot import Snapshot
from tests.gateway.decisions.made import requests
from tests.json_schema import fits

README = Path(__file__).parents[3] / "gateway" / "README.md"


def test_the_published_file_is_the_one_that_the_code_makes() -> None:
    """``python -m gateway.decisions.schema`` writes it anew."""
    assert FILE.read_text(encoding="ascii") == text()
    assert json.loads(text()) == schema()


@given(st.data())
def test_every_written_record_fits_the_published_schema(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Masked and dropped ones included."""
    paths = st.lists(st.sampled_from((*REDACTABLE, *CONTAINERS)), max_size=5)
    redaction = Redaction(
        mask=data.draw(paths), drop=data.draw(paths), key=data.draw(st.sampled_from(["", "k"]))
    )
    record = redaction.applied(values_of(data.draw(requests(snapshot)), sampled=0.5))
    assert fits(schema(), record)
    assert not fits(schema(), record | {"title": "x"})


def test_every_field_is_documented_with_its_form_and_meaning() -> None:
    """The README's table, row by row."""
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| (\w+)( \*)? \| (.+) \|$", README.read_text(), re.MULTILINE
    )
    assert [(path, form, star != "", meaning) for path, form, star, meaning in rows] == [
        (one.path, str(one.form), one.fixed, one.meaning) for one in FIELDS
    ]
