"""A real run to execute tools in: a session, a lease, a journal on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import AsyncClient
from holdfast.artifacts import ArtifactActor
from holdfast.clock import SYSTEM, Clock
from holdfast.ids import make_id
from holdfast.journal import Payload
from holdfast.messages import Message, ToolPart
from holdfast.testing import make_tool_context
from holdfast.tools import Parked, Tool, ToolRegistry, Workspace
from holdfast.tools.artifacts import RunArtifacts
from holdfast.tools.gate import Gate
from holdfast.tools.ledger import read_records
from holdfast.tools.manager import Call, CallLimits, ToolExecutionManager
from holdfast.tools.services import CommandRunner, NoCommands
from holdfast.turns import Outcome, Turn, TurnCompleted


class ToolRun:
    """A run under way, and a manager that executes the given tools in it."""

    def __init__(
        self, client: AsyncClient, turn: Turn, manager: ToolExecutionManager, session_id: str
    ) -> None:
        self.client = client
        self.turn = turn
        self.manager = manager
        self.session_id = session_id

    async def ask(self, *parts: ToolPart) -> list[Call]:
        """Add the answer of a model that asks for these calls."""
        named = tuple(
            ToolPart(
                id=make_id("prt"),
                call_id=part.call_id or make_id("call"),
                tool=part.tool,
                input=part.input,
                raw_input=part.raw_input,
            )
            for part in parts
        )
        message = Message(
            id=make_id("msg"),
            session_id=self.session_id,
            run_id=self.turn.run.id,
            role="assistant",
            parts=named,
        )
        await self.turn.add_message(message)
        return [Call(message_id=message.id, part=part) for part in named]

    async def call(self, name: str, /, **arguments: object) -> ToolPart:
        """Execute one call to its end."""
        [result] = await self.call_all(ToolPart(call_id="", tool=name, input=arguments))
        return result

    async def call_all(self, *parts: ToolPart) -> list[ToolPart]:
        results = await self.manager.execute_all(await self.ask(*parts))
        assert not any(isinstance(result, Parked) for result in results)
        return [result for result in results if isinstance(result, ToolPart)]

    async def facts(self) -> list[Payload]:
        """Everything that the journal holds about the session."""
        await self.turn.flush()
        journal = await self.client.storage.journal()
        return [event.decode() for event in await journal.read_all(self.session_id)]

    async def records(self):
        return await read_records(await self.client.storage.journal(), self.session_id)


@asynccontextmanager
async def open_run(
    directory: Path,
    *tools: Tool,
    gate: Gate | None = None,
    limits: CallLimits | None = None,
    clock: Clock = SYSTEM,
    registry: ToolRegistry | None = None,
    commands: CommandRunner | None = None,
) -> AsyncIterator[ToolRun]:
    """Open a session and hold its lease until the end of the block."""
    begun: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def handler(turn: Turn) -> Outcome:
        begun.set_result(turn)
        await over.wait()
        return TurnCompleted()

    async with AsyncClient(directory / "state") as client:
        session = await client.create_session("tools", directory=directory)
        turns = await client.runs.turns()
        run = await turns.submit(session.id)
        running = asyncio.create_task(turns.run(run.id, handler))
        turn = await asyncio.wait_for(begun, 10)
        context = make_tool_context(
            workspace=Workspace(directory),
            session_id=session.id,
            run_id=run.id,
            artifacts=RunArtifacts(
                client.artifacts.store,
                lambda: ArtifactActor(
                    tenant=client.tenant,
                    subject=f"session:{session.id}",
                    owner="owner",
                    session_id=session.id,
                ),
                turn,
                await client.storage.journal(),
            ),
            commands=commands or NoCommands(),
        )
        manager = ToolExecutionManager(
            registry or ToolRegistry(tools),
            recorder=turn,
            context=context,
            gate=gate,
            limits=limits,
            clock=clock,
        )
        try:
            yield ToolRun(client, turn, manager, session.id)
        finally:
            over.set()
            await running
