"""Runs that any process may take: by queue, within limits, at a deadline, on every store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from postgres_server import PostgresServer

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import UsageError
from holdfast.orchestration.triggers import Firing
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ScriptedModel, tool_call

PATIENCE_S = 60
T = TypeVar("T")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.make_database())


@contextlib.asynccontextmanager
async def opened(
    tmp_path: Path, url: str, name: str = "one", **settings: object
) -> AsyncIterator[AsyncClient]:
    overrides = {"storage.url": url, "workspace": str(tmp_path), **settings}
    async with AsyncClient(
        tmp_path / name, settings=load_settings(overrides=overrides).settings
    ) as client:
        yield client


@contextlib.asynccontextmanager
async def working(client: AsyncClient, **options: object) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(client.workers.run(stop, grace_s=5, **options))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield
            stop.set()
            await task
    finally:
        task.cancel()


async def until(look: Callable[[], Awaitable[T]]) -> T:
    """Return what is found as soon as there is something that no process tells of."""
    while not (found := await look()):  # noqa: ASYNC110 - rows of other processes
        await asyncio.sleep(0.02)
    return found


async def test_an_agent_that_is_bound_to_a_queue_runs_in_its_workers_only(
    tmp_path: Path, url: str
) -> None:
    bound = {"workers.queues": "reviewer=review"}
    async with (
        opened(tmp_path, url, "one", **bound) as plain,
        opened(tmp_path, url, "two", **bound) as service,
    ):
        for client, said in ((plain, "by the wrong one"), (service, "by the service")):
            await client.agents.register(Agent("reviewer", model=ScriptedModel(said, said)))
            await client.agents.register(Agent("builder", model=ScriptedModel("built", "built")))
        async with working(plain):
            review = await plain.runs.submit("reviewer", "", "Look")
            build = await plain.runs.submit("builder", "", "Make")
            assert (await plain.runs.wait(build.id)).status == "completed"
            assert (await plain.runs.get(review.id)).status == "queued"
        async with working(service, queues=["review"]):
            assert (await service.runs.wait(review.id)).status == "completed"
        assert (await service.runs.result(review.id)).response == "by the service"
        # Whoever woke it did not know of the queue: a worker hands it on.
        again = await plain.runs.submit("reviewer", review.session_id, "Once more")
        async with working(plain), working(service, queues=["review"]):
            assert (await plain.runs.wait(again.id)).status == "completed"


async def test_not_more_runs_of_an_agent_are_executed_than_the_settings_allow(
    tmp_path: Path, url: str
) -> None:
    at_once = most = 0

    async def answer(request: object) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(20):
            await asyncio.sleep(0)
        at_once -= 1
        return "done"

    async with opened(tmp_path, url, **{"workers.most_per_agent": "slow=2"}) as client:
        await client.agents.register(Agent("slow", model=FunctionModel(answer)))
        runs = [await client.runs.submit("slow", "", f"{number}") for number in range(6)]
        async with working(client, concurrency=6):
            for run in runs:
                assert (await client.runs.wait(run.id)).status == "completed"
    assert 1 <= most <= 2


async def test_a_submitted_run_that_asks_waits_and_asks_again_at_its_deadline(
    tmp_path: Path, url: str
) -> None:
    """Nothing stays in memory: the worker that wakes it need not be the one that asked."""
    done: list[str] = []

    @tool(permission="ask", effect="read")
    def look(what: str) -> str:
        """Look at something."""
        done.append(what)
        return what

    def answer(request: object) -> object:
        said = request.messages  # type: ignore[attr-defined]
        return "fine" if said[-1].role != "user" else tool_call("look", what="x")

    async with opened(tmp_path, url, **{"approvals.expires_after_s": "1s"}) as client:
        await client.agents.register(Agent("asker", model=FunctionModel(answer), tools=[look]))
        run = await client.runs.submit("asker", "", "hi")
        async with working(client):
            assert (await client.runs.wait(run.id)).status == "parked"
            [first] = await client.approvals.list(status="open")
        async with working(client):

            async def find_second() -> list[str]:
                found = await client.approvals.list(status="open")
                return [one.id for one in found if one.id != first.id]

            [second] = await until(find_second)
            await client.approvals.approve(second, by="ann")

            async def has_ended() -> bool:
                return (await client.runs.get(run.id)).status == "completed"

            await until(has_ended)
    assert done == ["x"]


async def test_workers_of_a_fleet_fire_each_trigger_once(tmp_path: Path, url: str) -> None:
    trigger = {
        "name": "greet",
        "on": {"kinds": ["session.created"], "where": "'Order' in event.data.title"},
        "agent": "greeter",
        "message": "Greet ${event.data.title}.",
    }
    async with opened(tmp_path, url, "one") as one, opened(tmp_path, url, "two") as two:
        for client in (one, two):
            await client.agents.register(Agent("greeter", model=ScriptedModel(*["hi"] * 8)))
        await one.triggers.add(trigger)
        async with working(one, triggers=True), working(two, triggers=True):
            for number in range(8):
                await (one, two)[number % 2].sessions.create(f"Order {number}")

            async def list_ended() -> list[Firing]:
                found = await one.triggers.firings()
                is_over = len(found) >= 8 and all(firing.status != "open" for firing in found)
                return found if is_over else []

            ended = await until(list_ended)
    assert sorted(firing.status for firing in ended) == ["completed"] * 8
    assert len({firing.occurrence for firing in ended}) == 8


async def test_what_a_worker_cannot_be_is_refused_before_it_begins(tmp_path: Path) -> None:
    async with opened(tmp_path, "") as client:
        for wrong in ({"queues": []}, {"queues": ["a/b"]}, {"concurrency": 0}, {"name": "a\nb"}):
            with pytest.raises(UsageError):
                await client.workers.run(asyncio.Event(), **wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await client.runs.submit("build", "", "hi", priority=101)
