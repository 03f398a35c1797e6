"""Late interaction: every token of a query finds its nearest token in a text."""

from __future__ import annotations

import numpy as np
import pytest
from memory_setting import STATIC

from holdfast.memory import MiniLmEmbedder
from holdfast.memory.late_interaction import (
    compute_idf_weights,
    compute_max_sim_of_ids,
    compute_max_sim_of_signs,
    compute_norms,
    pack_ids,
    pack_signs,
    query_tokens,
)

PICK = np.random.default_rng(5)


def some(*shape: int) -> np.ndarray:
    return PICK.standard_normal(shape).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / compute_norms(vectors)[:, None]


@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_bits_give_the_product_with_the_signs(tokens: int) -> None:
    query, texts = unit(some(tokens, 384)), [some(5, 384), some(130, 384)]
    found = compute_max_sim_of_signs(query, [pack_signs(text, 128) for text in texts])
    for line, text in enumerate(texts):
        signs = np.where(text[:128] > 0, 1.0, -1.0) / np.sqrt(384)
        assert np.allclose(found[line], (query @ signs.T).max(axis=1), atol=1e-5)


def test_numbers_of_tokens_give_the_cosines_of_their_vectors() -> None:
    table = some(40, 16) + 0.5
    query = unit(table[[3, 9]] + 0.1)
    found = compute_max_sim_of_ids(
        query, [pack_ids([3, 4, 3], 8), pack_ids([9], 8)], table, compute_norms(table)
    )
    cosines = np.maximum(query @ unit(table).T - 0.3, 0.0) / 0.7
    assert np.allclose(found[0], cosines[:, [3, 4]].max(axis=1), atol=1e-5)
    assert np.allclose(found[1], cosines[:, 9], atol=1e-5)


def test_a_text_without_tokens_is_as_unlike_as_can_be() -> None:
    query = unit(some(2, 16))
    assert (compute_max_sim_of_signs(query, [b"", pack_signs(some(1, 16), 9)])[0] == -1.0).all()
    table = some(4, 16)
    assert (compute_max_sim_of_ids(query, [b""], table, compute_norms(table)) == 0.0).all()
    assert compute_max_sim_of_signs(query, []).shape == (0, 2)


def test_bytes_that_are_no_tokens_are_refused() -> None:
    query, table = unit(some(1, 16)), some(4, 16)
    with pytest.raises(ValueError, match="half of a token"):
        compute_max_sim_of_signs(query, [b"123"])
    with pytest.raises(ValueError, match="does not know"):
        compute_max_sim_of_ids(query, [pack_ids([4], 9)], table, compute_norms(table))


def test_rare_words_count_more_than_frequent_ones_and_fillers_least() -> None:
    words = ("", "what", "harbour", "dog", "unheard")
    mark, filler, rare, frequent, unknown = compute_idf_weights(
        words, {"harbour": 2, "dog": 90}, 1_000
    )
    assert rare > unknown > frequent > filler > mark > 0


def test_tokens_know_their_words() -> None:
    tokens = query_tokens("Café, naïve?", [(0, 2), (2, 4), (4, 5), (6, 11)], some(4, 8), "static")
    assert tokens.words == ("café", "café", "", "naïve")
    assert np.allclose(np.linalg.norm(tokens.matrix, axis=1), 1.0, atol=1e-5)


async def test_minilm_keeps_a_bit_per_dimension_of_every_real_token() -> None:
    embedder = MiniLmEmbedder()
    short, empty, long = await embedder.embed_texts(["two words", "", "word " * 1_000])
    assert [len(one.tokens) for one in (short, empty, long)] == [2 * 48, 0, 128 * 48]
    assert short.vector == pytest.approx(embedder.embed_now(["two words"])[0], abs=0.05)


async def test_the_same_words_are_nearer_than_others() -> None:
    for embedder in (MiniLmEmbedder(), STATIC):
        texts = ["The cat sleeps on the sofa", "Interest rates were raised again"]
        made = await embedder.embed_texts(texts)
        vector, query = await embedder.embed_query("Where does the cat sleep?")
        near, far = embedder.compute_max_similarities(query, [one.tokens for one in made])
        assert near.mean() > far.mean() + 0.1
        assert len(vector) == embedder.dimension and "cat" in query.words
