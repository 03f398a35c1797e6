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
from holdfast.memory.embedder import EmbeddedText, MemoryEmbedder, NoEmbedder
from holdfast.memory.tensors import read_tensors

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Encoding, Tokenizer

    from holdfast.memory.late_interaction import QueryTokens
    from holdfast.memory.vector_index import Floats

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_CHARACTERS = 8_000
"""How much of a text is embedded; the mean of more words says less, not more."""
_STORED_TOKENS = 256
"""So many tokens of a text are kept for late interaction, as numbers of 2 bytes."""


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
        self._folder = folder or _find_installed()
        self._lock = threading.Lock()
        self._loaded: tuple[np.ndarray[Any, Any], Tokenizer] | None = None
        self._norms: Floats | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text; a text without any known word gets a fixed direction."""
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> list[list[float]]:
        """Do the same, blocking."""
        return [self._make_vector(found) for found in self._encode(texts)]

    async def embed_texts(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Return vectors, and the numbers of the tokens: their vectors are in the table."""
        return await asyncio.to_thread(self._embed_texts, texts)

    def _embed_texts(self, texts: Sequence[str]) -> list[EmbeddedText]:
        from holdfast.memory.late_interaction import pack_ids  # noqa: PLC0415 - loads numpy

        return [
            EmbeddedText(self._make_vector(found), pack_ids(found.ids, _STORED_TOKENS))
            for found in self._encode(texts)
        ]

    async def embed_query(self, text: str) -> tuple[list[float], QueryTokens]:
        """Return the vector of a query and the vectors of its tokens."""
        return await asyncio.to_thread(self._embed_query, text)

    def _embed_query(self, text: str) -> tuple[list[float], QueryTokens]:
        import numpy as np  # noqa: PLC0415 - loaded when used

        from holdfast.memory.late_interaction import query_tokens  # noqa: PLC0415 - loads numpy

        table, _ = self._load_ready()
        (found,) = self._encode([text])
        vectors = table[np.asarray(found.ids, dtype=np.int64)]
        return self._make_vector(found), query_tokens(text, found.offsets, vectors, "static")

    def compute_max_similarities(self, query: QueryTokens, texts: Sequence[bytes]) -> Floats:
        """Compare tokens by their static vectors (MaxSim)."""
        from holdfast.memory.late_interaction import compute_max_sim_of_ids, compute_norms  # noqa: PLC0415

        table, _ = self._load_ready()
        with self._lock:
            if self._norms is None:
                self._norms = compute_norms(table)
        return compute_max_sim_of_ids(query.matrix, texts, table, self._norms)

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        _, tokenizer = self._load_ready()
        cut = [text[:_CHARACTERS] for text in texts]
        return tokenizer.encode_batch(cut, add_special_tokens=False)

    def _make_vector(self, found: Encoding) -> list[float]:
        import numpy as np  # noqa: PLC0415 - loaded when used

        table, _ = self._load_ready()
        mean = table[np.asarray(found.ids or [0], dtype=np.int64)].mean(axis=0)
        length = float(np.linalg.norm(mean))
        vector: list[float] = (mean / length if length > 1e-9 else table[1]).tolist()
        return vector

    def _load_ready(self) -> tuple[np.ndarray[Any, Any], Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = (self._read_table(), self._load_tokenizer())
            return self._loaded

    def _read_table(self) -> np.ndarray[Any, Any]:
        try:
            (table,) = read_tensors(self._read(_WEIGHTS), ["embedding.weight"]).values()
            if table.ndim != 2 or table.shape[1] != self.dimension:
                raise ValueError(f"its shape is {table.shape}")
        except ValueError as error:
            detail = f"{_WEIGHTS} cannot be read: {error}"
            raise EmbeddingFailed(model=self.model_id, detail=detail) from error
        return table

    def _load_tokenizer(self) -> Tokenizer:
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


def _find_installed() -> Path:
    # Finding a package does not import it.
    for package in ("tokenizers", "numpy", "wordllama"):
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise MissingExtra(what="The built-in embedder", package=package, extra="memory")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def make_default_embedder() -> MemoryEmbedder:
    """Return the built-in embedder, or none where its package is missing."""
    try:
        return StaticEmbedder()
    except MissingExtra as error:
        return NoEmbedder(f"{error} {error.hint}", missing=error)


__all__ = ["StaticEmbedder", "make_default_embedder"]
