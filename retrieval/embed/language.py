"""Which languages a text seems to be in: just enough to know what a model was not trained on.

Not a language detector. Two questions only: which script dominates, and is Latin text
Vietnamese (with or without its diacritics, by the shape of its syllables).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Final

from retrieval.lexical import folded, words

_VIETNAMESE: Final = re.compile("[ăđơưạ-ỹ]")
_SYLLABLE: Final = re.compile(
    r"(?:ngh|ng|nh|gh|gi|kh|ph|th|tr|ch|qu|[bcdghklmnprstvx])?[aeiouy]{1,3}(?:ng|nh|ch|[cmnpt])?"
)
_SHARE_WITH_MARKS: Final = 0.15
_SHARE_OF_SYLLABLES: Final = 0.85
_SYLLABLES_MIN: Final = 5


def script(text: str) -> str:
    """The script of most letters, as the first word of its Unicode name (``LATIN``); ``""``
    when there is no letter."""
    letters = (c for c in text if c.isalpha())
    count = Counter(unicodedata.name(c, "").partition(" ")[0] for c in letters)
    return max(count, key=lambda name: (count[name], name)) if count else ""


def looks_vietnamese(text: str) -> bool:
    """Whether Latin text reads like Vietnamese. Short unaccented text is not decided: false."""
    found = [word for word in words(text) if word.isalpha()]
    if not found:
        return False
    if sum(bool(_VIETNAMESE.search(w)) for w in found) >= _SHARE_WITH_MARKS * len(found):
        return True
    shaped = sum(bool(_SYLLABLE.fullmatch(folded(w))) for w in found)
    return len(found) >= _SYLLABLES_MIN and shaped >= _SHARE_OF_SYLLABLES * len(found)
