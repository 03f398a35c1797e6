"""What a server of embeddings answers: the more words in common, the nearer.

Every model has a space of its own: its vectors are unlike those of any other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import msgspec

from holdfast.testing.fake_rules import RefusedRequest


class _Question(msgspec.Struct):
    model: str
    input: list[str] | str
    encoding_format: str = "float"
    dimensions: int | None = None


def build_embeddings_body(data: object, dimension: int, meanings: Mapping[str, str]) -> bytes:
    """Return the answer to a request for embeddings; `meanings` are words that mean another.

    Raises:
        Refused: a real server would not take the request.
    """
    try:
        question = msgspec.convert(data, _Question)
    except msgspec.ValidationError as error:
        raise RefusedRequest(str(error)) from error
    texts = [question.input] if isinstance(question.input, str) else question.input
    if not texts or not all(texts) or len(texts) > 2048:
        raise RefusedRequest("'input' must hold 1 to 2048 texts, none of them empty")
    size = question.dimensions or dimension

    def vector(text: str) -> list[float]:
        words = [meanings.get(word, word) for word in text.casefold().split()]
        return _make_vector(question.model, words or [""], size)

    found = [
        {"object": "embedding", "index": place, "embedding": vector(text)}
        for place, text in enumerate(texts)
    ]
    tokens = sum(len(text.split()) for text in texts)
    return msgspec.json.encode(
        {
            "object": "list",
            "data": found,
            "model": question.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def _make_vector(model: str, words: list[str], dimension: int) -> list[float]:
    vector = [0.0] * dimension
    for word in words:
        digest = hashlib.sha256(f"{model} {word}".encode("utf-8", "replace")).digest()
        vector[int.from_bytes(digest[:4], "big") % dimension] += 1.0
    length = math.sqrt(math.fsum(number * number for number in vector))
    return [number / length for number in vector]


__all__ = ["build_embeddings_body"]
