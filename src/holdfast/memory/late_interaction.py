"""Late interaction: a query and a text are compared token by token, not as one vector each.

The score is MaxSim: every token of the query takes the text's token that is nearest to it,
and the weighted mean of those similarities counts. Query tokens keep their full precision.
Those of texts are quantized for storage: one bit per dimension where a model reads them in
context, or the token's number where its vector is the same in every text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from holdfast.memory.words import is_filler

if TYPE_CHECKING:
    from holdfast.memory.vector_index import Floats

TokenKind: TypeAlias = Literal["contextual", "static"]
"""Whether the vector of a token depends on the text around it."""

_WORD = re.compile(r"[^\W_]+")
_FILLER_SHARE = 0.15
"""So many texts hold a word like "what" or "the": it is not worth counting them."""
_MARK_SHARE = 0.33
"""The same for punctuation."""
_ONE_THREAD = 262_144
"""Products of so many multiplications run in one thread of BLAS; waking others costs more."""
_SIGNS: Floats = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
"""The bits of each byte: a look-up is quicker than unpacking, which yields bytes."""


@dataclass(frozen=True)
class QueryTokens:
    """A query as late interaction sees it."""

    matrix: Floats
    """One unit vector per token."""
    words: tuple[str, ...]
    """The word that each token is part of, in small letters; empty for punctuation."""
    kind: TokenKind


def query_tokens(
    text: str, spans: Sequence[tuple[int, int]], vectors: Floats, kind: TokenKind
) -> QueryTokens:
    """Return a query's tokens with the words that they are part of."""
    found = [(one.start(), one.end(), one[0].casefold()) for one in _WORD.finditer(text)]
    words = tuple(
        next((word for start, end, word in found if start < stop and begin < end), "")
        for begin, stop in spans
    )
    unit = vectors / compute_norms(vectors)[:, None]
    return QueryTokens(unit.astype(np.float32), words, kind)


def compute_norms(vectors: Floats) -> Floats:
    """Return the lengths of vectors, never quite 0."""
    norms: Floats = np.maximum(np.linalg.norm(vectors, axis=1), 1e-9).astype(np.float32)
    return norms


def compute_idf_weights(words: Sequence[str], counts: Mapping[str, int], total: int) -> Floats:
    """Return how much each token of a query counts: inverse document frequency, summing to 1.

    `counts` says how many of `total` texts hold a word; a word that it does not know and
    that is no filler counts like the mean of the others.
    """
    total = max(total, 1)
    known = {word: _compute_idf(count, total) for word, count in counts.items()}
    middle = sum(known.values()) / len(known) if known else 1.0
    filler, mark = (
        _compute_idf(_FILLER_SHARE * total, total),
        _compute_idf(_MARK_SHARE * total, total),
    )
    weights = np.array(
        [
            mark if not word else known.get(word, filler if is_filler(word) else middle)
            for word in words
        ],
        np.float32,
    )
    return weights / max(float(weights.sum()), 1e-9)


def _compute_idf(count: float, total: int) -> float:
    count = min(max(count, 0.0), total)
    return math.log1p((total - count + 0.5) / (count + 0.5))


def pack_signs(vectors: Floats, limit: int) -> bytes:
    """Return the signs of token vectors, one bit per dimension; of the first `limit` tokens."""
    return np.packbits(vectors[:limit] > 0, axis=1).tobytes()


def compute_max_sim_of_signs(query: Floats, texts: Sequence[bytes]) -> Floats:
    """Return for each text and each query token its greatest similarity with a token there.

    A similarity is the query token's product with the text token's signs, brought to -1..1
    by the length of a vector of signs. A text without tokens is as unlike as can be. Bytes
    that are no whole number of tokens are refused with ValueError.
    """
    dimension = query.shape[1]
    width = dimension // 8
    lengths = _measure_lengths(texts, width)
    if dimension % 8 or not lengths.any() or not len(query):
        return _make_empty(texts, query, -1.0)
    packed = np.frombuffer(b"".join(texts), np.uint8).reshape(-1, width)
    # q . sign(t) = 2 q . bit(t) - sum(q): so zeros and ones will do.
    scale = np.float32(1.0 / math.sqrt(dimension))
    products = np.empty((len(packed), len(query)), np.float32)
    for some in _list_steps(len(packed), query.size):
        # Unpacked step by step: bits of all tokens at once would not fit into any cache.
        bits = _SIGNS.take(packed[some], axis=0).reshape(-1, dimension)
        products[some] = (query @ bits.T).T
    products = products * (2.0 * scale) - query.sum(axis=1) * scale
    return _compute_greatest(products, lengths, -1.0)


def pack_ids(ids: Sequence[int], limit: int) -> bytes:
    """Return the numbers of static tokens as 16 bits each; of the first `limit` tokens."""
    return np.asarray(ids[:limit], "<u2").tobytes()


def compute_max_sim_of_ids(
    query: Floats, texts: Sequence[bytes], table: Floats, norms: Floats
) -> Floats:
    """Return for each text and each query token its greatest similarity with a token there.

    `table` holds the vectors of all tokens, `norms` their lengths. Static vectors of words that
    have nothing in common often reach a cosine of .3: that counts as 0, and the rest to 1.
    """
    lengths = _measure_lengths(texts, 2)
    if not lengths.any() or not len(query):
        return _make_empty(texts, query, 0.0)
    every = np.frombuffer(b"".join(texts), "<u2").astype(np.int64)
    if int(every.max()) >= len(table):
        raise ValueError("a token that the model does not know")
    # Each token once, however many texts hold it.
    is_there = np.zeros(len(table), np.bool_)
    is_there[every] = True
    own = np.flatnonzero(is_there)
    where = np.zeros(len(table), np.int64)
    where[own] = np.arange(len(own))
    cosines = np.empty((len(own), len(query)), np.float32)
    for some in _list_steps(len(own), query.size):
        cosines[some] = (query @ table.take(own[some], axis=0).T).T
    cosines /= norms.take(own)[:, None]
    likeness = np.clip((cosines - 0.3) / 0.7, 0.0, 1.0).astype(np.float32)
    return _compute_greatest(likeness.take(where.take(every), axis=0), lengths, 0.0)


def _measure_lengths(texts: Sequence[bytes], width: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    lengths, rests = np.divmod(np.array(list(map(len, texts)), np.int64), max(width, 1))
    if rests.any():
        raise ValueError("half of a token")
    return lengths


def _make_empty(texts: Sequence[bytes], query: Floats, value: float) -> Floats:
    return np.full((len(texts), len(query)), value, np.float32)


def _list_steps(count: int, size: int) -> Iterator[slice]:
    """Yield slices that BLAS multiplies with a matrix of some size without another thread."""
    step = max(1, _ONE_THREAD // size)
    for start in range(0, count, step):
        yield slice(start, start + step)


def _compute_greatest(
    values: Floats, lengths: np.ndarray[Any, np.dtype[np.int64]], least: float
) -> Floats:
    """Return the greatest value of each run of rows."""
    best = np.full((len(lengths), values.shape[1]), least, np.float32)
    some = np.flatnonzero(lengths)
    starts = (np.cumsum(lengths) - lengths)[some]
    best[some] = np.maximum.reduceat(values, starts, axis=0)
    return best


__all__ = [
    "QueryTokens",
    "TokenKind",
    "compute_idf_weights",
    "compute_max_sim_of_ids",
    "compute_max_sim_of_signs",
    "compute_norms",
    "pack_ids",
    "pack_signs",
    "query_tokens",
]
