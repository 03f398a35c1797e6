# ruff: noqa: PLC0415, BLE001 - packages of another environment; any failure is a task not done
"""The same tasks through another framework; run by `scored.py` with that framework's Python.

python scored_peers.py pydantic-ai|openai-agents BASE_URL KEY MODEL
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import scored_tasks as tasks
from pydantic import create_model

ASK = "You are a helpful assistant. Use the tools."
_LIMIT_S = 45


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
    settings: Any = {"temperature": 0, "max_tokens": 100}

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
    settings = agents.ModelSettings(temperature=0, max_tokens=100)

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


async def score(ask: Callable[..., Awaitable[Any]]) -> dict[str, int]:
    """Do every task, and count what came right."""
    right = {"single": 0, "two": 0, "structured": 0}

    async def attempt(*words: Any) -> Any:
        tasks.CALLED.clear()
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await ask(*words)
        except Exception as error:
            sys.stderr.write(f"{type(error).__name__}: {str(error)[:120]}\n")
            return None

    for single in tasks.SINGLE_CALLS:
        await attempt(single.text, single.tools)
        right["single"] += tasks.score_single(single)
    for two in tasks.TWO_STEPS:
        await attempt(two.text, two.tools)
        right["two"] += tasks.score_two(two)
    for structured in tasks.STRUCTURED:
        kind = make_type(structured)
        right["structured"] += isinstance(await attempt(structured.text, (), kind), kind)
    return right


if __name__ == "__main__":
    framework, *place = sys.argv[1:]
    opener = open_pydantic_ai if framework == "pydantic-ai" else open_openai_agents
    sys.stdout.write(json.dumps(asyncio.run(score(opener(*place)))))
