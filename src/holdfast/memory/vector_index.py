"""What ranking needs of a place, as arrays that follow the storage change by change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from holdfast.memory.word_index import measure_substance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.memory.storage import IndexRow, MemoryPlace

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Doubles: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

WHOLE = 4_096
"""Up to so many memories are all compared; beyond, signs choose the nearest first."""
NEAREST = 512

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
    "following": ("i8", -1),
    "substance": ("f4", 0),
    "likeness": ("f4", 0),
    "is_question": ("?", 0),
    "is_living": ("?", 0),
    "has_vector": ("?", 0),
}


class VectorIndex:
    """All memories of some places, for one embedder, sorted by row."""

    def __init__(self, dimension: int) -> None:
        """Start empty."""
        self.dimension = dimension
        self.revisions: dict[MemoryPlace, int] = {}
        self.count = 0
        self.speakers: dict[str, int] = {}
        self.sessions: dict[str, int] = {}
        self._columns = {name: np.full(0, blank, kind) for name, (kind, blank) in _FIELDS.items()}
        self._vectors: Floats = np.zeros((0, dimension), np.float32)
        # Word by word, not memory by memory: so that comparing runs through whole columns.
        self._signs: Words = np.zeros(((dimension + 63) // 64, 0), np.uint64)
        self._is_shifted = False

    def apply(self, changes: Sequence[IndexRow]) -> None:
        """Take over changes; of several of one memory, the last one counts."""
        if not changes:
            return
        latest = {change.row: change for change in sorted(changes, key=lambda one: one.revision)}
        last = int(self.column("row")[-1]) if self.count else -1
        fresh = sorted(row for row in latest if row > last)
        touched = [self._find_slot(row) for row in sorted(latest.keys() - fresh)]
        for row in latest.keys() - fresh:
            self._put(self.find_positions(np.array([row]))[0], [latest[row]])
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

    @property
    def following(self) -> Ints:
        """The position of the turn after each one, the newest if several; -1 if none."""
        return self.column("following")

    @property
    def is_utterance(self) -> Flags:
        """Whether a speaker said it."""
        silent = self.speakers.get("", -1)
        said: Flags = self.column("speaker") != silent
        return said

    @property
    def is_whole(self) -> bool:
        """Whether every living memory has its vector."""
        return bool((self.column("has_vector") | ~self.column("is_living")).all())

    @property
    def has_vectors(self) -> bool:
        """Whether any living memory has a vector."""
        return bool((self.column("has_vector") & self.column("is_living")).any())

    def compute_cosines(self, vector: Floats, places: Ints) -> Floats:
        """Return the cosines of the memories at some places with a unit vector."""
        # Of more than half it is cheaper to look at all than to copy some.
        is_most = 2 * len(places) > self.count
        some = self.vectors if is_most else self.vectors.take(places, axis=0)
        # Not `@`: for so little work, waking the threads of BLAS costs more than it saves.
        exact: Floats = np.einsum("ij,j->i", some, vector)
        return exact.take(places) if is_most else exact

    def find_nearest(self, vector: Floats, mask: Flags, wanted: int) -> Ints:
        """Return the places of the allowed memories that are nearest by their signs.

        At least as many as wanted, if there are; all that are equally near, but not more
        than twice as many as wanted.
        """
        asked = _compute_signs(vector[None, :], len(self._signs))
        apart: np.ndarray[Any, np.dtype[Any]]
        apart = np.zeros(self.count, np.uint8 if self.dimension < 256 else np.uint16)
        for known, own in zip(self._signs, asked, strict=True):
            apart += np.bitwise_count(known[: self.count] ^ own[0])
        allowed = np.flatnonzero(mask & self.column("has_vector"))
        if len(allowed) <= wanted:
            return allowed
        some = apart if len(allowed) == self.count else apart[allowed]
        limit = int(np.searchsorted(np.cumsum(np.bincount(some)), wanted))
        chosen = allowed[some <= limit]
        return chosen[-2 * wanted :]

    def find_positions(self, rows: Ints) -> Ints:
        """Return where rows stand; -1 for those that are not here."""
        if not self.count:
            return np.full(len(rows), -1, np.int64)
        known = self.column("row")
        found = np.minimum(np.searchsorted(known, rows), self.count - 1)
        return np.where(known[found] == rows, found, -1)

    def _find_slot(self, row: int) -> int:
        """Return the place of a row that is not newer than all others; make it if need be."""
        known = self.column("row")
        place = int(np.searchsorted(known, row))
        if known[place] == row:
            return place
        # Stored before others that we already know: seldom, so shift.
        self._make_room(1)
        for column in (*self._columns.values(), self._vectors, self._signs.T):
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
        blank_signs = np.zeros((len(self._signs), more), np.uint64)
        self._signs = np.concatenate([self._signs, blank_signs], axis=1)

    def _put(self, place: int, changes: Sequence[IndexRow]) -> None:
        """Write changes into the places from this one on."""
        room = slice(place, place + len(changes))
        length = 2 * self.dimension
        has_vector = [len(one.vector or b"") == length > 0 for one in changes]
        values: dict[str, Sequence[object]] = {
            "row": [one.row for one in changes],
            "previous_row": [-1 if one.previous is None else one.previous for one in changes],
            "session": [self._give_number(self.sessions, one.session_id) for one in changes],
            "speaker": [self._give_number(self.speakers, one.speaker) for one in changes],
            "created": [one.created for one in changes],
            "valid_from": [one.valid_from for one in changes],
            "valid_to": [np.inf if one.valid_to is None else one.valid_to for one in changes],
            "expires": [np.inf if one.expires is None else one.expires for one in changes],
            "importance": [one.importance for one in changes],
            "substance": [measure_substance(one) for one in changes],
            "is_question": [one.is_question for one in changes],
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
            self._signs[:, room] = _compute_signs(self._vectors[room], len(self._signs))

    def _relate(self, touched: Ints) -> None:
        """Find the turns before, and how like them the turns are, where that may have changed."""
        is_shifted, self._is_shifted = self._is_shifted, False
        if is_shifted:
            touched = np.arange(self.count)
        self._columns["previous"][touched] = self.find_positions(
            self.column("previous_row")[touched]
        )
        after = np.flatnonzero(np.isin(self.column("previous_row"), self.column("row")[touched]))
        self._columns["previous"][after] = self.find_positions(self.column("previous_row")[after])
        places = np.union1d(touched, after)
        places = places[self.previous[places] >= 0]
        if is_shifted:
            self._columns["following"][: self.count] = -1
        self._columns["following"][self.previous[places]] = places
        for start in range(0, len(places), 20_000):
            some = places[start : start + 20_000]
            pairs = self.vectors[some] * self.vectors[self.previous[some]]
            self._columns["likeness"][some] = pairs.sum(axis=1)

    @staticmethod
    def _give_number(known: dict[str, int], name: str) -> int:
        return known.setdefault(name, len(known))


def _compute_signs(vectors: Floats, words: int) -> Words:
    """Return one bit per number, in words of the machine: words by vectors."""
    packed = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(packed), 8 * words), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(padded.view(np.uint64).T)


__all__ = ["Doubles", "Flags", "Floats", "Ints", "VectorIndex"]
