"""A store of artifacts with its journal, and a clock that is moved by hand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from holdfast.artifacts import (
    ARTIFACT_PROJECTIONS,
    ArtifactActor,
    ArtifactServices,
    ArtifactStore,
    FileBlobs,
    FileLocks,
)
from holdfast.journal import Journal, SqliteStore
from holdfast.testing import FakeClock

ADMIN = ArtifactActor(tenant="acme", subject="owner", user="local", is_admin=True)
Opens = Callable[..., AbstractAsyncContextManager[ArtifactStore]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_artifacts(tmp_path: Path, clock: FakeClock) -> Opens:
    """Open a store; keywords are fields of its services."""

    @contextlib.asynccontextmanager
    async def opened(place: Path = tmp_path, **fields: object) -> AsyncIterator[ArtifactStore]:
        database = SqliteStore(
            tmp_path / "journal.db", projections=ARTIFACT_PROJECTIONS, clock=clock
        )
        async with Journal(database, clock=clock) as journal:
            services = ArtifactServices(
                journal=journal,
                blobs=FileBlobs(place / "artifacts"),
                locks=FileLocks(tmp_path / "locks"),
                place="here",
                link_key=b"k" * 32,
            )
            for name, value in fields.items():
                setattr(services, name, value)
            try:
                yield ArtifactStore(services, ADMIN)
            finally:
                await services.locks.close()

    return opened


@pytest.fixture
async def store(open_artifacts: Opens) -> AsyncIterator[ArtifactStore]:
    async with open_artifacts() as store:
        yield store
