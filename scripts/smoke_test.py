"""Ask a model over the API that is in force: a text, a tool call, a form, a whole loop.

    python scripts/smoke_test.py                                        Responses
    AGENT_FORCE_CHAT_COMPLETIONS=true python scripts/smoke_test.py      Chat Completions

With OPENAI_BASE_URL or OPENAI_API_KEY set it asks that endpoint; without, a server of its own on
loopback, which answers from a script. It prints one line per check and ends with 0 if all pass.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from holdfast import Agent, AsyncClient, HoldfastError, tool
from holdfast.messages import TextPart
from holdfast.orchestration.loop import LoopLimits, LoopSetup
from holdfast.providers import Model, TextDelta, create_model, make_registry
from holdfast.settings import load_settings
from holdfast.testing import FakeServer, Recorded, Reply, ScriptedCall

PLAN = {
    "steps": [
        {
            "id": "greet",
            "title": "Say hello",
            "instruction": "Answer with the one word hello.",
            "depends_on": [],
            "checks": [{"kind": "answer_contains", "text": "hello"}],
        }
    ]
}


class Sum(BaseModel):
    """A form to be filled in."""

    result: int


@tool(effect="read")
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def scripted(recorded: Recorded) -> Reply:
    """Answer as a plain model would, whichever of the two APIs asks."""
    asked = msgspec.json.encode(recorded.json).decode()
    if '"steps"' in asked and "json_schema" in asked:
        return Reply(text=msgspec.json.encode(PLAN).decode())
    if '"verdict"' in asked and "json_schema" in asked:
        return Reply(text='{"verdict": "accept", "reason": "it says hello"}')
    if "json_schema" in asked:
        return Reply(text='{"result": 345}')
    has_answer = "function_call_output" in asked or '"role":"tool"' in asked
    if '"name":"multiply"' in asked and not has_answer:
        return Reply(calls=(ScriptedCall(name="multiply", arguments='{"a": 15, "b": 23}'),))
    return Reply(text="15 times 23 is 345; hello.")


class Smoke:
    """The checks, against one client."""

    def __init__(self, client: AsyncClient, model: Model) -> None:
        """Ask this model through this client."""
        self.client = client
        self.model = model

    async def text(self) -> str:
        """A plain answer, piece by piece."""
        pieces = []
        items = self.client.stream_agent(
            Agent("smoke", model=self.model), "", "Say hello in one word."
        )
        async for item in items:
            if isinstance(item, TextDelta):
                pieces.append(item.text)
            last = item
        return _ended(last, bool("".join(pieces).strip()))

    async def call(self) -> str:
        """A tool is called, and its result is used."""
        prompt = "Use the tool for every sum."
        agent = Agent("smoke", model=self.model, tools=[multiply], prompt=prompt)
        result = await self.client.execute_agent(agent, "", "What is 15 times 23?")
        return _ended(result, "345" in result.response and "multiply" in result.tools_used)

    async def form(self) -> str:
        """An answer in a given form."""
        agent = Agent("smoke", model=self.model, output=Sum)
        result = await self.client.execute_agent(agent, "", "What is 15 times 23?")
        return _ended(result, result.output == Sum(result=345))

    async def loop(self) -> str:
        """A plan, a step, its check and a review."""
        options = LoopSetup(model=self.model, limits=LoopLimits(max_replans=0, wall_s=300))
        report = await self.client.loops.run("Answer with the one word hello.", options=options)
        return "" if report.is_done else f"{report.outcome}: {report.reason}"


def tell(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _ended(result: object, is_right: bool) -> str:
    status = getattr(result, "status", "")
    if status != "completed":
        return f"{status}: {getattr(result, 'metadata', {}).get('error', '')}"
    parts = [part.text for part in getattr(result, "parts", ()) if isinstance(part, TextPart)]
    return "" if is_right else f"answered {' '.join(parts)[:200]!r}"


async def main() -> int:
    """Make all checks and return the exit code."""
    found = load_settings().settings
    is_real = found.model.openai_base_url is not None or found.secrets.openai_api_key is not None
    mode = "chat" if found.model.force_chat_completions else "responses"
    failed = 0
    async with AsyncExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        overrides: dict[str, object] = {"storage.state_dir": f"{state}/state", "workspace": state}
        name = found.model.name or ""
        where = str(found.model.openai_base_url or "the configured provider")
        if not is_real:
            server = await stack.enter_async_context(FakeServer(script=scripted))
            overrides["model.openai_base_url"] = server.base_url
            name, where = "openai:fake-model", "a scripted server on loopback"
        tell(f"{mode} API of {where}")
        loaded = load_settings(overrides=overrides)
        registry = make_registry(loaded)
        stack.push_async_callback(registry.close)
        model = await create_model(name, registry=registry)
        client = await stack.enter_async_context(AsyncClient(settings=loaded.settings))
        smoke = Smoke(client, model)
        for check in (smoke.text, smoke.call, smoke.form, smoke.loop):
            try:
                problem = await check()
            except HoldfastError as error:
                problem = f"{error} ({error.code}) {error.hint}"
            failed += bool(problem)
            told = f": {problem}" if problem else ""
            tell(f"{'FAILED' if problem else 'passed'} {check.__name__}{told}")
        if not is_real:
            used = {request.wire for request in server.requests}
            failed += used != {mode}
            tell(f"{'passed' if used == {mode} else 'FAILED'} every request used {mode}: {used}")
    tell("all passed" if not failed else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except HoldfastError as unreachable:
        # Such as an endpoint that is dead before the first check.
        tell(f"FAILED {unreachable} ({unreachable.code}) {unreachable.hint}")
        sys.exit(1)
