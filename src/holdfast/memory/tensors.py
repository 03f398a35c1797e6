"""Weights as they lie in a safetensors file, read without a framework."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np

_KINDS = {"F16": "<f2", "F32": "<f4"}


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_tensors(data: bytes, names: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the named tensors as float32 arrays.

    Raises:
        ValueError: the bytes are no safetensors, or a tensor is missing or no float.
    """
    import numpy as np  # noqa: PLC0415 - loaded when used

    length = int.from_bytes(data[:8], "little")
    try:
        header = msgspec.json.decode(data[8 : 8 + length], type=dict[str, msgspec.Raw])
        found: dict[str, np.ndarray[Any, Any]] = {}
        for name in names:
            tensor = msgspec.json.decode(header[name], type=_Tensor)
            start, end = (8 + length + offset for offset in tensor.data_offsets)
            flat = np.frombuffer(memoryview(data)[start:end], _KINDS[tensor.dtype])
            found[name] = flat.reshape(tensor.shape).astype(np.float32, copy=False)
    except KeyError as error:
        raise ValueError(f"there is no readable tensor {error}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"the header cannot be read: {error}") from error
    return found


__all__ = ["read_tensors"]
