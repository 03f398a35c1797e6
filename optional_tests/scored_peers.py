# ruff: noqa: PLC0415, BLE001 - packages of another environment; any failure is a task not done
"""The same tasks through another framework; run by `scored.py` with that framework's Python.

python scored_peers.py pydantic-ai|openai-agents BASE_URL KEY MODEL TASK...

Prints a line of JSON for each task as it ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import scored_tasks as tasks
from pydantic import create_model

ASK = "You are a helpful assistant. Use the tools."


def make_type(task: tasks.Structured) -> type:
    """Return the type of a structured task."""
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in task.fields.items()}
    return create_model(task.name, **fields)


def open_pydantic_ai(base_url: str, key: str, model: str) -> Callable[..., Awaitable[Any]]:
    """Return what asks through pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    opened = OpenAIChatModel(model, provider=OpenAIProvider(base_url=base_url, api_key=key))
    settings: Any = {"temperature": 0, "max_tokens": tasks.MAX_TOKENS}

    async def ask(text: str, tools: tuple[Any, ...] = (), output: type | None = None) -> Any:
        more: dict[str, Any] = {"output_type": output} if output is not None else {}
        agent = Agent(opened, instructions=ASK, tools=list(tools), model_settings=settings, **more)
        return (await agent.run(text)).output

    return ask


def open_openai_agents(base_url: str, key: str, model: str) -> Callable[..., Awaitable[Any]]:
    """Return what asks through openai-agents."""
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base_url, api_key=key)
    opened = agents.OpenAIChatCompletionsModel(model=model, openai_client=client)
    settings = agents.ModelSettings(temperature=0, max_tokens=tasks.MAX_TOKENS)

    async def ask(text: str, tools: tuple[Any, ...] = (), output: type | None = None) -> Any:
        agent = agents.Agent(
            name="tester",
            instructions=ASK,
            model=opened,
            model_settings=settings,
            tools=[agents.function_tool(one) for one in tools],
            output_type=output,
        )
        return (await agents.Runner.run(agent, text, max_turns=4)).final_output

    return ask


async def attempt(ask: Callable[..., Awaitable[Any]], names: list[str]) -> None:
    """Do tasks, and print how each went."""
    for name in names:
        row, task = tasks.find(name)
        tasks.CALLED.clear()
        kind = make_type(task) if row == "structured" else None
        started = time.monotonic()
        output, note = None, ""
        try:
            async with asyncio.timeout(tasks.LIMIT_S):
                output = await ask(task.text, getattr(task, "tools", ()), kind)
        except Exception as error:
            note = f"{type(error).__name__}: {error}"[:160].replace("\n", " ")
        found = {
            "task": name,
            "right": tasks.is_right(row, task, output, kind),
            "seconds": round(time.monotonic() - started, 1),
            "note": note or tasks.tell_calls(output),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    framework, address, key, model, *names = sys.argv[1:]
    opener = open_pydantic_ai if framework == "pydantic-ai" else open_openai_agents
    asyncio.run(attempt(opener(address, key, model), names))
