"""What the tests of memory share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

from holdfast.journal import Payload
from holdfast.memory import InMemoryStorage, MemoryEntry, MemoryManager, StaticEmbedder
from holdfast.testing import FakeClock

STATIC = StaticEmbedder()


class LetterEmbedder:
    """Counts letters: cheap, and alike for alike texts."""

    dimension = 26

    def __init__(self, model_id: str = "letters/1") -> None:
        self.model_id = model_id
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        return [[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts]


class BrokenEmbedder(LetterEmbedder):
    """Gives whatever it is told to give."""

    def __init__(self, answer: Any) -> None:
        super().__init__("broken/1")
        self.answer = answer

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer for _ in texts]


NAN = [math.nan] * 26


@contextlib.asynccontextmanager
async def opened(embedder: Any = STATIC, **options: Any) -> AsyncIterator[MemoryManager]:
    """Open a manager over a storage in memory."""
    options.setdefault("clock", FakeClock())
    storage = options.pop("storage", None) or InMemoryStorage()
    async with MemoryManager(storage, embedder, **options) as manager:
        yield manager


class Notebook:
    """Keeps the facts that a manager notes."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, Payload]] = []

    async def __call__(self, session_id: str, fact: Payload) -> None:
        self.facts.append((session_id, fact))

    @property
    def kinds(self) -> list[str]:
        return [fact.kind for _, fact in self.facts]


def related(entries: list[MemoryEntry]) -> list[MemoryEntry]:
    """Those that have a word or a meaning in common with the query; the others only fill up."""
    return [one for one in entries if one.parts is not None and not one.parts.unrelated]
