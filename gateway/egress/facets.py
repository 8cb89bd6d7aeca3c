"""Units inside the JSON of an upstream that is not retrieval: what is one, and may it stay.

Theory
    Only what is known to be permitted leaves, so the rules are a positive list of shapes:

    * a *hit* is an object that carries any of the mapped fields, and every object that is an
      element of an array, whatever it carries; it stays when its facets are exactly one
      permitted class, else it goes as a whole;
    * around hits only structure stays: objects and arrays that lead to one. Counts, cursors,
      suggestions and other scalars outside a hit would tell of what was dropped;
    * inside a hit that stays, everything stays but further hits, each judged by itself.

    A facet that is missing, doubled, mis-cased, of another type or not in the map is no
    class, and no class is in no list. A tenant or jurisdiction that is none, or not plainly
    one, is nobody's. A consent is given to units of ours by id; a foreign unit has no id of
    ours, so only classes that need no consent pass.

Source: attack log rows F8-F17.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from gateway.ingress.strict_json import Json
from policies.bindings import FacetMap
from policies.decision import Scope
from policies.vocabulary import Vocabulary

_NOTHING: Final = object()
_FOREIGN: Final = UUID(int=0)
"""The id of every foreign unit here: one that no consent can name."""


@dataclass(slots=True)
class FacetFilter:
    """Filters one document for one scope.

    ``denied`` then names what was dropped; ``shown`` counts what was kept, by class.
    """

    labels: FacetMap
    vocabulary: Vocabulary
    scope: Scope
    denied: dict[UUID, int] = field(default_factory=dict)
    shown: dict[int, int] = field(default_factory=dict)
    _fields: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._fields = self.labels.fields

    def kept(self, document: Json) -> Json:
        """The document less everything that may not stay; None when nothing may."""
        kept = self._outside(document, element=False)
        return None if kept is _NOTHING else kept  # type: ignore[return-value]  # Json, or _NOTHING

    def _outside(self, node: Json, *, element: bool) -> object:
        if isinstance(node, dict):
            if element or not self._fields.isdisjoint(node):
                return self._hit(node)
            inner = {name: self._outside(value, element=False) for name, value in node.items()}
            inner = {name: value for name, value in inner.items() if value is not _NOTHING}
            return inner or _NOTHING
        if isinstance(node, list):
            items = [self._outside(item, element=True) for item in node]
            return [item for item in items if item is not _NOTHING]
        return _NOTHING

    def _hit(self, node: dict[str, Json]) -> object:
        class_id = self._class_of(node)
        if not self.scope.permits(
            unit_id=_FOREIGN,
            class_id=class_id,
            tenant=self.labels.tenant.value(node),
            jurisdiction=self.labels.jurisdiction.value(node),
        ):
            self.denied[opaque_id(node)] = class_id
            return _NOTHING
        self.shown[class_id] = self.shown.get(class_id, 0) + 1
        return {
            name: kept
            for name, value in node.items()
            if (kept := self._inside(value)) is not _NOTHING
        }

    def _inside(self, node: Json) -> object:
        if isinstance(node, dict):
            if not self._fields.isdisjoint(node):
                return self._hit(node)
            inner = {name: self._inside(value) for name, value in node.items()}
            return {name: value for name, value in inner.items() if value is not _NOTHING}
        if isinstance(node, list):
            items = [self._inside(item) for item in node]
            return [item for item in items if item is not _NOTHING]
        return node

    def _class_of(self, node: dict[str, Json]) -> int:
        words: dict[str, object] = {}
        for facet, source in self.labels.facets.items():
            word = node.get(source.field)
            words[facet] = source.words.get(word) if isinstance(word, str) else None
        return self.vocabulary.class_id(words)


def opaque_id(hit: Json) -> UUID:
    """A name for a foreign unit that tells nothing of it and is the same every time."""
    text = json.dumps(hit, sort_keys=True, separators=(",", ":"))
    return UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=5)
