"""Laws of the pure part: whatever a source holds, nothing is lost, guessed or loosened."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.decision import UNCLASSED
from policies.snapshot import Snapshot
from policies.vocabulary import FACETS
from retrieval.ingest.convert import Converter
from retrieval.ingest.items import UnitItem
from retrieval.ingest.report import Reason
from retrieval.ingest.sources import Raw, _line
from tests.peps import mapping
from tests.retrieval.ingest.bench import GOOD, unit

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
names = st.sampled_from(
    ["sort", "id", "title", "sections", "text", "links", "address", "body", "inherit", "thread",
     "keep_label", "role", "status", "type", "topic", "number", *GOOD]
)  # fmt: skip
records = st.dictionaries(names, values | st.sampled_from(["unit", "thread", "Final"]), max_size=14)


@given(record=records)
def test_any_record_becomes_items_or_reasons(record: dict[str, Any], snapshot: Snapshot) -> None:
    """Never an exception, never nothing."""
    for chosen in (snapshot.mappings["native"], mapping(snapshot)):
        assert list(Converter(chosen).items(Raw("s:1", record)))


@given(line=st.binary(max_size=60) | records.map(lambda record: json.dumps(record).encode()))
def test_any_line_is_a_record_or_a_fault(line: bytes) -> None:
    """Bytes of any kind; a fault comes with no fields, a record with all of them."""
    raw = _line(line, "s:1")
    assert raw.fields == ({} if raw.fault else json.loads(line))


@given(facet=st.sampled_from(FACETS), value=values)
def test_a_label_is_the_words_themselves_or_no_class(
    facet: str, value: object, snapshot: Snapshot
) -> None:
    """What is stored is a class only if all six words are ours, exactly as given."""
    record = unit(**{facet: value})
    for item in Converter(snapshot.mappings["native"]).items(Raw("s:1", record)):
        assert isinstance(item, UnitItem)
        assert item.label is not None
        stored = snapshot.vocabulary.class_id(item.label.facets)
        if value in snapshot.vocabulary.live(facet):
            assert stored == snapshot.vocabulary.class_id({**GOOD, facet: value})
        else:
            assert stored == UNCLASSED
            assert item.label.reasons
            assert None not in item.label.facets.values()


@given(status=st.text(max_size=12), kind=st.text(max_size=12))
def test_a_mapped_word_that_is_not_listed_gives_no_class(
    status: str, kind: str, snapshot: Snapshot
) -> None:
    """Even where a later rule would have set something, and even a near miss."""
    chosen = mapping(snapshot)
    document = {"id": "X", "title": "X", "text": "x", "number": 1, "topic": []}
    record = {**document, "status": status, "type": kind}
    known = status in chosen.fields["status"].words and kind in chosen.fields["type"].words
    for item in Converter(chosen).items(Raw("s:1", record)):
        label = getattr(item, "label", None)
        if label is not None and not known:
            assert label.reasons
            assert snapshot.vocabulary.class_id(label.facets) == UNCLASSED
            assert "" in label.facets.values()  # an unknown word stands there: no thread fills it


def test_a_reason_never_holds_a_text(snapshot: Snapshot) -> None:
    """Reports and quarantine rows are read by more people than the documents are."""
    secret = "the body of the document"
    records: list[dict[str, Any]] = [
        unit(body=secret, kind="nonsense"),
        unit(body=[secret]),
        unit(title=[secret]),
        unit(body=secret + "\x00"),
        {"id": "a", "title": "t", "text": {"x": secret}},
    ]
    for record in records:
        for item in Converter(snapshot.mappings["native"]).items(Raw("s:1", record)):
            reasons = item.label.reasons if isinstance(item, UnitItem) and item.label else ()
            for reason in (item,) if isinstance(item, Reason) else reasons:
                assert secret not in str(reason)
