"""The configured embedder, by itself: who only computes vectors loads no client of the index."""

from __future__ import annotations

from gateway.compose.failure import CannotStart
from gateway.settings import Settings
from retrieval.embed.cache import CachedEmbedder
from retrieval.embed.ports import Embedder
from retrieval.embed.registry import Choice, chosen


def open_embedder(settings: Settings) -> Embedder:
    """The configured embedder, reading the vector cache if there is one. It remembers nothing.

    Raises: CannotStart for an unknown name, a model that cannot be loaded or a malformed cache.
    """
    told = settings.embedder
    try:
        model = chosen(
            Choice(
                name=told.name,
                model=told.model or "",
                url=told.url or "",
                dims=told.dims or 0,
                key=told.api_key.get_secret_value() if told.api_key is not None else "",
                timeout_s=told.timeout_ms / 1_000,
                folder=told.folder,
                languages=tuple(told.languages),
            )
        )
        return (
            model
            if told.vector_cache is None
            else CachedEmbedder(model, sources=[told.vector_cache])
        )
    except (ValueError, OSError) as error:
        remedy = "mend `embedder` in the settings"
        raise CannotStart("embedder_unusable", str(error), remedy) from error
