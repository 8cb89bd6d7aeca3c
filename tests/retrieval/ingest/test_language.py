"""Each unit's language is what its source says, else what its text is in."""

from __future__ import annotations

from retrieval.ingest import Outcome
from tests.retrieval.ingest.bench import Bench, unit

TEXTS = {
    "en": "The refund is paid back to the card that was charged.",
    "de": "Die Erstattung wird auf die belastete Karte gebucht.",
    "vi": "Tiền hoàn lại được trả về thẻ đã thanh toán.",
    "zh": "退款将退回到付款时使用的银行卡。",
    "und": "12345 67890",
}


def test_a_language_that_nobody_stated_is_told_from_the_text(bench: Bench) -> None:
    """Title and body together; a source that does say is believed."""
    lines = [unit(f"a/{code}", title=text, body=text) for code, text in TEXTS.items()]
    lines.append(unit("a/said", title=TEXTS["en"], body=TEXTS["en"], language="en-GB"))
    bench.run(lines)
    found = dict(bench.all("select canonical_address, language from brain.unit"))
    assert found == {**{f"a/{code}": code for code in TEXTS}, "a/said": "en-GB"}


def test_telling_a_language_changes_no_unit(bench: Bench) -> None:
    """The same source again is unchanged, whatever told its language."""
    lines = [unit("a/1", title=TEXTS["vi"], body=TEXTS["vi"])]
    bench.run(lines)
    assert bench.run(lines).of(Outcome.UNCHANGED) == 1
