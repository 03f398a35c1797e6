from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from facts_kit import Noted

from holdfast.hooks import EventBus, Hooks
from holdfast.journal import SYSTEM_SESSION, Journal, MemoryStore


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    async with Journal(MemoryStore()) as opened:
        yield opened


@pytest.fixture
def note(journal: Journal):
    async def append(*numbers: int) -> int:
        events = await journal.append(SYSTEM_SESSION, [Noted(number=number) for number in numbers])
        return events[-1].seq

    return append


@pytest.fixture
async def bus(journal: Journal) -> AsyncIterator[EventBus]:
    made = EventBus(journal, hooks=Hooks())
    yield made
    await made.close()
