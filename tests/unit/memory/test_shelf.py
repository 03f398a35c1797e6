"""The arrays that ranking works on follow every change."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.memory import shelf as shelves
from holdfast.memory.shelf import Shelf
from holdfast.memory.storage import IndexRow

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
    straight, mixed = Shelf(8), Shelf(8)
    straight.apply(changes)
    for number in PICK.permutation(len(changes)).tolist():
        mixed.apply([changes[number]])
    for shelf in (straight, mixed):
        assert shelf.column("row").tolist() == sorted(vectors)
        assert shelf.previous.tolist() == [-1, *range(28)]
        likeness = [float(vectors[row] @ vectors[row - 1]) for row in range(2, 30)]
        assert np.allclose(shelf.likeness[1:], likeness, atol=0.01)


def test_a_vector_that_comes_later_changes_its_neighbours_too() -> None:
    shelf, first, second = Shelf(8), unit(8), unit(8)
    shelf.apply([change(1, 1, None), change(2, 2, second, previous=1)])
    assert shelf.column("has_vector").tolist() == [False, True]
    shelf.apply([change(1, 3, first)])
    assert shelf.likeness[1] == pytest.approx(float(first @ second), abs=0.01)


@pytest.mark.parametrize("dimension", [64, 100, 256])
def test_estimated_cosines_find_what_exact_ones_find(
    monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    shelf = Shelf(dimension)
    query = unit(dimension)
    near = [unit(dimension) * 0.5 + query for _ in range(20)]
    near = [vector / np.linalg.norm(vector) for vector in near]
    others = [unit(dimension) for _ in range(2_000)]
    shelf.apply([change(row, row, one) for row, one in enumerate([*near, *others], 1)])
    exact = shelf.cosines(query, np.array([], np.int64))
    monkeypatch.setattr(shelves, "EXACT_ROWS", 100)
    monkeypatch.setattr(shelves, "NEAREST", 200)
    quick = shelf.cosines(query, np.array([2_000]))
    best = np.argsort(-exact)[:20]
    assert np.allclose(quick[best], exact[best], atol=1e-5)
    assert quick[2_000] == pytest.approx(exact[2_000], abs=1e-5)
    assert np.abs(quick - exact).max() < 0.6
