"""Fixtures of the tests of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from served import Running, running


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as found:
        yield found
