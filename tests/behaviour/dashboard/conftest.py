"""One browser and one server with records for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from browser import Visitor, open_browser, visit
from demo import fill, make_agents
from playwright.async_api import Browser
from served import Running, running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as found:
        yield found


class World:
    """A server with records, and the ids of some of them."""

    def __init__(self, server: Running, kept: dict[str, str]) -> None:
        self.server = server
        self.kept = kept


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    place: Path = tmp_path_factory.mktemp("world")
    async with running(place, agents=make_agents()) as server:
        yield World(server, await fill(server))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def login(world: World, browser: Browser) -> Any:
    """The cookies of a login of the owner, which all tests of a module share."""
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(world.server.token)
        return await visitor.context.storage_state()


@pytest_asyncio.fixture(loop_scope="module")
async def owner(world: World, browser: Browser, login: Any) -> AsyncIterator[Visitor]:
    """The owner of the state directory, logged in."""
    async with visit(world.server, browser, storage_state=login) as visitor:
        yield visitor
        await visitor.check_unharmed()
