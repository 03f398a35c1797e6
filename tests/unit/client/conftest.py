"""Clients in a home of their own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import AsyncClient, Client


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and directory, and no settings from outside."""
    for name in list(os.environ):
        if name.startswith(("AGENT_", "XDG_", "HOLDFAST_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def client(state: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(state) as client:
        yield client


@pytest.fixture
def blocking(state: Path) -> Iterator[Client]:
    with Client(state) as client:
        yield client
