"""Writes ONNX models: the few messages of the format that a graph of ours needs.

ONNX is protocol buffers; writing them takes a page, so no caller has to install the `onnx`
package for it. Field numbers are those of `onnx.proto`, which never change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Value: TypeAlias = "int | float | Sequence[int]"

_IR_VERSION = 9
_OPSET = 20
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7}
_FLOAT, _INT, _INTS = 1, 2, 7


class Graph:
    """A graph under construction; nodes are added in the order in which they run."""

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: list[bytes] = []
        # Weights are megabytes: they stay where they are until the file is put together.
        self._constants: list[tuple[bytes, memoryview]] = []
        self._count = 0

    def add_constant(self, value: np.ndarray[Any, Any]) -> str:
        """Add weights and return their name."""
        name = self._name()
        kind = _TYPES[value.dtype.name]
        dims = b"".join(_read_number(1, size) for size in value.shape)
        plain = value.astype(value.dtype.newbyteorder("<"), order="C", copy=False)
        raw = plain.reshape(-1).data.cast("B")
        head = dims + _read_number(2, kind) + _render_text(8, name) + _begin(9, raw.nbytes)
        self._constants.append((head, raw))
        return name

    def add_node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Value) -> list[str]:
        """Add an operation and return the names of its results."""
        names = [self._name() for _ in range(outputs)]
        data = b"".join(_render_text(1, name) for name in inputs)
        data += b"".join(_render_text(2, name) for name in names)
        data += _render_text(4, kind)
        data += b"".join(
            _encode_bytes(5, _encode_attribute(name, v)) for name, v in attributes.items()
        )
        self._nodes.append(data)
        return names

    def apply(self, kind: str, *inputs: str, **attributes: Value) -> str:
        """Add an operation with one result and return its name."""
        return self.add_node(kind, *inputs, outputs=1, **attributes)[0]

    def model(
        self, inputs: Mapping[str, tuple[str, int]], outputs: Mapping[str, tuple[str, str, int]]
    ) -> bytes:
        """Return the file: inputs by name with type and rank; outputs with what they show."""
        for shown, (name, _, _) in outputs.items():
            self._nodes.append(
                _render_text(1, name) + _render_text(2, shown) + _render_text(4, "Identity")
            )
        pieces: list[bytes | memoryview] = [_encode_bytes(1, node) for node in self._nodes]
        pieces.append(_render_text(2, "graph"))
        for head, raw in self._constants:
            pieces += [_begin(5, len(head) + raw.nbytes), head, raw]
        pieces += [_encode_bytes(11, _encode_port(name, *port)) for name, port in inputs.items()]
        pieces += [
            _encode_bytes(12, _encode_port(name, kind, rank))
            for name, (_, kind, rank) in outputs.items()
        ]
        start = _read_number(1, _IR_VERSION) + _begin(7, sum(map(len, pieces)))
        opset = _render_text(1, "") + _read_number(2, _OPSET)
        return b"".join([start, *pieces, _encode_bytes(8, opset)])

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"


def _encode_port(name: str, kind: str, rank: int) -> bytes:
    shape = b"".join(_encode_bytes(1, _render_text(2, f"{name}_{axis}")) for axis in range(rank))
    tensor = _read_number(1, _TYPES[kind]) + _encode_bytes(2, shape)
    return _render_text(1, name) + _encode_bytes(2, _encode_bytes(1, tensor))


def _encode_attribute(name: str, value: Value) -> bytes:
    data = _render_text(1, name)
    if isinstance(value, float):
        return data + b"\x15" + struct.pack("<f", value) + _read_number(20, _FLOAT)
    if isinstance(value, int):
        return data + _read_number(3, value) + _read_number(20, _INT)
    return data + b"".join(_read_number(8, one) for one in value) + _read_number(20, _INTS)


def _encode_varint(number: int) -> bytes:
    if number < 0:
        number += 1 << 64
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _read_number(field: int, number: int) -> bytes:
    return _encode_varint(field << 3) + _encode_varint(number)


def _begin(field: int, length: int) -> bytes:
    return _encode_varint(field << 3 | 2) + _encode_varint(length)


def _encode_bytes(field: int, data: bytes) -> bytes:
    return _begin(field, len(data)) + data


def _render_text(field: int, text: str) -> bytes:
    return _encode_bytes(field, text.encode())


def list_names(prefix: str, parts: Iterable[str]) -> list[str]:
    """Return the weights and biases of some layers of a model by name."""
    return [f"{prefix}{part}.{kind}" for part in parts for kind in ("weight", "bias")]


__all__ = ["Graph", "list_names"]
