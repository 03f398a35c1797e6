"""What steps do: call a tool, run an agent or a workflow, use state, work out a value.

Each attempt has ids that follow from the run, the path of the step and the number of the
attempt. After a crash the same ids find the call, the child's session and the child's run
again, so that what has a result is not done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from holdfast.agents import Agent, AgentResult, RunRequest, UnlimitedAgent
from holdfast.canonical import JsonObject, digest
from holdfast.errors import (
    AlreadyExists,
    BudgetExceeded,
    StepFailed,
    ToolError,
    WorkflowLimit,
    make_error_from_dict,
)
from holdfast.journal import Payload
from holdfast.messages import ToolPart, strip_session
from holdfast.orchestration.workflows import events as facts
from holdfast.orchestration.workflows.definition import Definition, WorkflowStep
from holdfast.orchestration.workflows.expressions import Names, Value, as_text, render
from holdfast.orchestration.workflows.request import WorkflowRequest
from holdfast.orchestration.workflows.result import WorkflowResult
from holdfast.policy import NO_BUDGET, Budget
from holdfast.runs import CallScope, RunCalls, RunServices, Spending, list_below, locate_run
from holdfast.sessions import MessageCreated, Session, compose
from holdfast.state import StateManager
from holdfast.tools import (
    GIVEN_BY_HAND,
    NOTHING_KNOWN,
    Call,
    CallRecord,
    Gate,
    GateStateAccess,
    ToolRegistry,
    find_new_labels,
    read_kept_labels,
    read_records,
)
from holdfast.turns import Turn

MOST_DEPTH = 10
"""How deep workflows and agents may start one another."""


class Waits(Exception):
    """A step waits for an answer; the workflow parks."""

    def __init__(self, reason: str) -> None:
        """Keep for what."""
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a step."""

    step: WorkflowStep
    path: str
    number: int
    key: str

    def started(self, *, child_session: str = "", child_run: str = "") -> facts.WorkflowStepStarted:
        """The fact that it begins."""
        return facts.WorkflowStepStarted(
            path=self.path,
            does=self.step.does[:200],
            attempt=self.number,
            child_session=child_session,
            child_run=child_run,
        )


def attempt_at(run_id: str, step: WorkflowStep, path: str, number: int) -> Attempt:
    """Return an attempt, with the key from which its ids are made."""
    key = digest([run_id, path, number])[:26]
    return Attempt(step=step, path=path, number=number, key=key)


class RecordsSteps(Protocol):
    """Keeps facts of the workflow, and tells a subscriber."""

    async def __call__(self, *payloads: Payload) -> None:
        """Keep facts together."""
        ...


class NestedRunner(Protocol):
    """Runs a workflow inside another one."""

    async def __call__(
        self, order: WorkflowRequest, session: Session, run_id: str
    ) -> WorkflowResult:
        """Run it, or resume it, and return its result."""
        ...


class WorkflowCode(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow uses that cannot be written into its file.

    `agents` are those that were handed over as objects; the executor of runs knows the others.
    `sleep` waits between attempts.
    """

    tools: ToolRegistry
    agents: Mapping[str, Agent] = msgspec.field(default_factory=dict)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


class StepExecutor:
    """Executes the steps of one run that do something."""

    def __init__(
        self,
        services: RunServices,
        turn: Turn,
        session: Session,
        order: WorkflowRequest,
        *,
        code: WorkflowCode,
        record: RecordsSteps,
        nested: NestedRunner,
    ) -> None:
        """Work for one turn of a workflow."""
        self._services = services
        self._turn = turn
        self._session = session
        self._order = order
        self._code = code
        self._record = record
        self._nested = nested
        self._definition: Definition = order.definition
        self.identity = identify_agent(order.definition)
        self.position = locate_run(self.identity, session)
        self._starter = identify_starter(order.definition)
        self._spending: Spending | None = None
        self._parts: Mapping[str, ToolPart] = {}
        self._records: Mapping[str, CallRecord] = {}
        self._calls: RunCalls | None = None
        self._open_calls_of_run: set[str] = set()
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Read what the journal knows about calls that have begun before, and what was spent."""
        if self._turn.is_resumed:
            messages = await self._services.sessions.messages.all(self._session)
            self._parts = {part.call_id: part for one in messages for part in one.tool_calls}
            self._open_calls_of_run = {
                part.call_id
                for one in messages
                for part in one.tool_calls
                if one.run_id == self._turn.run.id and part.state == "pending"
            }
            self._records = await read_records(
                self._services.sessions.journal, self._session.id, after=self._turn.run.queued_at
            )
        self._spending = await self._services.open_spending(
            self._turn,
            self._session,
            agent=self.identity.name,
            run=self._order.budget,
            shares=self.position.shares,
            pending=sum(part.state == "pending" for part in self._parts.values()),
        )

    @property
    def seconds_left(self) -> float | None:
        """How long the workflow may go on working; `None` without limit."""
        return self._spending.seconds_left if self._spending is not None else None

    def make_out_of_time(self) -> BudgetExceeded | None:
        """Return the error of a workflow that has worked too long, if it has."""
        if self._spending is None or self._spending.seconds_left != 0:
            return None
        return self._spending.make_out_of_time()

    async def close_calls(self, because: str) -> None:
        """Give every call of this run that has no result an error: no caller makes it any more."""
        if self._open_calls_of_run:
            await self._turn.close_own_calls(because)

    async def close(self) -> None:
        """End what commands left behind."""
        if self._spending is not None:
            self._spending.close()
        if self._calls is not None:
            await self._calls.close()

    async def execute(self, attempt: Attempt, names: Names) -> Value:
        """Make one attempt and return the output of the step.

        Raises:
            Waits: it waits for a person.
            HoldfastError: it failed.
        """
        match attempt.step.kind:
            case "tool":
                return await self._call_tool(attempt, names)
            case "agent":
                return await self._run_agent(attempt, names)
            case "workflow":
                return await self._run_workflow(attempt, names)
            case "state":
                return await self._use_state(attempt, names)
        await self._record(attempt.started())
        return render(attempt.step.value, names)

    # --- tools ------------------------------------------------------------------------

    async def _call_tool(self, attempt: Attempt, names: Names) -> Value:
        part = self._parts.get(f"call_{attempt.key}")
        if part is None:
            part = await self._ask_for_call(attempt, render(attempt.step.with_, names))
        if part.state == "pending":
            part = await self._finish_call(attempt, part)
        if part.state == "error":
            raise ToolError(tool=part.tool, detail=part.error)
        return part.output

    async def _ask_for_call(self, attempt: Attempt, arguments: JsonObject) -> ToolPart:
        """Write down the call as an agent's turn would have it."""
        part = ToolPart(
            id=f"prt_{attempt.key}",
            call_id=f"call_{attempt.key}",
            tool=attempt.step.tool or "",
            input=arguments,
        )
        asks = compose(self._session.id, "assistant", [part], self._services.clock.now())
        named = msgspec.structs.replace(asks, id=f"msg_{attempt.key}", run_id=self._turn.run.id)
        self._open_calls_of_run.add(part.call_id)
        await self._record(attempt.started(), MessageCreated(message=strip_session(named)))
        return part

    async def _finish_call(self, attempt: Attempt, part: ToolPart) -> ToolPart:
        async with self._opening:
            if self._calls is None:
                self._calls = await self._open_calls()
        manager = self._calls.manager
        # A workflow repeats what its author wrote; no model is caught in a loop.
        manager.forget_repetitions()
        call = Call(message_id=f"msg_{attempt.key}", part=part)
        known = self._records.get(part.call_id, NOTHING_KNOWN)
        ended = await manager.execute(call, known)
        if manager.exhausted is not None:
            raise manager.exhausted
        if isinstance(ended, ToolPart):
            self._open_calls_of_run.discard(part.call_id)
            return ended
        raise Waits(ended.reason)

    async def _open_calls(self) -> RunCalls:
        """Put together what surrounds the calls of this run's steps."""
        services, session, at = self._services, self._session, self.position
        return await services.calls.open_calls(
            CallScope(
                turn=self._turn,
                session=session,
                tools=self._code.tools,
                path=at.path,
                rights=at.rights,
                handed_on=locate_run(self._starter, session).rights,
                sandbox=at.sandbox,
                approver=services.approver,
                terms=msgspec.structs.replace(services.terms, on_ask=self._order.on_ask),
                instrumentation=services.instrumentation.make_for_run(
                    session.id, self._turn.run.id, at.agent_path
                ),
                inherited=at.above.labels if at.above is not None else (),
                spending=self._spending,
                given=GIVEN_BY_HAND,
            )
        )

    # --- state ------------------------------------------------------------------------

    async def _use_state(self, attempt: Attempt, names: Names) -> Value:
        """Read or write a value; its author wrote the address, so a person's rights hold.

        The session's rules, the operator's, and those of whoever started the workflow do too.
        """
        step = attempt.step
        await self._record(attempt.started())
        address = as_text(render(step.state, names))
        async with self._opening:
            if self._calls is None:
                self._calls = await self._open_calls()
        context = self._calls.context
        gate = Gate(
            policies=self._services.confinement.policies,
            agent_path="/".join(self.position.path),
            rights=locate_run(self._starter, self._session).rights,
        )
        own = context.execution.get(StateManager)
        state = StateManager(msgspec.structs.replace(own.environment, access=GateStateAccess(gate)))
        value: Value
        if step.set is None:
            value = await state.get(address)
        else:
            value = (await state.set(address, render(step.set, names))).value
        if context.labels.new:
            await self._turn.append(*context.labels.list_unkept())
        return value

    # --- runs of their own ------------------------------------------------------------

    async def _run_agent(self, attempt: Attempt, names: Names) -> Value:
        step = attempt.step
        message = as_text(render(step.message, names))
        child = await self._make_child(attempt, f"{self._definition.name}: {attempt.path}")
        name = step.agent or ""
        result = await self._services.executor.execute(
            RunRequest(
                agent=self._code.agents.get(name, name),
                session_id=child,
                message=message,
                run_id=f"run_{attempt.key}",
                on_ask=self._order.on_ask,
                # The step waits with the whole run, and is no attempt that failed.
                on_outage="park",
                budget=self._compute_time_left(),
                tool_ids=step.tools,
            )
        )
        await self._read_of(child)
        return _answer(attempt, result)

    async def _run_workflow(self, attempt: Attempt, names: Names) -> Value:
        inputs = render(attempt.step.with_, names)
        order = self._order.inner(attempt.step.workflow or "", inputs, self._compute_time_left())
        child = await self._make_child(attempt, f"{order.definition.name}: {attempt.path}")
        session = await self._services.sessions.get_session(child)
        result = await self._nested(order, session, f"run_{attempt.key}")
        await self._read_of(child)
        if result.status == "parked":
            raise Waits(result.reason)
        if result.status == "failed":
            raise make_error_from_dict(result.error)
        if result.status == "cancelled":
            raise StepFailed(step=attempt.path, detail=f"cancelled. {result.reason}".strip())
        return result.output

    async def _read_of(self, child: str) -> None:
        """Take on the taint labels of a child, whose answer the next steps use."""
        journal = self._services.sessions.journal
        if new := await find_new_labels(journal, self._session.id, child):
            await self._turn.append(*new)
        if self._calls is not None:
            self._calls.context.labels.add(await read_kept_labels(journal, child))

    def _compute_time_left(self) -> Budget:
        """What a run of its own gets besides its shares: no more time than this one has."""
        seconds = self.seconds_left
        return NO_BUDGET if seconds is None else Budget(max_wall_s=seconds)

    async def _make_child(self, attempt: Attempt, title: str) -> str:
        """Return the session of a child, below this run; made if it is not there yet."""
        above = self.position.above
        if above is not None and above.depth >= MOST_DEPTH:
            detail = f"workflows and agents start one another more than {MOST_DEPTH} deep"
            raise WorkflowLimit(step=attempt.path, detail=detail)
        child = f"ses_{attempt.key}"
        lineage = list_below(
            self._starter,
            self._session,
            run_id=self._turn.run.id,
            call_id=attempt.key,
            shares=self._spending.shares if self._spending is not None else None,
            labels=await read_kept_labels(self._services.sessions.journal, self._session.id),
        )
        run_id = f"run_{attempt.key}"
        await self._record(attempt.started(child_session=child, child_run=run_id))
        with contextlib.suppress(AlreadyExists):
            await self._services.sessions.create_session(
                title[:200],
                project_id=self._session.project_id,
                directory=self._session.directory,
                parent_id=self._session.id,
                metadata=lineage.to_metadata(),
                session_id=child,
            )
        return child


def identify_agent(definition: Definition) -> Agent:
    """Return as whom a workflow acts: it adds no rights, and may take the sandbox's away."""
    return Agent(f"workflow:{definition.name}", sandbox=definition.sandbox)


def identify_starter(definition: Definition) -> Agent:
    """Return as whom a workflow starts others: as a person would, held back by nothing of its own.

    The session's rules, the operator's, and those of the caller that started the workflow still
    hold.
    """
    return UnlimitedAgent(f"workflow:{definition.name}", sandbox=definition.sandbox)


def _answer(attempt: Attempt, result: AgentResult) -> Value:
    match result.status:
        case "completed":
            if result.output is not None:
                with contextlib.suppress(msgspec.DecodeError):
                    return msgspec.json.decode(result.response)
            return result.response
        case "parked":
            raise Waits(str(result.metadata.get("reason", "")) or "approval")
        case "failed":
            error = result.metadata.get("error")
            raise make_error_from_dict(error if isinstance(error, dict) else {})
    reason = str(result.metadata.get("reason", ""))
    raise StepFailed(step=attempt.path, detail=f"cancelled. {reason}".strip())


__all__ = ["MOST_DEPTH", "Attempt", "StepExecutor", "Waits", "attempt_at", "identify_agent"]
