"""One contract for both clients: in the process of the runtime, and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from served import running

from holdfast import Agent, AsyncClient, Client, tool
from holdfast.agents import AgentResult
from holdfast.client import find_token
from holdfast.errors import (
    CannotTravel,
    HoldfastError,
    InvalidTransition,
    NotFound,
    RunFailed,
    ServerUnreachable,
    Unauthenticated,
    UsageError,
)
from holdfast.policy import Budget
from holdfast.providers import Finished, TextDelta
from holdfast.server import create_app
from holdfast.sessions import SessionFilter
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call


def make_agent() -> Agent:
    @tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    script = [tool_call("double", number=4), "It is 8."] * 20
    return Agent("doubler", model=ScriptedModel(*script), tools=[double])


def make_failing_agent() -> Agent:
    return Agent("failing", model=ScriptedModel(*[ValueError("no")] * 20))


@pytest.fixture(params=["local", "remote"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    agents = [make_agent(), make_failing_agent()]
    if request.param == "remote":
        async with running(tmp_path, agents=agents) as server:
            async with AsyncClient(server.url, api_key=server.token) as found:
                yield found
        return
    overrides = {"storage.state_dir": str(tmp_path), "workspace": str(tmp_path)}
    async with AsyncClient(settings=load_settings(overrides=overrides).settings) as found:
        registry = await found.agents.registry()
        for agent in agents:
            registry.offer(agent)
        yield found


async def test_sessions_and_messages(client: AsyncClient) -> None:
    session = await client.sessions.create("Math", metadata={"a": [1, {"b": None}]})
    assert await client.sessions.get(session.id) == session
    assert await client.sessions.get(session.slug) == session
    changed = await client.sessions.update(session.id, title="Sums")
    assert changed.title == "Sums" and changed.metadata == session.metadata
    said = await client.messages.add(session.id, "user", "Hello ünïcode \u2028")
    page = await client.messages.list(session.id)
    assert [one.id for one in page.items] == [said.id]
    assert await client.messages.get(session.id, said.id) == page.items[0]
    await client.messages.delete(session.id, said.id)
    copy = await client.sessions.fork(session.id, title="Copy")
    found = await client.sessions.list(SessionFilter(title_contains="Copy"), limit=5)
    assert [one.id for one in found.items] == [copy.id]
    assert (await client.sessions.archive(copy.id)).state == "archived"
    with pytest.raises(InvalidTransition) as refused:
        await client.messages.add(copy.id, "user", "x")
    assert refused.value.code == "session.invalid_transition"
    await client.sessions.delete(copy.id)
    with pytest.raises(NotFound) as missing:
        await client.sessions.get(copy.id)
    assert missing.value.context["value"] == copy.id
    assert "sessions list" in missing.value.hint


async def test_exports_are_the_same_bytes_and_come_back(client: AsyncClient) -> None:
    session = await client.sessions.create("Take me along")
    lines = [line async for line in client.sessions.lines(session.id)]
    assert len(lines) == 2 and all(line.endswith(b"\n") for line in lines)
    again = await client.sessions.load(b"".join(lines), as_new=True)
    assert again.title == "Take me along" and again.id != session.id
    heads = await client.audit.heads()
    assert await client.audit.verify(heads=heads) == []


async def test_runs_start_follow_and_end(client: AsyncClient) -> None:
    run = await client.runs.start("doubler", "", "Double 4", budget=Budget(max_calls=5))
    result = await run.result()
    assert (result.response, result.status, result.tools_used) == (
        "It is 8.",
        "completed",
        ("double",),
    )
    events = [event async for event in run.events()]
    numbers = [event.session_seq for event in events]
    assert numbers == sorted(set(numbers))
    assert events[-1].kind == "run.completed"
    assert type(events[-1].decode()).__name__ == "RunCompleted"
    assert [event async for event in run.events(after=numbers[2])] == events[3:]
    items = [item async for item in client.runs.stream("doubler", "", "Double 4")]
    assert isinstance(items[-1], AgentResult) and items[-1].response == "It is 8."
    assert "".join(one.text for one in items if isinstance(one, TextDelta)) == "It is 8."
    assert any(isinstance(one, Finished) for one in items)
    followed = [item async for item in run.stream()]
    assert isinstance(followed[-1], AgentResult)
    assert followed[-1].response == (await run.result()).response
    assert (await client.runs.get(run.id)).status == "completed"
    assert run.id in [one.id for one in await client.runs.list()]
    again = await client.runs.execute("doubler", "", "Double 4", run_id="job-1")
    repeated = await client.runs.execute("doubler", "", "Double 4", run_id="job-1")
    assert (repeated.run_id, repeated.parts) == ("job-1", again.parts)
    listed = await client.events.list(run.session_id)
    assert [one for one in listed if one.run_id == run.id] == events


async def test_a_failed_run_is_raised_with_its_result(client: AsyncClient) -> None:
    run = await client.runs.start("failing", "", "x")
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert failed.value.result.status == "failed"
    assert (await run.result(raise_on_failure=False)).status == "failed"
    with pytest.raises(RunFailed):
        [item async for item in run.stream()]
    assert (await client.runs.execute("failing", "", "x")).status == "failed"


async def test_memory(client: AsyncClient) -> None:
    session = await client.sessions.create("s")
    kept = await client.memory.store(session.id, "The gate is green", {"topic": "gate"})
    [found] = await client.memory.search(session.id, "gate", filters={"topic": "gate"})
    assert (found.id, found.content) == (kept, "The gate is green")
    assert (await client.memory.get(kept)).metadata["topic"] == "gate"
    newer = await client.memory.update(kept, "The gate is red")
    assert [one.content for one in await client.memory.history(newer)][-1] == "The gate is red"
    await client.memory.pin(newer)
    assert newer in await client.memory.forget([newer])


async def test_what_there_is(client: AsyncClient) -> None:
    assert await client.agents.get("none") is None
    assert (await client.agents.get("build")).name == "build"
    assert "doubler" in [one.name for one in await client.agents.list()]
    assert await client.sessions.most_recent(SessionFilter(title_contains="none")) is None
    assert await client.approvals.list() == []
    assert await client.approvals.questions() == []
    assert await client.mcp.endpoints() == []
    assert await client.workflows.list() == []
    assert await client.triggers.list() == []
    assert (await client.usage.get()).total.calls == 0
    assert (await client.storage.stats())["events"] >= 0
    assert await client.runs.interrupted() == []
    assert (await client.policies.reload()) is not None


async def test_wrong_questions_are_refused_with_the_same_errors(client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await client.runs.execute("nobody", "", "x")
    with pytest.raises(UsageError):
        await client.runs.list(kind="nonsense")
    with pytest.raises(UsageError):
        await client.runs.execute("doubler", "", 7)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError):
        await client.sessions.list(limit=0)
    with pytest.raises(NotFound):
        [item async for item in client.runs.events("run_none")]


# --- what only a remote client does ---------------------------------------------------


async def test_what_cannot_travel_is_refused_with_advice(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with AsyncClient(server.url, api_key=server.token) as client:
            with pytest.raises(CannotTravel) as refused:
                await client.tools.register(make_agent().tools[0])
            assert "entry point" in refused.value.hint
            with pytest.raises(UsageError) as told:
                await client.runs.execute(make_agent(), "", "x")
            assert "register the agent there" in str(told.value)
            with pytest.raises(CannotTravel):
                client.hooks.on(object, print)
            with pytest.raises(CannotTravel):
                _ = client.base_dir


async def test_who_has_no_key_or_no_server_learns_it(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with AsyncClient(server.url, api_key="wrong") as client:
            with pytest.raises(Unauthenticated):
                await client.runs.list()
        url = server.url
    async with AsyncClient(url, api_key="x") as client:
        client._channel._patience_s = 0.2
        with pytest.raises(ServerUnreachable):
            await client.runs.list()


@pytest.mark.parametrize("url", ["http://example.com", "http://me:pw@127.0.0.1", "https://"])
def test_a_key_is_sent_only_where_nobody_else_reads_it(url: str) -> None:
    with pytest.raises(UsageError):
        AsyncClient(url, api_key="secret")


async def test_the_token_of_the_state_directory_is_found_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        overrides = {"storage.state_dir": str(tmp_path)}
        settings = load_settings(overrides=overrides).settings
        async with AsyncClient(server.url, settings=settings) as client:
            assert await client.runs.list() == []


async def test_the_blocking_client_asks_the_same_server(tmp_path: Path) -> None:
    async with running(tmp_path, agents=[make_agent()]) as server:

        def ask() -> tuple[str, list[str]]:
            with Client(server.url, api_key=server.token) as client:
                run = client.runs.start("doubler", "", "Double 4")
                kinds = [event.kind for event in run.events()]
                return run.result().response, kinds

        response, kinds = await asyncio.to_thread(ask)
        assert (response, kinds[-1]) == ("It is 8.", "run.completed")


async def test_leaving_a_stream_early_cancels_its_run(tmp_path: Path) -> None:
    async with running(tmp_path, agents=[make_agent()]) as server:
        async with AsyncClient(server.url, api_key=server.token) as client:
            items = client.runs.stream("doubler", "", "Double 4", run_id="left")
            async for _ in items:
                break
            await items.aclose()
            status = (await client.runs.result("left", raise_on_failure=False)).status
            assert status in ("cancelled", "completed")


def test_an_app_that_is_mounted_elsewhere_is_plain_asgi(tmp_path: Path) -> None:
    overrides = {"storage.state_dir": str(tmp_path)}
    app = create_app(load_settings(overrides=overrides).settings)
    assert callable(app)
    assert find_token(tmp_path)
