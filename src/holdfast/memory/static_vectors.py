"""Tier 0: static word vectors that come with a package, so meaning works without a network.

The `wordllama` wheel carries 32,000 token vectors of 256 numbers and their tokenizer. Its
own loader may ask the network, and is never called: the two files are read directly.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import EmbeddingFailed, MissingExtra
from holdfast.memory.embedder import MemoryEmbedder, NoEmbedder
from holdfast.memory.tensors import read_tensors

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_CHARACTERS = 8_000
"""How much of a text is embedded; the mean of more words says less, not more."""


class StaticEmbedder:
    """Means of static token vectors: quick, offline, the same everywhere.

    Nothing is loaded before the first text; then it is 16 MB read and 33 MB kept.
    """

    model_id = "wordllama-l2-supercat-256/1"
    dimension = 256

    def __init__(self, folder: Path | None = None) -> None:
        """Use the files of the installed package, or of a folder laid out like it.

        Raises:
            MissingExtra: the package is not installed.
        """
        self._folder = folder or _installed()
        self._lock = threading.Lock()
        self._loaded: tuple[np.ndarray[Any, Any], Tokenizer] | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text; a text without any known word gets a fixed direction."""
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> list[list[float]]:
        """Do the same, blocking."""
        import numpy as np  # noqa: PLC0415 - loaded when used

        table, tokenizer = self._ready()
        cut = [text[:_CHARACTERS] for text in texts]
        vectors = []
        for found in tokenizer.encode_batch(cut, add_special_tokens=False):
            ids = found.ids or [0]
            mean = table[np.asarray(ids, dtype=np.int64)].mean(axis=0)
            length = float(np.linalg.norm(mean))
            vectors.append((mean / length if length > 1e-9 else table[1]).tolist())
        return vectors

    def _ready(self) -> tuple[np.ndarray[Any, Any], Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = (self._table(), self._tokenizer())
            return self._loaded

    def _table(self) -> np.ndarray[Any, Any]:
        try:
            (table,) = read_tensors(self._read(_WEIGHTS), ["embedding.weight"]).values()
            if table.ndim != 2 or table.shape[1] != self.dimension:
                raise ValueError(f"its shape is {table.shape}")
        except ValueError as error:
            detail = f"{_WEIGHTS} cannot be read: {error}"
            raise EmbeddingFailed(model=self.model_id, detail=detail) from error
        return table

    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer  # noqa: PLC0415 - loaded when used

        tokenizer = Tokenizer.from_str(self._read(_TOKENIZER).decode())
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            detail = f"{name} cannot be read: {error.strerror}"
            raise EmbeddingFailed(model=self.model_id, detail=detail) from error


def _installed() -> Path:
    # Finding a package does not import it.
    for package in ("tokenizers", "numpy", "wordllama"):
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise MissingExtra(what="The built-in embedder", package=package, extra="memory")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def default_embedder() -> MemoryEmbedder:
    """Return the built-in embedder, or none where its package is missing."""
    try:
        return StaticEmbedder()
    except MissingExtra as error:
        return NoEmbedder(f"{error} {error.hint}")


__all__ = ["StaticEmbedder", "default_embedder"]
