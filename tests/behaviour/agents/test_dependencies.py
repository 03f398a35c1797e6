"""Dependencies by type: handed to a run, found by tools and prompts, never kept."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pytest

from holdfast import Agent, AsyncClient, Injected, RunContext, ToolContext, tool
from holdfast.errors import DependencyMissing, RunFailed, RunInTheWay, UsageError
from holdfast.testing import ScriptedModel, tool_call


class Database:
    """Something that cannot be written down."""

    def __init__(self, price: int = 5) -> None:
        self.price = price


@dataclass
class Shop:
    """What the tools of these tests need."""

    name: str
    database: Database


@runtime_checkable
class Greets(Protocol):
    """Something that can greet."""

    def greet(self) -> str:
        """Say hello."""
        ...


class Polite:
    """Greets."""

    def greet(self) -> str:
        return "good day"


@tool
def find_price(item: str, database: Injected[Database]) -> int:
    """Return a price."""
    return database.price


@tool
async def name_shop(context: ToolContext[Shop]) -> str:
    """Return the name of the shop."""
    return context.deps.name


@pytest.fixture
async def client(tmp_path):
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        yield client


def outputs(model: ScriptedModel) -> list[str]:
    """What the calls returned, as the model was told."""
    return [
        part.output
        for message in model.requests[-1].messages
        for part in message.tool_calls
        if part.state == "completed"
    ]


def test_the_model_does_not_see_what_the_run_fills():
    assert set(find_price.parameters["properties"]) == {"item"}
    assert name_shop.parameters["properties"] == {}


async def test_tools_get_deps_and_its_fields_by_type(client):
    model = ScriptedModel(tool_call("find_price", item="tea"), tool_call("name_shop"), "done")
    agent = Agent("seller", model=model, tools=[find_price, name_shop], deps_type=Shop)
    await agent.run("How much?", client=client, deps=Shop("Corner", Database(7)))
    assert outputs(model) == ["7", "Corner"]


async def test_a_protocol_is_found_and_a_default_stands_in(client):
    @tool
    def welcome(greeter: Injected[Greets], shop: Injected[Shop | None] = None) -> str:
        """Welcome."""
        return f"{greeter.greet()} {shop}"

    model = ScriptedModel(tool_call("welcome"), "done")
    await Agent("host", model=model, tools=[welcome]).run("Hi", client=client, deps=Polite())
    assert outputs(model) == ["good day None"]


async def test_a_service_of_the_client_is_found_where_deps_has_none(client):
    client.context.provide(Database, Database(9))
    model = ScriptedModel(tool_call("find_price", item="tea"), "done")
    await Agent("seller", model=model, tools=[find_price]).run("How much?", client=client)
    assert outputs(model) == ["9"]


@pytest.mark.parametrize("way", ["a tool asks", "the prompt asks", "the type is declared"])
async def test_a_run_without_them_is_refused_before_anything_happens(client, way):
    def write(shop: Shop) -> str:
        return shop.name

    fields = {
        "a tool asks": {"tools": [find_price]},
        "the prompt asks": {"prompt": write},
        "the type is declared": {"deps_type": Shop},
    }[way]
    model = ScriptedModel("never")
    agent = Agent("seller", model=model, **fields)
    with pytest.raises(DependencyMissing) as caught:
        await agent.run("How much?", client=client, run_id="sale")
    assert "deps=" in caught.value.hint
    assert model.requests == []
    assert await client.runs.list() == []


async def test_deps_of_another_type_are_refused(client):
    agent = Agent("seller", model=ScriptedModel("never"), deps_type=Shop)
    with pytest.raises(UsageError, match="Shop"):
        await agent.run("Hi", client=client, deps=Database())  # type: ignore[arg-type]


async def test_two_fields_of_one_type_are_refused_rather_than_guessed(client):
    @dataclass
    class Two:
        first: Database
        second: Database

    agent = Agent("seller", model=ScriptedModel("never"), tools=[find_price])
    with pytest.raises(UsageError, match="2 fields"):
        await agent.run("Hi", client=client, deps=Two(Database(), Database()))


def test_a_parameter_that_no_value_can_be_recognised_by_is_refused():
    class Bare(Protocol):
        def greet(self) -> str: ...

    with pytest.raises(UsageError, match="runtime_checkable"):

        @tool
        def one(greeter: Injected[Bare]) -> str:
            """Greet."""
            return ""

    with pytest.raises(UsageError, match="one class"):

        @tool
        def two(greeter: Injected[Shop | Database]) -> str:
            """Greet."""
            return ""

    with pytest.raises(UsageError, match="no type"):
        Agent("x", prompt=lambda shop: "")


async def test_instructions_are_written_anew_for_every_turn(client):
    seen = []

    async def write(context: RunContext[Shop], database: Database) -> str:
        seen.append(context.message)
        return f"You sell for {context.deps.name} at {database.price}."

    model = ScriptedModel("one", "two")
    agent = Agent("seller", model=model, prompt="Be brief.", deps_type=Shop)
    agent.instructions(write)
    first = await agent.run("Hi", client=client, deps=Shop("Corner", Database(1)))
    await agent.run(
        "Again", client=client, session=first.session_id, deps=Shop("Corner", Database(2))
    )
    first_prompt, second_prompt = (request.system for request in model.requests)
    assert first_prompt.startswith("Be brief.")
    assert first_prompt.endswith("\n\nYou sell for Corner at 1.")
    # Only the end is another: what stands before it can be cached.
    assert second_prompt == first_prompt.removesuffix("1.") + "2."
    assert seen == ["Hi", "Again"]
    assert agent.prompt == "Be brief."


async def test_instructions_that_are_no_text_fail_the_run(client):
    agent = Agent("seller", model=ScriptedModel("never"), prompt=lambda: 5)  # type: ignore[arg-type]
    with pytest.raises(RunFailed, match="no text"):
        await agent.run("Hi", client=client)


async def test_an_agent_below_gets_them_too(client):
    below = Agent(
        "below", model=ScriptedModel(tool_call("name_shop"), "in Corner"), tools=[name_shop]
    )
    model = ScriptedModel(tool_call("below", task="Where are we?"), "done")
    above = Agent("above", model=model, tools=[below.as_tool()])
    await above.run("Where?", client=client, deps=Shop("Corner", Database()))
    assert "in Corner" in outputs(model)[0]


async def test_a_wrapped_agent_keeps_its_instructions_and_its_type(client):
    def write(shop: Shop) -> str:
        return f"You sell for {shop.name}."

    model = ScriptedModel("done")
    agent = Agent("seller", model=model, prompt=write, deps_type=Shop)
    loud = agent.wrapped(before=str.upper)
    await loud.run("hi", client=client, deps=Shop("Corner", Database()))
    assert model.requests[0].system.endswith("You sell for Corner.")
    assert model.requests[0].messages[-1].text == "HI"


async def test_a_process_that_lacks_the_instructions_refuses_the_registered_agent(tmp_path):
    def write(shop: Shop) -> str:
        return shop.name

    agent = Agent("seller", model=ScriptedModel("x"), prompt=write, deps_type=Shop)
    async with AsyncClient(base_dir=tmp_path / "state") as first:
        await first.register_agent(agent)
    async with AsyncClient(base_dir=tmp_path / "state") as second:
        with pytest.raises(UsageError, match="Functions write the prompt"):
            await second.execute_agent("seller", "", "Hi", deps=Shop("Corner", Database()))


async def test_a_registered_agent_of_another_process_names_the_type_that_it_needs(tmp_path):
    async with AsyncClient(base_dir=tmp_path / "state") as first:
        await first.register_agent(Agent("seller", deps_type=Shop))
    async with AsyncClient(base_dir=tmp_path / "state") as second:
        with pytest.raises(DependencyMissing, match="Shop"):
            await second.execute_agent("seller", "", "Hi")


async def test_a_run_that_has_ended_is_read_without_them(client):
    model = ScriptedModel("done")
    agent = Agent("seller", model=model, deps_type=Shop)
    await agent.run("Hi", client=client, run_id="sale", deps=Shop("Corner", Database()))
    assert (await agent.run("Hi", client=client, run_id="sale")).response == "done"
    assert len(model.requests) == 1


async def test_a_parked_run_that_was_started_here_goes_on_with_what_it_was_handed(client):
    @tool(permission="ask")
    def sell(shop: Injected[Shop]) -> str:
        """Sell."""
        return shop.name

    model = ScriptedModel(tool_call("sell"), "done")
    agent = Agent("seller", model=model, tools=[sell])
    run = await client.runs.start(agent, "", "Hi", on_ask="park", deps=Shop("Corner", Database()))
    assert (await run.result()).status == "parked"
    [question] = await client.approvals.list()
    await client.approvals.approve(question.id, by="ann")
    assert (await run.result()).response == "done"
    assert outputs(model) == ["Corner"]


PROGRAM = """
    import os, signal, sys
    from holdfast import Agent, AsyncClient, Client, Injected, tool
    from holdfast.testing import ScriptedModel, tool_call

    class Database:
        def __init__(self, price): self.price = price

    @tool(effect="idempotent")
    def find_price(item: str, database: Injected[Database]) -> int:
        "Return a price."
        if os.environ.get("KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        return database.price

    script = [tool_call("find_price", item="tea"), "done"]
    model = ScriptedModel(*(script if os.environ.get("KILL") else script[1:]))
    agent = Agent("seller", model=model, tools=[find_price])
    deps = Database(7) if os.environ.get("DEPS") else None
    with Client(base_dir=sys.argv[1]) as client:
        result = agent.run_sync("How much?", run_id="sale", deps=deps, client=client)
        print(result.response, [
            part.output for message in model.requests[-1].messages for part in message.tool_calls
            if part.state == "completed"
        ])
"""


def run_program(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    own = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    return subprocess.run(
        [sys.executable, str(file), str(folder / "state")],
        env={**own, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_run_that_was_killed_goes_on_only_with_its_dependencies(tmp_path):
    killed = run_program(tmp_path, KILL="yes", DEPS="yes")
    assert killed.returncode == -signal.SIGKILL
    without = run_program(tmp_path)
    assert without.returncode == 1
    assert "DependencyMissing" in without.stderr
    assert "deps=" in without.stderr
    # Refused, not failed: with them it still goes on.
    with_them = run_program(tmp_path, DEPS="yes")
    assert with_them.stdout == "done ['7']\n", with_them.stderr


async def test_deps_of_one_call_are_not_used_for_a_run_that_another_left_behind(tmp_path):
    """They may belong to another customer."""
    killed = await asyncio.to_thread(run_program, tmp_path, KILL="yes", DEPS="yes")
    assert killed.returncode == -signal.SIGKILL
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        [session] = (await client.sessions.list()).items
        agent = Agent("seller", model=ScriptedModel("x"), tools=[find_price])
        with pytest.raises(RunInTheWay):
            await agent.run("Hi", client=client, session=session.id, deps=Database(99))
