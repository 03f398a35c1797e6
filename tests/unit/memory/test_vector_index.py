"""The arrays that ranking works on follow every change."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.memory.storage import IndexRow
from holdfast.memory.vector_index import VectorIndex

PICK = np.random.default_rng(3)


def unit(dimension: int) -> np.ndarray:
    vector = PICK.standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


def change(row: int, revision: int, vector: np.ndarray | None, previous: int | None = None):
    data = None if vector is None else vector.astype("<f2").tobytes()
    return IndexRow(row, "s", "Ada", 1.0, 1.0, None, None, 0.5, previous, None, revision, data)


def test_rows_in_any_order_end_up_sorted_and_related() -> None:
    vectors = {row: unit(8) for row in range(1, 30)}
    changes = [change(row, row, vectors[row], row - 1 if row > 1 else None) for row in vectors]
    straight, mixed = VectorIndex(8), VectorIndex(8)
    straight.apply(changes)
    for number in PICK.permutation(len(changes)).tolist():
        mixed.apply([changes[number]])
    for index in (straight, mixed):
        assert index.column("row").tolist() == sorted(vectors)
        assert index.previous.tolist() == [-1, *range(28)]
        likeness = [float(vectors[row] @ vectors[row - 1]) for row in range(2, 30)]
        assert np.allclose(index.likeness[1:], likeness, atol=0.01)


def test_a_vector_that_comes_later_changes_its_neighbours_too() -> None:
    index, first, second = VectorIndex(8), unit(8), unit(8)
    index.apply([change(1, 1, None), change(2, 2, second, previous=1)])
    assert index.column("has_vector").tolist() == [False, True]
    index.apply([change(1, 3, first)])
    assert index.likeness[1] == pytest.approx(float(first @ second), abs=0.01)


@pytest.mark.parametrize("dimension", [64, 100, 256, 384])
def test_the_nearest_by_signs_hold_the_nearest(dimension: int) -> None:
    index = VectorIndex(dimension)
    query = unit(dimension)
    near = [unit(dimension) * 0.5 + query for _ in range(20)]
    near = [vector / np.linalg.norm(vector) for vector in near]
    others = [unit(dimension) for _ in range(2_000)]
    index.apply([change(row, row, one) for row, one in enumerate([*near, *others], 1)])
    everybody = np.ones(index.count, bool)
    exact = index.compute_cosines(query, np.arange(index.count))
    best = set(np.argsort(-exact)[:20].tolist())
    chosen = index.find_nearest(query, everybody, 200)
    assert best <= set(chosen.tolist())
    assert 200 <= len(chosen) <= 400
    everybody[list(best)] = False
    assert not best & set(index.find_nearest(query, everybody, 200).tolist())


def test_equal_vectors_do_not_make_everything_a_candidate() -> None:
    index, same = VectorIndex(64), unit(64)
    index.apply([change(row, row, same) for row in range(1, 2_001)])
    chosen = index.find_nearest(same, np.ones(2_000, bool), 100)
    assert chosen.tolist() == list(range(1_800, 2_000))


def test_the_turn_after_is_known_in_any_order_of_arrival() -> None:
    changes = [change(row, row, None, row - 1 if row > 1 else None) for row in range(1, 30)]
    index = VectorIndex(0)
    for number in PICK.permutation(len(changes)).tolist():
        index.apply([changes[number]])
    assert index.following.tolist() == [*range(1, 29), -1]


def test_long_statements_say_more_than_questions_and_things_nobody_said_are_left_alone() -> None:
    def said(row: int, speaker: str, characters: int, is_question: bool) -> IndexRow:
        return IndexRow(
            row, "s", speaker, 1.0, 1.0, None, None, 0.5, None, None, row, None,
            characters, is_question,
        )  # fmt: skip

    index = VectorIndex(0)
    index.apply([
        said(1, "Ada", 400, False), said(2, "Ada", 60, False), said(3, "Ada", 60, True),
        said(4, "Ada", 5, True), said(5, "", 400, True),
    ])  # fmt: skip
    told = index.column("substance").tolist()
    assert told[:4] == sorted(told[:4], reverse=True) and len(set(told[:4])) == 4
    assert told[4] == 0.0
