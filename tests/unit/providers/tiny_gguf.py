"""A model of a few thousand random numbers, as a file that llama.cpp loads in no time."""

from __future__ import annotations

import random
import struct
from pathlib import Path

_WIDTH, _INNER = 32, 64
_U32, _I32, _F32, _TEXT, _LIST = 4, 5, 6, 8, 9
_UNKNOWN, _CONTROL, _BYTE, _PLAIN = 2, 3, 6, 1


def write_tiny_gguf(path: Path) -> Path:
    """Write a model that knows all bytes and nothing else."""
    letters = ["\u2581", *(chr(code) for code in range(33, 127))]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{code:02X}>" for code in range(256)), *letters]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_PLAIN] * len(letters)]
    values = [
        _value("general.architecture", _TEXT, _text("llama")),
        _value("llama.context_length", _U32, struct.pack("<I", 4096)),
        _value("llama.embedding_length", _U32, struct.pack("<I", _WIDTH)),
        _value("llama.block_count", _U32, struct.pack("<I", 1)),
        _value("llama.feed_forward_length", _U32, struct.pack("<I", _INNER)),
        _value("llama.attention.head_count", _U32, struct.pack("<I", 4)),
        _value("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)),
        _value("tokenizer.ggml.model", _TEXT, _text("llama")),
        _list("tokenizer.ggml.tokens", _TEXT, [_text(token) for token in tokens]),
        _list("tokenizer.ggml.scores", _F32, [struct.pack("<f", -n) for n in range(len(tokens))]),
        _list("tokenizer.ggml.token_type", _I32, [struct.pack("<i", kind) for kind in kinds]),
        _value("tokenizer.ggml.bos_token_id", _U32, struct.pack("<I", 1)),
        _value("tokenizer.ggml.eos_token_id", _U32, struct.pack("<I", 2)),
    ]
    shapes = _shapes(len(tokens))
    about, content = b"", b""
    chance = random.Random(3)
    for name, shape in shapes.items():
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        about += _text(name) + sizes + struct.pack("<IQ", 0, len(content))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        numbers = [1.0 if len(shape) == 1 else chance.gauss(0, 0.3) for _ in range(count)]
        content += struct.pack(f"<{count}f", *numbers)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(values)) + b"".join(values) + about
    path.write_bytes(head + bytes(-len(head) % 32) + content)
    return path


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    square, wide = (_WIDTH, _WIDTH), (_WIDTH, _INNER)
    return {
        "token_embd.weight": (_WIDTH, vocabulary),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (_WIDTH, vocabulary),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        **{f"blk.0.attn_{name}.weight": square for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}.weight": wide for name in ("gate", "up")},
        "blk.0.ffn_down.weight": (_INNER, _WIDTH),
    }


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(key: str, kind: int, data: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + data


def _list(key: str, kind: int, items: list[bytes]) -> bytes:
    return _value(key, _LIST, struct.pack("<IQ", kind, len(items)) + b"".join(items))
