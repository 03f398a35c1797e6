"""The checks of a step: made by the system, in the sandbox, through the gate.

A check is a tool call like any other: a command asks for the right to `bash`, a look at a file
for the right to `read`, and the journal keeps both. A check may be made again after a crash, so
unlike other commands it is never put before a person for that.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Mapping
from typing import Annotated, cast

import msgspec
from pydantic import Field

from holdfast.agents import Agent
from holdfast.canonical import JsonObject, hash_sha256
from holdfast.errors import FileMissing, NotFound
from holdfast.ids import make_id
from holdfast.messages import Message, ToolPart
from holdfast.orchestration.loop.events import CheckResult
from holdfast.orchestration.loop.options import CheckFunction, StepEvidence
from holdfast.orchestration.loop.plan import Check, PlannedStep
from holdfast.policy import ApprovalTerms
from holdfast.providers.json_schema import list_problems
from holdfast.runs import CallScope, RunServices, locate_run, make_starter_options
from holdfast.sessions import Run, Session, compose
from holdfast.tools import (
    NOTHING_KNOWN,
    Call,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
    builtin_tools,
    make_path_target,
    read_records,
    tool,
)
from holdfast.turns import Outcome, Turn, TurnCompleted, TurnFailed, TurnParked

_MOST_FILE = 16 * 1024 * 1024
_MOST_DETAIL = 800


class CheckRound:
    """All checks of one attempt, as a run of its own: a crash repeats only what is open."""

    def __init__(
        self,
        services: RunServices,
        agent: Agent,
        step: PlannedStep,
        evidence: StepEvidence,
        *,
        functions: Mapping[str, CheckFunction],
        terms: ApprovalTerms,
    ) -> None:
        """Check one attempt with the rights of the agent that made it."""
        self._services = services
        self._functions = functions
        self._terms = terms
        self._agent = agent
        self._step = step
        self._evidence = evidence

    async def run(self, session: Session, run_id: str) -> tuple[CheckResult, ...] | Run:
        """Make the checks and return their results, or the run if it waits for a person."""
        services = self._services
        now = services.sessions.journal.clock.now()
        asked = compose(session.id, "user", f"Check the step {self._step.id}.", now)
        run = await services.turns.submit(
            session.id, asked, run_id=run_id, options=make_starter_options(session)
        )

        async def handler(turn: Turn) -> Outcome:
            return await self._make(turn, session)

        run = await services.turns.run(run.id, handler)
        if run.status == "completed":
            return msgspec.convert(run.result["results"], tuple[CheckResult, ...])
        if run.status == "parked":
            return run
        why = str(run.error.get("message", "")) or run.reason or run.status
        return tuple(
            CheckResult(check=check, is_passed=False, detail=f"It could not be made: {why}")
            for check in self._step.checks
        )

    async def _make(self, turn: Turn, session: Session) -> Outcome:
        services = self._services
        messages = await services.sessions.messages.all(session)
        mine = [message for message in messages if message.run_id == turn.run.id]
        asks = mine[-1] if mine and mine[-1].tool_calls else await self._ask(turn)
        records = {}
        if turn.is_resumed:
            journal = services.sessions.journal
            records = await read_records(journal, session.id, after=turn.run.queued_at)
        at = locate_run(self._agent, session)
        spending = await services.open_spending(
            turn,
            # As it is now: with the calls that were just written down.
            await services.sessions.get_session(session.id),
            agent=self._agent.name,
            shares=at.shares,
            pending=sum(part.state == "pending" for part in asks.tool_calls),
        )
        calls = await services.calls.open_calls(
            CallScope(
                turn=turn,
                session=session,
                tools=self._render_tools(),
                path=at.path,
                rights=at.rights,
                # A check looks at what was done; it needs no network for that.
                sandbox="read-only" if at.sandbox == "read-only" else "workspace-write",
                approver=services.approver,
                terms=self._terms,
                instrumentation=services.instrumentation.make_for_run(
                    session.id, turn.run.id, at.agent_path
                ),
                inherited=at.above.labels if at.above is not None else (),
                spending=spending,
            )
        )
        manager = calls.manager
        done: dict[str, ToolPart] = {}
        try:
            # One after the other: a test run must not see another check's half-made files.
            for part in asks.tool_calls:
                result: object = part
                if part.state == "pending":
                    call = Call(message_id=asks.id, part=part)
                    result = await manager.execute(call, records.get(part.call_id, NOTHING_KNOWN))
                if not isinstance(result, ToolPart):
                    return TurnParked(reason=str(getattr(result, "reason", "")))
                done[part.call_id] = result
                if manager.exhausted is not None:
                    return TurnFailed(error=manager.exhausted.to_dict())
        finally:
            if spending is not None:
                spending.close()
            await asyncio.shield(calls.close())
        results = [self._judge(place, done) for place in range(len(self._step.checks))]
        return TurnCompleted(result={"results": msgspec.to_builtins(results)})

    async def _ask(self, turn: Turn) -> Message:
        """Write the calls down before any of them is made."""
        now = self._services.sessions.journal.clock.now()
        calls = [
            ToolPart(id=make_id("prt"), call_id=_call_id(place), tool=name, input=arguments)
            for place, check in enumerate(self._step.checks)
            for name, arguments in [_call_of(check)]
            if name
        ]
        asks = compose(turn.session_id, "assistant", calls or "There is nothing to call.", now)
        asks = msgspec.structs.replace(asks, run_id=turn.run.id, agent=self._agent.name)
        await turn.add_message(asks)
        return asks

    def _judge(self, place: int, done: Mapping[str, ToolPart]) -> CheckResult:
        check = self._step.checks[place]
        if check.kind == "answer_contains":
            answer = self._evidence.answer
            is_there = check.text.casefold() in answer.casefold() and bool(answer.strip())
            detail = "" if is_there else f"The answer ({len(answer)} characters) does not."
            return CheckResult(check=check, is_passed=is_there, detail=detail)
        part = done[_call_id(place)]
        told = (part.error or part.output).strip()
        is_passed = part.state == "completed"
        if check.kind in ("command", "test"):
            code = part.metadata.get("exit_code")
            wanted = check.exit_code if check.kind == "command" else 0
            is_passed = code == wanted and not part.metadata.get("stopped")
        return CheckResult(check=check, is_passed=is_passed, detail=told[-_MOST_DETAIL:])

    def _render_tools(self) -> ToolRegistry:
        tools = [_find_shell_tool(), _look_tool()]
        if any(check.kind == "function" for check in self._step.checks):
            tools.append(self._make_function_tool())
        # A command asks here where it would ask in the executor's own turn: no rule, no consent.
        return ToolRegistry(tools, scope="built-in")

    def _make_function_tool(self) -> Tool:
        functions, evidence = self._functions, self._evidence

        @tool(effect="read", target="name", timeout_s=600)
        async def check_function(name: str) -> ToolResult:
            """Ask a function of the application."""
            function = functions.get(name)
            if function is None:
                raise NotFound(kind="check function", value=name)
            if inspect.iscoroutinefunction(function):
                answer = await function(evidence)
            else:
                answer = await asyncio.to_thread(function, evidence)
                if inspect.isawaitable(answer):
                    answer = await answer
            is_passed = answer is None or answer is True
            text = answer if isinstance(answer, str) else "passed" if is_passed else "failed"
            return ToolResult(text, is_error=not is_passed)

        return check_function


@functools.cache
def _find_shell_tool() -> Tool:
    return msgspec.structs.replace(builtin_tools().get("bash"), effect="idempotent")


@functools.cache
def _look_tool() -> Tool:
    @tool(name="read", effect="read", target=make_path_target("path"))
    async def look(
        path: str,
        context: ToolContext,
        kind: str = "file_exists",
        text: str = "",
        sha256: str = "",
        json_schema: Annotated[str, Field(max_length=1_000_000)] = "",
    ) -> ToolResult:
        """Look at one file of the workspace."""
        if kind == "file_exists":
            try:
                info = await context.look(context.workspace.stat, path)
            except FileMissing:
                return ToolResult("There is nothing at this path.", is_error=True)
            return ToolResult(f"a {info.kind} of {info.size} bytes")
        data = await context.look(context.workspace.read, path, max_bytes=_MOST_FILE)
        fault = _find_fault(data, kind, text, sha256, json_schema)
        return ToolResult(fault or f"{len(data)} bytes", is_error=bool(fault))

    return look


def _find_fault(data: bytes, kind: str, text: str, sha256: str, json_schema: str) -> str:
    if kind == "file_contains":
        return "" if text.encode() in data else "The text is not in the file."
    if kind == "file_hash":
        found = hash_sha256(data)
        return "" if found == sha256.lower() else f"Its hash is {found}."
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"The file is no JSON: {error}"
    return "; ".join(list_problems(value, msgspec.json.decode(json_schema)))


def _call_id(place: int) -> str:
    return f"check_{place}"


def _call_of(check: Check) -> tuple[str, JsonObject]:
    """Return tool and arguments of a check; no tool for one that is about the answer."""
    match check.kind:
        case "command" | "test":
            timeout = max(0.1, min(600.0, check.timeout_s))
            return "bash", {"command": check.command, "timeout": timeout}
        case "function":
            return "check_function", {"name": check.function}
        case "answer_contains":
            return "", {}
    fields = ("text", "sha256", "json_schema")
    given = {name: getattr(check, name) for name in fields if getattr(check, name)}
    return "read", cast(JsonObject, {"path": check.path, "kind": check.kind, **given})
