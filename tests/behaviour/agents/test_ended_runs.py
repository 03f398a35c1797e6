"""An ended run lets go of everything by itself, without waiting for the garbage collector."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.testing import ScriptedModel, tool_call

RUNS = 5


@tool(effect="read")
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_files() -> list[str]:
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors())


def _descriptors() -> list[str]:
    # The one that lists the folder is gone again when it is looked at.
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


async def go(client: AsyncClient) -> None:
    agent = Agent("counter", tools=[double], model=ScriptedModel(tool_call("double", number=2), ""))
    assert (await agent.run("go", client=client)).status == "completed"


@pytest.mark.usefixtures("uncollected")
async def test_ended_runs_hold_no_files_and_leave_next_to_nothing_to_collect(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path) as client:
        await go(client)
        gc.collect()
        before = open_files()
        for _ in range(RUNS):
            await go(client)
        assert open_files() == before
        # Asyncio itself leaves a few objects with every task.
        assert gc.collect() < 10 * RUNS
