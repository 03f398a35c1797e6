"""What is killed: a whole run. A model call, two tools, consent, a charge, an answer.

Model, shop and notes stand outside the state directory: files with one synced line per deed.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import Message
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ModelReply, tool_call
from holdfast.testing.crash import cross_boundary
from holdfast.tools import ToolContext
from holdfast.tools.events import ToolStarted

LEASE_S = 0.2
TRANSCRIPT = [
    ("user", "sell a kettle", []),
    (
        "assistant",
        "step 0",
        [("price", "completed", "it costs 5"), ("note", "completed", "noted")],
    ),
    ("assistant", "step 1", [("charge", "completed", "charged 5")]),
    ("assistant", "step 2", []),
]


class World:
    """Everything outside: what was done is one line, written and synced."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = str(directory)

    def did(self, what: str) -> list[list[object]]:
        path = f"{self._directory}.{what}"
        if not os.path.exists(path):
            return []
        with open(path) as file:
            return [json.loads(line) for line in file]

    def do(self, what: str, *deed: object) -> None:
        def write() -> None:
            flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
            handle = os.open(f"{self._directory}.{what}", flags, 0o600)
            os.write(handle, json.dumps(deed).encode() + b"\n")
            os.fsync(handle)
            os.close(handle)

        cross_boundary(f"{what} {deed}", write)

    def has(self, what: str, key: str) -> bool:
        return any(deed[0] == key for deed in self.did(what))


def seller(world: World) -> Agent:
    @tool(effect="read")
    async def price(item: str) -> str:
        """Say what something costs."""
        return "it costs 5"

    @tool(effect="idempotent")
    async def note(text: str, context: ToolContext) -> str:
        """Write something down, once per key."""
        if not world.has("notes", context.idempotency_key):
            world.do("notes", context.idempotency_key, text)
        return "noted"

    @tool(effect="unsafe", permission="ask")
    async def charge(amount: int, context: ToolContext) -> str:
        """Charge the customer; nothing guards against doing it twice."""
        world.do("charges", context.idempotency_key, amount)
        return f"charged {amount}"

    def answer(request: ModelRequest) -> ModelReply:
        step = sum(message.role == "assistant" for message in request.messages)
        number = len(world.did("model"))
        world.do("model", step, number)
        calls = {
            0: (tool_call("price", item="kettle"), tool_call("note", text="kettle")),
            1: (tool_call("charge", amount=5),),
        }.get(step, ())
        return ModelReply(text=f"step {step}, call {number}", calls=calls)

    return Agent("seller", model=FunctionModel(answer), tools=[price, note, charge])


def sell(directory: str) -> None:
    """Run to the end; whoever is asked consents, and says what really happened."""
    asyncio.run(_sell(directory))


async def _sell(directory: str) -> None:
    world = World(directory)
    agent = seller(world)
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    async with AsyncClient(directory, settings=settings) as client:
        while True:
            result = await client.execute_agent(
                agent, "", "sell a kettle", run_id="job", on_ask="park"
            )
            if result.status != "parked":
                break
            [asked] = await client.approvals.questions()
            if asked.reason == "approval":
                await client.approvals.approve(asked.id, by="ann")
                continue
            key = await _key_of(client, result.session_id, asked.call_id)
            happened = world.has("charges", key)
            await client.approvals.decide_outcome(
                result.session_id,
                asked.call_id,
                "happened" if happened else "not_happened",
                by="ann",
                result="charged 5" if happened else "",
            )
        assert result.status == "completed", result


async def _key_of(client: AsyncClient, session_id: str, call_id: str) -> str:
    journal = await client.storage.journal()
    keys = [
        fact.intent.idempotency_key
        for event in await journal.read_all(session_id)
        if isinstance(fact := event.decode(), ToolStarted) and fact.intent.call_id == call_id
    ]
    return keys[-1]


async def check(directory: Path) -> None:
    """The same transcript as without a crash, every effect once, no finished call again."""
    world = World(directory)
    messages = await _messages(directory)
    assert [_plain(message) for message in messages] == TRANSCRIPT
    assert [deed[1] for deed in world.did("charges")] == [5]
    assert [deed[1] for deed in world.did("notes")] == ["kettle"]
    # The last call of a step is the one whose answer was kept: had an earlier one been kept,
    # the step would not have been asked for again.
    last = {step: number for step, number in world.did("model")}
    kept = [message.text for message in messages if message.role == "assistant"]
    assert kept == [f"step {step}, call {number}" for step, number in sorted(last.items())]


async def _messages(directory: Path) -> list[Message]:
    async with AsyncClient(directory) as client:
        assert await client.audit.verify() == []
        run = await client.runs.get("job")
        assert run.status == "completed"
        assert await client.approvals.questions() == []
        return list((await client.list_messages(run.session_id)).items)


def _plain(message: Message) -> tuple[str, str, list[tuple[str, str, str]]]:
    calls = [(part.tool, part.state, part.output) for part in message.tool_calls]
    return message.role, message.text.split(",")[0], calls
