"""Calls by hand: a person, or an application, calls a tool through the gate, durably."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.agents import AgentRegistry, KeptRequest, RunRequest
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, RunInTheWay, UsageError
from holdfast.ids import make_id
from holdfast.messages import Message, ToolPart
from holdfast.policy import NO_BUDGET, Budget, OnAsk, Rights, RuleSet
from holdfast.runs import CallScope, read_lineage
from holdfast.runtime.run_kinds import find_called_tool
from holdfast.runtime.runs import RunService
from holdfast.runtime.toolbox import ToolService
from holdfast.sessions import Run, Session, SessionManager, compose
from holdfast.tools import GIVEN_BY_HAND, Call, read_records
from holdfast.turns import (
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnParked,
    TurnQueue,
    finish,
)


class ToolCallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call by hand: its part, and the run in which it stands.

    The part is still `pending` if the call waits for a person; `run.reason` says for what.
    """

    part: ToolPart
    run: Run


class HandCallService:
    """Makes calls that no model asked for, as runs of their own."""

    def __init__(
        self,
        sessions: SessionManager,
        turns: TurnQueue,
        runs: RunService,
        agents: AgentRegistry,
        toolbox: ToolService,
    ) -> None:
        """Call tools of this toolbox."""
        self._sessions = sessions
        self._journal = sessions.journal
        self._turns = turns
        self._runs = runs
        self._agents = agents
        self._toolbox = toolbox

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        session_id: str = "",
        run_id: str = "",
        on_ask: OnAsk = "deny",
        budget: Budget | None = None,
    ) -> ToolCallResult:
        """Call a tool and return what came back; see `operations.tools.call`."""
        is_new = not run_id or await self._turns.find(run_id) is None
        name = await self._name_of(name, run_id)
        await self._toolbox.find(name)
        await self._runs.check_policies()  # wrong ones are told before anything is kept
        session = await self._sessions.get_session(
            session_id or await self._runs.find_session_for(f"Call of {name}", run_id)
        )
        asked = compose(session.id, "user", f"Call the tool {name}.", self._journal.clock.now())
        kept = KeptRequest(on_ask=on_ask, budget=budget or NO_BUDGET)
        # Kept with the run, so that the caller that resumes it makes this call and no other.
        wanted: JsonObject = {"tool": name, "arguments": arguments}
        run = await self._turns.submit(
            session.id, asked, run_id=run_id, options={**kept.to_options(), "call": wanted}
        )
        run = await self._see_through(run, wanted if is_new else None)
        session = await self._sessions.get_session(session.id)
        for message in reversed(await self._sessions.messages.all(session)):
            if message.run_id == run.id and message.tool_calls:
                return ToolCallResult(part=message.tool_calls[0], run=run)
        return ToolCallResult(part=ToolPart(call_id="", tool=name, input=arguments), run=run)

    async def take_over(self, turn: Turn) -> Outcome | None:
        """Execute a call that was left behind; `None` for runs that are none."""
        wanted = turn.request.options.get("call")
        return await self._call_or_close(turn, wanted) if isinstance(wanted, dict) else None

    # --- inside -----------------------------------------------------------------------

    async def _name_of(self, name: str, run_id: str) -> str:
        """Return the name of the tool to call: that of a run which is there already, if any."""
        known = await self._turns.find(run_id) if run_id and name else None
        if name and known is None:
            return name
        run = known or await self._turns.get(run_id)
        called = await find_called_tool(self._journal, run)
        if not called:
            raise UsageError(detail=f"{run_id} is no run of a call by hand.")
        if name not in ("", called):
            raise UsageError(detail=f"The run {run_id} calls {called}, not {name}.")
        return called

    async def _see_through(self, run: Run, wanted: JsonObject | None) -> Run:
        """Execute the run of a call; an agent's run that stands before it is resumed first.

        `wanted` is what the caller of a new run has just asked for.
        """

        async def handler(turn: Turn) -> Outcome:
            if wanted is not None and turn.run.id == run.id and not turn.is_resumed:
                # As it was given: the journal keeps no secrets.
                return await self._call_or_close(turn, wanted, is_recorded=False)
            outcome = await self.take_over(turn)
            if outcome is None:
                raise turn.make_in_the_way()
            return outcome

        while True:
            try:
                return await self._turns.run(run.id, handler)
            except RunInTheWay as first:
                try:
                    await self._resume_left_behind(first)
                except (HoldfastError, asyncio.CancelledError) as error:
                    await finish(self._turns.cancel(run.id, reason=str(first)))
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    raise first from error

    async def _resume_left_behind(self, first: RunInTheWay) -> None:
        """Let the agent of a run go on with it; raises if that agent is not known here."""
        agent = await self._agents.require(str(first.context["agent"]))
        run_id = str(first.context["run_id"])
        await self._runs.execute(RunRequest(agent=agent, message="", run_id=run_id))

    async def _call_or_close(
        self, turn: Turn, wanted: JsonObject, *, is_recorded: bool = True
    ) -> Outcome:
        """Make the call; however that ends, it has a result, or waits for a person.

        `is_recorded` says whether what is wanted was read from the journal.
        """
        session = await self._sessions.get_session(turn.session_id)
        try:
            async with turn.cancelled.ending():
                return await self._make(turn, session, wanted, is_recorded=is_recorded)
        except TimeoutError:
            if await finish(turn.close_calls("The run was cancelled.")):
                raise asyncio.CancelledError from None
            return TurnCancelled(reason=turn.cancel_reason)
        except asyncio.CancelledError:
            await finish(turn.close_calls("The run was cancelled."))
            raise
        except HoldfastError as error:
            await finish(turn.close_calls(f"The run failed: {error}"))
            raise

    async def _make(
        self, turn: Turn, session: Session, wanted: JsonObject, *, is_recorded: bool
    ) -> Outcome:
        messages = await self._sessions.messages.all(session)
        mine = [message for message in messages if message.run_id == turn.run.id]
        if not mine or not mine[-1].tool_calls:
            # A run that was cancelled while it was parked left its call open.
            await turn.close_calls("The run was cancelled.")
            mine = await self._ask(turn, wanted["tool"], wanted["arguments"])
        records = {}
        if turn.is_resumed:
            records = await read_records(self._journal, session.id, after=turn.run.queued_at)
        calls = [
            Call(message_id=mine[-1].id, part=part, is_recorded=is_recorded)
            for part in mine[-1].tool_calls
            if part.state == "pending"
        ]
        services, kept = self._runs.services, KeptRequest.of(turn.request.options)
        above = read_lineage(session)
        # As it is now: with the call that was just written down.
        counted = await self._sessions.get_session(session.id)
        spending = await services.open_spending(turn, counted, run=kept.budget, pending=len(calls))
        opened = await services.calls.open_calls(
            CallScope(
                turn=turn,
                session=session,
                tools=self._toolbox.registry,
                rights=Rights(session=RuleSet(rules=session.permission)),
                sandbox="workspace-write",
                # A person's sandbox is none, unless they speak in the session of some child.
                has_network=above is None or above.sandbox == "network",
                approver=services.approver,
                terms=self._runs.terms(kept.on_ask),
                instrumentation=services.instrumentation.make_for_run(session.id, turn.run.id, ""),
                inherited=above.labels if above is not None else (),
                spending=spending,
                given=GIVEN_BY_HAND,
            )
        )
        manager = opened.manager
        try:
            results = await manager.execute_all(calls, records=records)
        finally:
            if spending is not None:
                spending.close()
            await asyncio.shield(opened.close())
        if manager.exhausted is not None:
            return TurnFailed(error=manager.exhausted.to_dict())
        for result in results:
            if not isinstance(result, ToolPart):
                return TurnParked(reason=result.reason)
        return TurnCompleted(result={"message_id": mine[-1].id})

    async def _ask(self, turn: Turn, name: str, arguments: JsonObject) -> list[Message]:
        """Write down the request and the call, as an agent's turn would have them."""
        now = self._journal.clock.now()
        call = ToolPart(id=make_id("prt"), call_id=make_id("call"), tool=name, input=arguments)
        asks = compose(turn.session_id, "assistant", [call], now)
        for message in (turn.request.message, asks):
            if message is not None:
                named = msgspec.structs.replace(message, run_id=turn.run.id)
                await turn.add_message(named)
        return [msgspec.structs.replace(asks, run_id=turn.run.id)]
