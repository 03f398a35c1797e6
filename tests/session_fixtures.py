"""Sessions on both stores, with time under control."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.journal import Journal, MemoryStore, SqliteStore
from holdfast.sessions import SESSION_PROJECTIONS, Session, SessionManager
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper, TurnQueue


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def journal(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Journal]:
    store = (
        MemoryStore(projections=SESSION_PROJECTIONS, clock=clock)
        if request.param == "memory"
        else SqliteStore(tmp_path / "journal.db", projections=SESSION_PROJECTIONS, clock=clock)
    )
    async with Journal(store, clock=clock) as journal:
        yield journal


@pytest.fixture
def keeper(journal: Journal) -> Iterator[LeaseKeeper]:
    keeper = LeaseKeeper(journal)
    yield keeper
    keeper.close()


@pytest.fixture
def manager(journal: Journal, keeper: LeaseKeeper) -> SessionManager:
    return SessionManager(journal, keeper)


@pytest.fixture
async def queue(manager: SessionManager, keeper: LeaseKeeper) -> AsyncIterator[TurnQueue]:
    queue = TurnQueue(manager, keeper)
    yield queue
    await queue.close()


@pytest.fixture
async def session(manager: SessionManager) -> Session:
    return await manager.create_session("Math Help", directory="/srv/math")


@pytest.fixture
async def elsewhere(journal: Journal) -> AsyncIterator[TurnQueue]:
    """The same sessions as another process sees them: other owner, other leases."""
    keeper = LeaseKeeper(journal)
    queue = TurnQueue(SessionManager(journal, keeper), keeper)
    yield queue
    await queue.close()
    keeper.close()
