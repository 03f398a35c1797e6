"""Tools: call one by hand, see what was called, fetch what was too long to show."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast.canonical import JsonObject
from holdfast.client.agents import AgentMethods
from holdfast.client.kinds import called_tool
from holdfast.errors import HoldfastError, RunInTheWay, UsageError
from holdfast.ids import new_id
from holdfast.messages import Message, ToolPart, ToolState
from holdfast.policy import Rights, RuleSet
from holdfast.policy.approvals import ApprovalBook, OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget
from holdfast.agents.request import KeptRequest
from holdfast.runs.lineage import lineage_of
from holdfast.agents.request import RunRequest
from holdfast.runs.spending import Spending, session_budget
from holdfast.sessions import Run, Session, compose
from holdfast.tools import ToolContext
from holdfast.tools.artifacts import JournalArtifacts, load_artifact
from holdfast.tools.builtin import SearchProvider, restore_grants
from holdfast.tools.builtin.search import codesearch_tool, websearch_tool
from holdfast.tools.gate import NobodyApproves
from holdfast.tools.ledger import read_records
from holdfast.tools.manager import Call, ToolExecutionManager, spend_freely
from holdfast.tools.state import JournalState
from holdfast.tools.tracker import ToolExecution, ToolExecutionTracker
from holdfast.turns import Outcome, Turn, TurnCancelled, TurnCompleted, TurnFailed, TurnParked
from holdfast.turns.outcomes import finish


class ToolCallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call by hand: its part, and the run in which it stands.

    The part is still `pending` if the call waits for a person; `run.reason` says for what.
    """

    part: ToolPart
    run: Run


class ToolMethods(AgentMethods):
    """What the client can do with tools."""

    async def call_tool(
        self,
        name: str,
        arguments: JsonObject,
        *,
        session_id: str = "",
        run_id: str = "",
        on_ask: OnAsk = "deny",
        budget: Budget | None = None,
    ) -> ToolCallResult:
        """Call a tool through the gate, in a session, and return what came back.

        Everything is recorded as if an agent had called it: hooks are asked, subscribers hear
        of it, and it counts against the budgets of its session and of the settings, and
        against `budget`. A call that fits into none of them ends the run as failed with the
        error `budget.exceeded`, before anything happens.

        An empty `session_id` means that of `run_id` if there is such a run, or else a new
        session. The same `run_id` again returns the finished call, or goes on with one that
        was interrupted or has waited; `name` may then be empty. `on_ask` is as for
        `execute_agent`.

        Raises:
            NotFound: there is no such tool or session.
            UsageError: the run is none of a call by hand, or calls another tool.
            PolicyInvalid: a policy file is wrong; nothing was called.
            RunInTheWay: a run that a dead process left behind stands first in the session, and
                its agent is not known here; nothing was called.
        """
        sessions = await self._ready()
        is_new = not run_id or await self._turns.find(run_id) is None
        name = await self._name_of_call(name, run_id)
        await self._tools_of_calls(name)
        await self._confinement()  # wrong policies are told before anything is kept
        session = await sessions.get_session(
            session_id or await self._session_for(f"Call of {name}", run_id)
        )
        asked = compose(session.id, "user", f"Call the tool {name}.", self._journal.clock.now())
        scope = KeptRequest(on_ask=on_ask, budget=budget or NO_BUDGET)
        # Kept with the run, so that whoever resumes it makes this call and no other.
        wanted: JsonObject = {"tool": name, "arguments": arguments}
        run = await self._turns.submit(
            session.id, asked, run_id=run_id, options={**scope.to_options(), "call": wanted}
        )

        run = await self._see_call_through(run, wanted if is_new else None)
        session = await sessions.get_session(session.id)
        for message in reversed(await sessions.messages.all(session)):
            if message.run_id == run.id and message.tool_calls:
                return ToolCallResult(part=message.tool_calls[0], run=run)
        return ToolCallResult(part=ToolPart(call_id="", tool=name, input=arguments), run=run)

    async def invoke_mcp(
        self,
        endpoint: str,
        tool: str,
        arguments: JsonObject,
        *,
        session_id: str = "",
        run_id: str = "",
        on_ask: OnAsk = "deny",
    ) -> ToolCallResult:
        """Call a tool of an MCP server by the server's own name for it, as `call_tool` does.

        Raises:
            NotFound, McpToolMissing: there is no such server, or no such tool.
            McpUntrusted: the server is a project's, and nobody vouched for it.
            McpFailed: it cannot be asked what it offers.
        """
        registry = self._tool_registry()
        manager = await self.mcp_manager()
        name = await manager.name_of(endpoint, tool, self._mcp_layer or registry)
        return await self.call_tool(
            name, arguments, session_id=session_id, run_id=run_id, on_ask=on_ask
        )

    async def use_search(
        self, *, web: SearchProvider | None = None, code: SearchProvider | None = None
    ) -> None:
        """Let `websearch` and `codesearch` ask these providers from now on."""
        registry = self._tool_registry()
        if web is not None:
            registry.register(websearch_tool(web), replace=True)
        if code is not None:
            registry.register(codesearch_tool(code), replace=True)

    async def get_execution_history(
        self,
        session_id: str,
        limit: int = 100,
        *,
        tool: str | None = None,
        state: ToolState | None = None,
    ) -> list[ToolExecution]:
        """Return the newest calls of a session, newest first."""
        tracker = ToolExecutionTracker(await self._ready())
        return await tracker.get_execution_history(session_id, limit, tool=tool, state=state)

    async def load_tool_output(self, session_id: str, handle: str) -> bytes:
        """Return the whole of an output that was too long; the shown text names the handle.

        Raises:
            NotFound: there is no such session or handle.
        """
        session = await (await self._ready()).get_session(session_id)
        return await load_artifact(self._journal, session.id, handle)

    async def _take_over(self, turn: Turn) -> Outcome | None:
        wanted = turn.request.options.get("call")
        if not isinstance(wanted, dict):
            return await super()._take_over(turn)
        return await self._call_or_close(turn, wanted)

    async def _tools_of_calls(self, name: str) -> None:
        """Have a tool ready; raises NotFound."""
        registry = self._tool_registry()
        if registry.find(name) is None:
            await self._prepare_mcp(has_network=True)
        registry.get(name)

    async def _name_of_call(self, name: str, run_id: str) -> str:
        """Return the name of the tool to call: that of a run which is there already, if any."""
        known = await self._turns.find(run_id) if run_id and name else None
        if name and known is None:
            return name
        run = known or await self._turns.get(run_id)
        called = await called_tool(self._journal, run)
        if not called:
            raise UsageError(detail=f"{run_id} is no run of a call by hand.")
        if name not in ("", called):
            raise UsageError(detail=f"The run {run_id} calls {called}, not {name}.")
        return called

    async def _see_call_through(self, run: Run, wanted: JsonObject | None) -> Run:
        """Execute the run of a call; an agent's run that stands before it is resumed first.

        `wanted` is what the caller of a new run has just asked for.
        """

        async def handler(turn: Turn) -> Outcome:
            if wanted is not None and turn.run.id == run.id and not turn.is_resumed:
                # As it was given: the journal keeps no secrets.
                return await self._call_or_close(turn, wanted, is_recorded=False)
            outcome = await self._take_over(turn)
            if outcome is None:
                raise turn.in_the_way()
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
        agent, run_id = str(first.context["agent"]), str(first.context["run_id"])
        await self.launch(RunRequest(agent=await self._find(agent), message="", run_id=run_id))

    async def _call_or_close(
        self, turn: Turn, wanted: JsonObject, *, is_recorded: bool = True
    ) -> Outcome:
        """Make the call; however that ends, it has a result, or waits for a person.

        `is_recorded` says whether what is wanted was read from the journal.
        """
        session = await self._sessions.get_session(turn.session_id)
        try:
            async with turn.cancelled.ending():
                return await self._make_call(turn, session, wanted, is_recorded=is_recorded)
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

    async def _make_call(
        self, turn: Turn, session: Session, wanted: JsonObject, *, is_recorded: bool
    ) -> Outcome:
        messages = await self._sessions.messages.all(session)
        mine = [message for message in messages if message.run_id == turn.run.id]
        if not mine or not mine[-1].tool_calls:
            # A run that was cancelled while it was parked left its call open.
            await turn.close_calls("The run was cancelled.")
            mine = await self._ask_for_call(turn, wanted["tool"], wanted["arguments"])
        records = {}
        if turn.is_resumed:
            records = await read_records(self._journal, session.id, after=turn.run.queued_at)
        calls = [
            Call(message_id=mine[-1].id, part=part, is_recorded=is_recorded)
            for part in mine[-1].tool_calls
            if part.state == "pending"
        ]
        scope = KeptRequest.of(turn.request.options)
        spending = await self._open_spending(turn, scope, len(calls))
        confinement = await self._confinement()
        workspace = confinement.workspace(session.directory)
        commands, runner = confinement.commands(workspace, is_read_only=False)
        rights = Rights(session=RuleSet(rules=session.permission))
        above = lineage_of(session)
        context = ToolContext(
            workspace=workspace,
            http=confinement.http,
            commands=commands,
            session_id=session.id,
            run_id=turn.run.id,
            rights=rights,
            # A person's sandbox is none, unless they speak in the session of somebody's child.
            has_network=above is None or above.sandbox == "network",
            artifacts=JournalArtifacts(turn, self._journal, session.id),
            state=JournalState(turn, self._journal, session.id),
        )
        await restore_grants(workspace, context.state)
        terms = self.approval_terms(scope.on_ask)
        around = self._surroundings().of_run(session.id, turn.run.id, "")
        manager = ToolExecutionManager(
            self._tool_registry(),
            recorder=turn,
            context=around.equip(context),
            gate=confinement.gate((), rights, self.approver or NobodyApproves(), terms),
            approvals=ApprovalBook(self._journal, session.id) if turn.is_resumed else None,
            spend=spending.spend_tool_call if spending is not None else spend_freely,
        )
        around.attend(manager)
        try:
            results = await manager.execute_all(calls, records=records)
        finally:
            if spending is not None:
                spending.close()
            await asyncio.shield(runner.aclose())
        if manager.exhausted is not None:
            return TurnFailed(error=manager.exhausted.to_dict())
        for result in results:
            if not isinstance(result, ToolPart):
                return TurnParked(reason=result.reason)
        return TurnCompleted(result={"message_id": mine[-1].id})

    async def _open_spending(self, turn: Turn, scope: KeptRequest, pending: int) -> Spending | None:
        """Take up what the call may spend; nothing is counted where nothing is limited."""
        session = await self._sessions.get_session(turn.session_id)
        budgets = msgspec.structs.replace(self._budgets(), run=scope.budget)
        limits = session_budget(session)
        spending = Spending(budgets, NO_BUDGET, limits, turn, self._journal.clock)
        if not spending.is_limited:
            return None
        await spending.open(session, self._journal, pending)
        return spending

    async def _ask_for_call(self, turn: Turn, name: str, arguments: JsonObject) -> list[Message]:
        """Write down the request and the call, as an agent's turn would have them."""
        now = self._journal.clock.now()
        call = ToolPart(id=new_id("prt"), call_id=new_id("call"), tool=name, input=arguments)
        asks = compose(turn.session_id, "assistant", [call], now)
        for message in (turn.request.message, asks):
            if message is not None:
                named = msgspec.structs.replace(message, run_id=turn.run.id)
                await turn.add_message(named)
        return [msgspec.structs.replace(asks, run_id=turn.run.id)]
