"""Bit packing and scores of late interaction keep their bounds, whatever the vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from holdfast.memory.dialogue import StoredLine, describe_label, drop_label, infer_turn
from holdfast.memory.late_interaction import (
    compute_idf_weights,
    compute_max_sim_of_ids,
    compute_max_sim_of_signs,
    compute_norms,
    pack_ids,
    pack_signs,
)

NUMBERS = st.floats(-1e3, 1e3, width=32)
SHAPES = st.tuples(st.integers(1, 6), st.sampled_from([8, 16, 64]))
MATRICES = SHAPES.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=NUMBERS))


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / compute_norms(vectors)[:, None]).astype(np.float32)


@given(MATRICES, st.integers(0, 8))
def test_packing_keeps_every_sign_of_the_first_tokens(vectors: np.ndarray, limit: int) -> None:
    packed = pack_signs(vectors, limit)
    kept = min(limit, len(vectors))
    assert len(packed) == kept * vectors.shape[1] // 8
    bits = np.unpackbits(np.frombuffer(packed, np.uint8)).reshape(kept, vectors.shape[1])
    assert (bits == (vectors[:kept] > 0)).all()


@settings(max_examples=60)
@given(st.data())
def test_max_sim_is_bounded_and_grows_with_the_text(data: st.DataObject) -> None:
    query = unit(data.draw(MATRICES))
    dimension = query.shape[1]
    some = arrays.arrays(
        np.float32, st.tuples(st.integers(1, 5), st.just(dimension)), elements=NUMBERS
    )
    text, more = data.draw(some), data.draw(some)
    whole = pack_signs(np.vstack([text, more]), 99)
    part, both = compute_max_sim_of_signs(query, [pack_signs(text, 99), whole])
    assert (np.abs(part) <= 1.0 + 1e-5).all() and (both >= part - 1e-5).all()


@settings(max_examples=60)
@given(MATRICES, st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=4))
def test_static_max_sim_is_between_0_and_1(table: np.ndarray, texts: list[list[int]]) -> None:
    known = [[one for one in ids if one < len(table)] for ids in texts]
    found = compute_max_sim_of_ids(
        unit(table), [pack_ids(ids, 9) for ids in known], table, compute_norms(table)
    )
    assert found.shape == (len(texts), len(table))
    assert (found >= 0.0).all() and (found <= 1.0).all()
    for line, ids in enumerate(known):
        own = [one for one in ids if np.linalg.norm(table[one]) > 1e-3]
        assert all(found[line][one] > 0.99 for one in own)


@given(
    st.lists(st.sampled_from(["", "the", "cat", "dog", "owl"]), min_size=1, max_size=9),
    st.dictionaries(st.sampled_from(["cat", "dog"]), st.integers(0, 10**6)),
    st.integers(0, 10**6),
)
def test_weights_of_query_tokens_are_shares(
    words: list[str], counts: dict[str, int], total: int
) -> None:
    weights = compute_idf_weights(words, counts, total)
    assert (weights >= 0).all() and abs(float(weights.sum()) - 1.0) < 1e-4


LINES = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.builds(lambda who, what: f"{who}: {what}", st.sampled_from(["Ada", "Bo", "Note"]),
                  st.text(min_size=1, max_size=10)),
    ),
    max_size=9,
)  # fmt: skip


@given(LINES, st.text(max_size=40))
def test_a_speaker_is_inferred_only_where_a_label_recurs(lines: list[str], text: str) -> None:
    before = [StoredLine(row, line, "") for row, line in enumerate(lines, 1)][::-1]
    for new in (text, *lines[:2]):
        found = infer_turn(new, before)
        assert drop_label(new) == new or describe_label(new)
        if not found.speaker:
            assert found.follows is None and found.earlier == ()
            continue
        assert found.speaker == describe_label(new) and found.follows == before[0].row
        labels = [describe_label(line) for line in (new, *(one.content for one in before[:7]))]
        run = labels[: labels.index("")] if "" in labels else labels
        assert len(run) >= 3 and max(run.count(label) for label in run) >= 2
        assert {row for row, _, _ in found.earlier} == {one.row for one in before[: len(run) - 1]}
