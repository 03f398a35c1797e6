"""What is killed: an agent that charges a customer twice, with a tool of each effect.

The shop is outside the state directory: a file with one line per charge, written and synced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import Message
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.testing.crash import cross_boundary
from holdfast.testing.vanishing import Vanished, vanish
from holdfast.tools import Intent, Reconciliation, Tool, ToolContext, ToolResult
from holdfast.tools.effects import Effect
from holdfast.tools.events import ToolStarted

AMOUNTS = (5, 7)
LEASE_S = 0.2


class Shop:
    """The outside world: it charges, and remembers by idempotency key if it is asked to."""

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}.charges"

    def charges(self) -> list[tuple[str, int]]:
        if not os.path.exists(self._path):
            return []
        with open(self._path) as file:
            return [tuple(json.loads(line)) for line in file]

    def charge(self, key: str, amount: int) -> None:
        def write() -> None:
            handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            os.write(handle, json.dumps([key, amount]).encode() + b"\n")
            os.fsync(handle)
            os.close(handle)

        cross_boundary(f"charge {amount}", write)

    def has(self, key: str) -> bool:
        return any(known == key for known, _ in self.charges())


def charge_tool(shop: Shop, effect: Effect) -> Tool:
    async def charge(amount: int, context: ToolContext) -> str:
        """Charge the customer."""
        if effect != "idempotent" or not shop.has(context.idempotency_key):
            shop.charge(context.idempotency_key, amount)
        return f"charged {amount}"

    async def reconcile(intent: Intent, context: ToolContext) -> Reconciliation:
        if shop.has(intent.idempotency_key):
            amount = intent.arguments["amount"]
            return Reconciliation(verdict="happened", result=ToolResult(f"charged {amount}"))
        return Reconciliation(verdict="not_happened")

    if effect == "reconcile":
        return tool(effect=effect, reconcile=reconcile)(charge)
    return tool(effect=effect)(charge)


def salesman(request: ModelRequest):
    """Ask for the next charge, one after the other, then say that it is done."""
    done = sum(
        part.state == "completed"
        for message in request.messages
        if message.role == "tool"
        for part in message.tool_calls
    )
    return "sold" if done >= len(AMOUNTS) else tool_call("charge", amount=AMOUNTS[done])


def charge_idempotent(directory: str) -> None:
    asyncio.run(_sell(directory, "idempotent"))


def charge_reconcile(directory: str) -> None:
    asyncio.run(_sell(directory, "reconcile"))


def charge_unsafe(directory: str) -> None:
    asyncio.run(_sell(directory, "unsafe"))


def charge_unsafe_again(directory: str) -> None:
    """Charge after a person has said that an interrupted charge did not happen."""
    asyncio.run(_sell_after_death(directory))


def charge_read(directory: str) -> None:
    asyncio.run(_sell(directory, "read"))


async def _sell(directory: str, effect: Effect) -> None:
    """Run the agent to its end; where a person is asked, look into the shop and answer."""
    shop = Shop(directory)
    agent = Agent("seller", model=FunctionModel(salesman), tools=[charge_tool(shop, effect)])
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    async with AsyncClient(directory, settings=settings) as client:
        while True:
            result = await agent.run("sell", run_id="job", client=client)
            if result.status != "parked":
                break
            [question] = await client.approvals.questions()
            assert (question.reason, question.tool) == ("unknown_outcome", "charge")
            key = await _key_of(client, result.session_id, question.call_id)
            verdict = "happened" if shop.has(key) else "not_happened"
            await client.approvals.decide_outcome(
                result.session_id, question.call_id, verdict, by="tester", result="charged"
            )
        assert (result.status, result.response) == ("completed", "sold")


async def _sell_after_death(directory: str) -> None:
    if not os.path.exists(f"{directory}.died"):
        Path(f"{directory}.died").touch()
        settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
        client = AsyncClient(directory, settings=settings)

        @tool(effect="unsafe")
        async def charge(amount: int) -> str:
            """Die before anything happens."""
            await vanish(client)
            return ""

        agent = Agent("seller", model=FunctionModel(salesman), tools=[charge])
        with contextlib.suppress(Vanished):
            await agent.run("sell", run_id="job", client=client)
        with contextlib.suppress(Vanished):
            await client.close()
    await _sell(directory, "unsafe")


async def _key_of(client: AsyncClient, session_id: str, call_id: str) -> str:
    journal = await client.storage.journal()
    for event in await journal.read_all(session_id):
        fact = event.decode()
        if isinstance(fact, ToolStarted) and fact.intent.call_id == call_id:
            return fact.intent.idempotency_key
    raise AssertionError("asked about a call without an intent")


async def check_once(directory: Path) -> None:
    """Every charge happened once, has its trace, and the conversation shows both."""
    charges = Shop(str(directory)).charges()
    assert [amount for _, amount in charges] == list(AMOUNTS), charges
    facts, messages = await _recorded(directory)
    intents = {fact.intent.idempotency_key for fact in facts if isinstance(fact, ToolStarted)}
    assert {key for key, _ in charges} <= intents
    _check_conversation(messages)


async def check_read(directory: Path) -> None:
    """A read may be repeated, but is asked for by the conversation and ends there."""
    charges = Shop(str(directory)).charges()
    assert {amount for _, amount in charges} == set(AMOUNTS)
    _, messages = await _recorded(directory)
    _check_conversation(messages)


async def _recorded(directory: Path) -> tuple[list[object], list[Message]]:
    async with AsyncClient(directory) as client:
        assert await client.audit.verify() == []
        # A kill before the run exists leaves an empty session behind, and nothing else.
        session = await client.get_session((await client.runs.get("job")).session_id)
        journal = await client.storage.journal()
        facts = [event.decode() for event in await journal.read_all(session.id)]
        messages = (await client.list_messages(session.id)).items
        history = await client.get_execution_history(session.id)
        assert [one.state for one in history] == ["completed"] * len(AMOUNTS)
        return facts, list(messages)


def _check_conversation(messages: list[Message]) -> None:
    parts = [part for message in messages for part in message.tool_calls]
    assert [(part.state, part.input) for part in parts] == [
        ("completed", {"amount": amount}) for amount in AMOUNTS
    ]
    assert len({part.call_id for part in parts}) == len(parts)
