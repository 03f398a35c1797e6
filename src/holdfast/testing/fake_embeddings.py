"""What a server of embeddings answers: the more words in common, the nearer."""

from __future__ import annotations

import hashlib
import math

import msgspec

from holdfast.testing.fake_rules import Refused


class _Question(msgspec.Struct):
    model: str
    input: list[str] | str
    encoding_format: str = "float"
    dimensions: int | None = None


def embeddings_body(data: object, dimension: int) -> bytes:
    """Return the answer to a request for embeddings.

    Raises:
        Refused: a real server would not take the request.
    """
    try:
        question = msgspec.convert(data, _Question)
    except msgspec.ValidationError as error:
        raise Refused(str(error)) from error
    texts = [question.input] if isinstance(question.input, str) else question.input
    if not texts or not all(texts) or len(texts) > 2048:
        raise Refused("'input' must hold 1 to 2048 texts, none of them empty")
    size = question.dimensions or dimension
    found = [
        {"object": "embedding", "index": place, "embedding": _vector(text, size)}
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


def _vector(text: str, dimension: int) -> list[float]:
    vector = [0.0] * dimension
    for word in text.casefold().split() or [""]:
        digest = hashlib.sha256(word.encode("utf-8", "replace")).digest()
        vector[int.from_bytes(digest[:4], "big") % dimension] += 1.0
    length = math.sqrt(math.fsum(number * number for number in vector))
    return [number / length for number in vector]


__all__ = ["embeddings_body"]
