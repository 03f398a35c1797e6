"""What ranking needs of a place, as arrays that follow the storage change by change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.memory.storage import IndexRow, Place

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Doubles: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

EXACT_ROWS = 50_000
NEAREST = 4_096

_FIELDS: dict[str, tuple[str, float]] = {
    "row": ("i8", 0),
    "previous_row": ("i8", -1),
    "session": ("i8", 0),
    "speaker": ("i8", -1),
    "created": ("f8", 0),
    "valid_from": ("f8", 0),
    "valid_to": ("f8", np.inf),
    "expires": ("f8", np.inf),
    "importance": ("f4", 0.5),
    "previous": ("i8", -1),
    "likeness": ("f4", 0),
    "is_living": ("?", 0),
    "has_vector": ("?", 0),
}


class Shelf:
    """All memories of some places, for one embedder, sorted by row."""

    def __init__(self, dimension: int) -> None:
        """Start empty."""
        self.dimension = dimension
        self.revisions: dict[Place, int] = {}
        self.count = 0
        self.speakers: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self._columns = {name: np.full(0, blank, kind) for name, (kind, blank) in _FIELDS.items()}
        self._vectors: Floats = np.zeros((0, dimension), np.float32)
        self._signs: np.ndarray[Any, np.dtype[np.uint8]] = np.zeros(
            (0, (dimension + 63) // 64 * 8), np.uint8
        )
        self._is_shifted = False

    def apply(self, changes: Sequence[IndexRow]) -> None:
        """Take over changes; of several of one memory, the last one counts."""
        if not changes:
            return
        latest = {change.row: change for change in sorted(changes, key=lambda one: one.revision)}
        last = int(self.column("row")[-1]) if self.count else -1
        fresh = sorted(row for row in latest if row > last)
        touched = [self._slot(row) for row in sorted(latest.keys() - fresh)]
        for row in latest.keys() - fresh:
            self._put(self.positions(np.array([row]))[0], [latest[row]])
        if fresh:
            touched += range(self.count, self.count + len(fresh))
            self._make_room(len(fresh))
            self.count += len(fresh)
            self._put(self.count - len(fresh), [latest[row] for row in fresh])
        self._relate(np.array(touched, np.int64))

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """Return one column."""
        return self._columns[name][: self.count]

    @property
    def vectors(self) -> Floats:
        """Unit vectors; zeros where there is none."""
        return self._vectors[: self.count]

    @property
    def nbytes(self) -> int:
        """Memory that the arrays take."""
        return self._vectors.nbytes + sum(column.nbytes for column in self._columns.values())

    @property
    def previous(self) -> Ints:
        """The position of the turn before each one; -1 if there is none here."""
        return self.column("previous")

    @property
    def likeness(self) -> Floats:
        """The cosine between each memory and the turn before it."""
        return self.column("likeness")

    def cosines(self, vector: Floats, also: Ints) -> Floats:
        """Return the cosine of every memory with a unit vector.

        Above `EXACT_ROWS` memories most are estimated from the signs of their numbers; the
        nearest by that estimate, and those at the places `also`, are computed.
        """
        if self.count <= EXACT_ROWS:
            exact: Floats = self.vectors @ vector
            return exact
        asked = _signs(vector[None, :], self._signs.shape[1]).view(np.uint64)
        differ = np.bitwise_count(self._signs[: self.count].view(np.uint64) ^ asked)
        angles = np.pi * np.arange(self.dimension + 1) / self.dimension
        table: Floats = np.cos(angles).astype(np.float32)
        apart = differ.sum(axis=1, dtype=np.int64)
        cosine: Floats = table[apart] * self.column("has_vector")
        nearest = np.argpartition(-cosine, NEAREST)[:NEAREST]
        chosen = np.union1d(nearest, also)
        cosine[chosen] = self.vectors[chosen] @ vector
        return cosine

    def positions(self, rows: Ints) -> Ints:
        """Return where rows stand; -1 for those that are not here."""
        if not self.count:
            return np.full(len(rows), -1, np.int64)
        known = self.column("row")
        found = np.minimum(np.searchsorted(known, rows), self.count - 1)
        return np.where(known[found] == rows, found, -1)

    def _slot(self, row: int) -> int:
        """Return the place of a row that is not newer than all others; make it if need be."""
        known = self.column("row")
        place = int(np.searchsorted(known, row))
        if known[place] == row:
            return place
        # Stored before others that we already know: seldom, so shift.
        self._make_room(1)
        for column in (*self._columns.values(), self._vectors, self._signs):
            column[place + 1 : self.count + 1] = column[place : self.count].copy()
        self._columns["row"][place] = row
        self.count += 1
        self._is_shifted = True
        return place

    def _make_room(self, wanted: int) -> None:
        held = len(self._vectors)
        if self.count + wanted <= held:
            return
        more = max(64, held // 2, wanted)
        for name, (kind, blank) in _FIELDS.items():
            self._columns[name] = np.concatenate([self._columns[name], np.full(more, blank, kind)])
        blank_vectors = np.zeros((more, self.dimension), np.float32)
        self._vectors = np.concatenate([self._vectors, blank_vectors])
        blank_signs = np.zeros((more, self._signs.shape[1]), np.uint8)
        self._signs = np.concatenate([self._signs, blank_signs])

    def _put(self, place: int, changes: Sequence[IndexRow]) -> None:
        """Write changes into the places from this one on."""
        room = slice(place, place + len(changes))
        length = 2 * self.dimension
        has_vector = [len(one.vector or b"") == length > 0 for one in changes]
        values: dict[str, Sequence[object]] = {
            "row": [one.row for one in changes],
            "previous_row": [-1 if one.previous is None else one.previous for one in changes],
            "session": [self._code(self.sessions, one.session_id) for one in changes],
            "speaker": [self._code(self.speakers, one.speaker) for one in changes],
            "created": [one.created for one in changes],
            "valid_from": [one.valid_from for one in changes],
            "valid_to": [np.inf if one.valid_to is None else one.valid_to for one in changes],
            "expires": [np.inf if one.expires is None else one.expires for one in changes],
            "importance": [one.importance for one in changes],
            "is_living": [one.forgotten is None for one in changes],
            "has_vector": has_vector,
        }
        for name, column in values.items():
            self._columns[name][room] = column
        if length:
            blank = bytes(length)
            pieces = [
                (one.vector or blank) if fits else blank
                for one, fits in zip(changes, has_vector, strict=True)
            ]
            block = np.frombuffer(b"".join(pieces), "<f2")
            self._vectors[room] = block.reshape(len(changes), self.dimension)
            self._signs[room] = _signs(self._vectors[room], self._signs.shape[1])

    def _relate(self, touched: Ints) -> None:
        """Find the turns before, and how like them the turns are, where that may have changed."""
        if self._is_shifted:
            touched = np.arange(self.count)
            self._is_shifted = False
        self._columns["previous"][touched] = self.positions(self.column("previous_row")[touched])
        after = np.flatnonzero(np.isin(self.column("previous_row"), self.column("row")[touched]))
        self._columns["previous"][after] = self.positions(self.column("previous_row")[after])
        places = np.union1d(touched, after)
        places = places[self.previous[places] >= 0]
        for start in range(0, len(places), 20_000):
            some = places[start : start + 20_000]
            pairs = self.vectors[some] * self.vectors[self.previous[some]]
            self._columns["likeness"][some] = pairs.sum(axis=1)

    @staticmethod
    def _code(known: dict[str, int], name: str) -> int:
        return known.setdefault(name, len(known))


def _signs(vectors: Floats, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return one bit per number, padded to whole words of the machine."""
    packed = np.packbits(vectors > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, width - packed.shape[1])))


__all__ = ["Doubles", "Flags", "Floats", "Ints", "Shelf"]
