"""The states of an agent: only legal changes, resources opened once and always given back."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents import Agent, AgentLifecycle, AgentManager, AgentResult
from holdfast.agents.lifecycle import LEGAL
from holdfast.errors import HookRefused, InvalidTransition, LLMOverloaded, UsageError
from holdfast.hooks import NOWHERE, Cancel, Hooks, Silence
from holdfast.testing import ScriptedModel

AGENT = Agent("a", model=ScriptedModel())


class Resources:
    """Notes what is opened and closed; may fail at either."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails: set[str] = set()

    def make(self, name: str):
        @contextlib.asynccontextmanager
        async def resource():
            if f"open {name}" in self.fails:
                raise OSError(name)
            self.log.append(f"open {name}")
            yield name
            self.log.append(f"close {name}")
            if f"close {name}" in self.fails:
                raise OSError(name)

        return resource


async def done(message: str) -> AgentResult:
    return AgentResult(agent_name="a", response=message)


@given(st.lists(st.sampled_from(sorted(LEGAL)), max_size=20))
def test_only_legal_changes_happen(wanted: list) -> None:
    async def walk() -> None:
        life = AgentLifecycle("a", Hooks(), Silence(), {})
        for state in wanted:
            before = life.state
            if state in LEGAL[before]:
                await life.go(state, NOWHERE)
                assert life.state == state
            else:
                with pytest.raises(InvalidTransition):
                    await life.go(state, NOWHERE)
                assert life.state == before

    asyncio.run(walk())


async def test_resources_are_opened_once_and_closed_in_reverse() -> None:
    resources, manager = Resources(), AgentManager()
    for name in ("db", "cache"):
        manager.add_resource("A", name, resources.make(name))
    for _ in range(2):
        await manager.run(AGENT, NOWHERE, "hi", done)
    assert resources.log == ["open db", "open cache"]
    await manager.close()
    await manager.close()
    assert resources.log[2:] == ["close cache", "close db"]
    assert manager.find_state("a") == "terminated"


async def test_resource_that_cannot_be_opened_is_tried_again_with_the_next_run() -> None:
    resources, manager = Resources(), AgentManager()
    for name in ("db", "cache"):
        manager.add_resource("a", name, resources.make(name))
    resources.fails = {"open cache"}
    with pytest.raises(OSError):
        await manager.run(AGENT, NOWHERE, "hi", done)
    assert manager.find_state("a") == "error"
    resources.fails.clear()
    await manager.run(AGENT, NOWHERE, "hi", done)
    assert (manager.find_state("a"), resources.log) == ("ready", ["open db", "open cache"])


async def test_resource_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    hooks, released = Hooks(), []

    @hooks.observe("agent.resource_released")
    async def note(payload) -> None:
        released.append((payload.resource, bool(payload.error)))

    resources, manager = Resources(), AgentManager(hooks)
    for name in ("db", "cache"):
        manager.add_resource("a", name, resources.make(name))
    resources.fails = {"close cache"}
    await manager.run(AGENT, NOWHERE, "hi", done)
    await manager.close()
    assert released == [("cache", True), ("db", False)]


async def test_agent_is_running_while_any_run_is() -> None:
    manager, gates = AgentManager(), [asyncio.Event(), asyncio.Event()]
    entered = [asyncio.Event(), asyncio.Event()]

    def waiting(number: int):
        async def execute(message: str) -> AgentResult:
            entered[number].set()
            await gates[number].wait()
            return await done(message)

        return execute

    runs = [asyncio.create_task(manager.run(AGENT, NOWHERE, "hi", waiting(n))) for n in (0, 1)]
    for event in entered:
        await asyncio.wait_for(event.wait(), 30)
    gates[0].set()
    await runs[0]
    assert manager.find_state("a") == "running"
    gates[1].set()
    await runs[1]
    assert manager.find_state("a") == "ready"


@pytest.mark.parametrize(
    ("status", "state"),
    [("completed", "ready"), ("cancelled", "ready"), ("parked", "paused"), ("failed", "error")],
)
async def test_state_says_how_the_last_run_ended_and_the_next_may_begin(status, state: str) -> None:
    async def end(message: str) -> AgentResult:
        return AgentResult(agent_name="a", response="", status=status)

    manager = AgentManager()
    await manager.run(AGENT, NOWHERE, "hi", end)
    assert manager.find_state("a") == state
    await manager.run(AGENT, NOWHERE, "hi", done)
    assert manager.find_state("a") == "ready"


async def test_run_that_raises_or_is_cancelled_leaves_the_agent_usable() -> None:
    hooks, told, began = Hooks(), [], asyncio.Event()
    hooks.observe("agent.error", lambda payload: told.append(payload.error["code"]))

    async def fail(message: str) -> AgentResult:
        raise LLMOverloaded(provider="t", detail="busy")

    async def hang(message: str) -> AgentResult:
        began.set()
        await asyncio.Event().wait()
        return await done(message)

    manager = AgentManager(hooks)
    with pytest.raises(LLMOverloaded):
        await manager.run(AGENT, NOWHERE, "hi", fail)
    assert (manager.find_state("a"), told) == ("error", [LLMOverloaded.code])
    hanging = asyncio.create_task(manager.run(AGENT, NOWHERE, "hi", hang))
    await asyncio.wait_for(began.wait(), 30)
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert manager.find_state("a") == "ready"


async def test_refused_initialization_leaves_the_agent_as_it_was() -> None:
    hooks = Hooks()
    hook = hooks.on("agent.before_init", lambda payload: Cancel("not yet"))
    manager = AgentManager(hooks)
    with pytest.raises(HookRefused):
        await manager.run(AGENT, NOWHERE, "hi", done)
    assert manager.find_state("a") == "uninitialized"
    hooks.off(hook)
    assert (await manager.run(AGENT, NOWHERE, "hi", done)).response == "hi"


async def test_resources_are_added_before_the_first_run_and_once() -> None:
    manager = AgentManager()
    manager.add_resource("a", "db", Resources().make("db"))
    with pytest.raises(UsageError):
        manager.add_resource("A", "db", Resources().make("db"))
    await manager.run(AGENT, NOWHERE, "hi", done)
    with pytest.raises(UsageError):
        manager.add_resource("a", "late", Resources().make("late"))


async def test_agent_that_was_shut_down_cannot_run() -> None:
    manager = AgentManager()
    await manager.run(AGENT, NOWHERE, "hi", done)
    await manager.close()
    with pytest.raises(InvalidTransition):
        await manager.run(AGENT, NOWHERE, "hi", done)
