"""BERT as an ONNX graph: from tokens to one unit vector per text, large products in int8.

Products of weights are quantised: weights once, by column; activations while running. That
is what onnxruntime itself calls dynamic quantisation. The rest stays float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from holdfast.memory.onnx_file import Graph, list_names

if TYPE_CHECKING:
    from collections.abc import Mapping

Weights: TypeAlias = "Mapping[str, np.ndarray[Any, np.dtype[np.float32]]]"

_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_LAYER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


@dataclass(frozen=True)
class Shape:
    """How large a BERT is."""

    layers: int = 6
    heads: int = 12
    size: int = 384
    epsilon: float = 1e-12


def list_tensor_names(shape: Shape) -> list[str]:
    """Return the names of all weights that a graph needs."""
    names = [f"embeddings.{part}.weight" for part in _EMBEDDINGS]
    names += list_names("embeddings.", ["LayerNorm"])
    for layer in range(shape.layers):
        names += list_names(f"encoder.layer.{layer}.", _LAYER)
    return names


def build_bert_model(weights: Weights, shape: Shape) -> bytes:
    """Return an ONNX file: `ids` and `mask` (texts by tokens) become `vectors` and `tokens`.

    Texts are the mean of their tokens, brought to length 1; tokens are as the last layer
    leaves them.
    """
    return _GraphBuilder(weights, shape).build()


class _GraphBuilder:
    def __init__(self, weights: Weights, shape: Shape) -> None:
        self._weights = weights
        self._shape = shape
        self._graph = Graph()

    def build(self) -> bytes:
        graph = self._graph
        hidden = self._embed()
        flags = graph.apply("Cast", "mask", to=1)
        shut = graph.apply("Sub", self._read_number(1.0), flags)
        far = graph.apply("Mul", shut, self._read_number(-10_000.0))
        far = graph.apply("Unsqueeze", far, self._encode_ints(1, 2))
        for layer in range(self._shape.layers):
            hidden = self._add_layer(f"encoder.layer.{layer}.", hidden, far)
        open_ = graph.apply("Unsqueeze", flags, self._encode_ints(2))
        total = graph.apply(
            "ReduceSum", graph.apply("Mul", hidden, open_), self._encode_ints(1), keepdims=0
        )
        length = graph.apply("ReduceL2", total, self._encode_ints(1), keepdims=1)
        vectors = graph.apply("Div", total, length)
        return graph.model(
            {"ids": ("int64", 2), "mask": ("int64", 2)},
            {"vectors": (vectors, "float32", 2), "tokens": (hidden, "float32", 3)},
        )

    def _embed(self) -> str:
        graph = self._graph
        words = graph.apply(
            "Gather", self._encode_weight("embeddings.word_embeddings.weight"), "ids"
        )
        places = self._weights["embeddings.position_embeddings.weight"]
        places = places + self._weights["embeddings.token_type_embeddings.weight"][0]
        count = graph.apply("Slice", graph.apply("Shape", "ids"), *map(self._encode_ints, (1, 2)))
        some = graph.apply("Slice", graph.add_constant(places), self._encode_ints(0), count)
        return self._normalize("embeddings.LayerNorm", graph.apply("Add", words, some))

    def _add_layer(self, prefix: str, hidden: str, far: str) -> str:
        graph = self._graph
        seen = self._attend(prefix, hidden, far)
        seen = self._compute_product(seen, prefix + "attention.output.dense")
        hidden = self._normalize(
            prefix + "attention.output.LayerNorm", graph.apply("Add", seen, hidden)
        )
        wide = graph.apply("Gelu", self._compute_product(hidden, prefix + "intermediate.dense"))
        more = self._compute_product(wide, prefix + "output.dense")
        return self._normalize(prefix + "output.LayerNorm", graph.apply("Add", more, hidden))

    def _attend(self, prefix: str, hidden: str, far: str) -> str:
        graph, shape = self._graph, self._shape
        parts = [prefix + f"attention.self.{part}" for part in ("query", "key", "value")]
        joined = self._compute_product(hidden, *parts)
        split = graph.add_node("Split", joined, outputs=3, axis=2, num_outputs=3)
        heads = self._encode_ints(0, 0, shape.heads, shape.size // shape.heads)
        query, key, value = (graph.apply("Reshape", part, heads) for part in split)
        query = graph.apply("Transpose", query, perm=(0, 2, 1, 3))
        key = graph.apply("Transpose", key, perm=(0, 2, 3, 1))
        value = graph.apply("Transpose", value, perm=(0, 2, 1, 3))
        scale = self._read_number((shape.size // shape.heads) ** -0.5)
        likeness = graph.apply("MatMul", graph.apply("Mul", query, scale), key)
        share = graph.apply("Softmax", graph.apply("Add", likeness, far), axis=-1)
        seen = graph.apply("Transpose", graph.apply("MatMul", share, value), perm=(0, 2, 1, 3))
        return graph.apply("Reshape", seen, self._encode_ints(0, 0, shape.size))

    def _compute_product(self, hidden: str, *parts: str) -> str:
        """Multiply with the weights of one or several layers side by side, and add the bias."""
        graph = self._graph
        matrix = np.concatenate([self._weights[part + ".weight"] for part in parts]).T
        bias = np.concatenate([self._weights[part + ".bias"] for part in parts])
        # 7 bits: on older processors sums of two products of 8 bits would overflow 16.
        steps = np.maximum(np.abs(matrix).max(axis=0), 1e-12) / 63.0
        whole = np.rint(matrix / steps).astype(np.int8)
        small, scale, zero = graph.add_node("DynamicQuantizeLinear", hidden, outputs=3)
        zeros = graph.add_constant(np.zeros(len(steps), np.int8))
        product = graph.apply("MatMulInteger", small, graph.add_constant(whole), zero, zeros)
        product = graph.apply("Cast", product, to=1)
        scales = graph.apply("Mul", scale, graph.add_constant(steps.astype(np.float32)))
        return graph.apply("Add", graph.apply("Mul", product, scales), graph.add_constant(bias))

    def _normalize(self, name: str, hidden: str) -> str:
        weight, bias = self._encode_weight(name + ".weight"), self._encode_weight(name + ".bias")
        epsilon = self._shape.epsilon
        return self._graph.apply("LayerNormalization", hidden, weight, bias, epsilon=epsilon)

    def _encode_weight(self, name: str) -> str:
        return self._graph.add_constant(self._weights[name])

    def _read_number(self, value: float) -> str:
        return self._graph.add_constant(np.array(value, np.float32))

    def _encode_ints(self, *values: int) -> str:
        return self._graph.add_constant(np.array(values, np.int64))


__all__ = ["Shape", "build_bert_model", "list_tensor_names"]
