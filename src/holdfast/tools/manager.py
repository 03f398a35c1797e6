"""The one place that executes tools.

    validate -> gate -> doom loop -> intent -> run -> result -> journal

Whatever calls a tool (a model, a batch, a workflow, a person at the command line) comes
through here. What a call did is never lost: the intent of an effect is on disk before it
happens, and the result is a fact of the conversation.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    HoldfastError,
    PermissionDenied,
    TellModel,
    ToolError,
    ToolInputInvalid,
    ToolTimeout,
)
from holdfast.journal import Event, Payload
from holdfast.messages import ToolPart
from holdfast.policy import CallRequest, Decision
from holdfast.sessions.events import MessagePartUpdated
from holdfast.tools import ledger
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.doom_loop import DoomLoop
from holdfast.tools.effects import Intent
from holdfast.tools.events import (
    PermissionAsked,
    PermissionGranted,
    PermissionRefused,
    ToolOutcomeUnknown,
    ToolParked,
    ToolStarted,
)
from holdfast.tools.gate import ApprovalRequest, Gate, default_action
from holdfast.tools.ledger import NOTHING_KNOWN, CallRecord
from holdfast.tools.output import shorten
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import Parked, ToolResult


class Recorder(Protocol):
    """Where a run's facts go; `sessions.Turn` is one."""

    async def append(
        self, *payloads: Payload, agent_path: str = "", is_synced: bool = False
    ) -> tuple[Event, ...]:
        """Append facts of the run, together or not at all."""
        ...


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run's calls may take."""

    parallel: int = 8
    output_chars: int = 30_000
    timeout_s: float | None = None
    """An upper bound for all tools; each has its own limit too."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the part of an assistant's message that asks for it."""

    message_id: str
    part: ToolPart


class ToolExecutionManager:
    """Executes the calls of one run.

    It takes its registry as an argument and knows no tool by itself.
    """

    def __init__(
        self,
        tool_registry: ToolRegistry,
        *,
        recorder: Recorder,
        context: ToolContext,
        gate: Gate | None = None,
        limits: Limits | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Execute tools of this registry for the run that the recorder writes."""
        self.tool_registry = tool_registry
        self.gate = gate or Gate()
        self._recorder = recorder
        self._context = context
        self._limits = limits or Limits()
        self._clock = clock
        self._doom = DoomLoop()
        self._cache: dict[str, ToolPart] = {}

    async def execute_all(
        self, calls: Sequence[Call], *, records: Mapping[str, CallRecord] | None = None
    ) -> tuple[ToolPart | Parked, ...]:
        """Execute calls, several at a time, and return their results in the order of the calls.

        `records` is what the journal knows about calls that have begun before
        (`ledger.read_records`), by call id.
        """
        places = asyncio.Semaphore(self._limits.parallel)
        known = records or {}

        async def one(call: Call) -> ToolPart | Parked:
            async with places:
                return await self.execute(call, known.get(call.part.call_id, NOTHING_KNOWN))

        if len(calls) == 1:
            return (await one(calls[0]),)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(call)) for call in calls]
        return tuple(task.result() for task in tasks)

    async def execute(self, call: Call, record: CallRecord = NOTHING_KNOWN) -> ToolPart | Parked:
        """Execute one call and return its part with the result, which is then in the journal.

        A failure is a result too: it goes back to the model with a hint, recorded as an error.
        """
        part = call.part
        try:
            tool = self._find(part.tool)
            values = self._validate(tool, part)
            if record == NOTHING_KNOWN:
                request, decision = self._judge(tool, values)
                await self._pass_gate(call, tool, request, decision)
                if tool.cacheable and (known := self._cache.get(self._cache_key(tool, part))):
                    return await self._finish(call, _with_result(part, known))
                return await self._start(call, tool, values, request, decision)
            return await self._recover(call, tool, values, record)
        except TellModel as told:
            return await self._fail(call, told.text)
        except HoldfastError as error:
            hint = f" {error.hint}" if error.hint else ""
            return await self._fail(call, f"{error}{hint}")

    # --- the steps --------------------------------------------------------------------

    def _find(self, name: str) -> Tool:
        tool = self.tool_registry.find(name)
        if tool is None:
            known = list(self.tool_registry.tools)
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            shown = ", ".join(near or known[:20])
            raise ToolError(tool=name, detail=f"there is no such tool; there are: {shown}.")
        return tool

    def _validate(self, tool: Tool, part: ToolPart) -> dict[str, Any]:
        if part.raw_input:
            raise ToolInputInvalid(tool=tool.name, detail="the arguments are no JSON object")
        return tool.validate(part.input)

    def _judge(self, tool: Tool, values: dict[str, Any]) -> tuple[CallRequest, Decision]:
        request = CallRequest(
            permission=tool.name,
            targets=tool.targets(values, self._context.workspace),
            target_kind=tool.target_kind,
            default=default_action(tool, self.tool_registry.scope_of(tool.name)),
        )
        return request, self.gate.decide(request)

    async def _pass_gate(
        self, call: Call, tool: Tool, request: CallRequest, decision: Decision
    ) -> None:
        """Return if the call may run; raise PermissionDenied if it may not."""
        await self._consent(call, tool, request, decision)
        if self._doom.is_repeating(tool.name, call.part.input):
            loop = CallRequest(permission="doom_loop", targets=(tool.name,), default="ask")
            await self._consent(call, tool, loop, self.gate.decide(loop))
            self._doom.forgive()

    async def _consent(
        self, call: Call, tool: Tool, request: CallRequest, decision: Decision
    ) -> None:
        if decision.action == "allow":
            return
        because = decision.explain()
        if decision.action == "ask":
            asked = PermissionAsked(
                call_id=call.part.call_id,
                tool=tool.name,
                permission=request.permission,
                targets=request.targets,
                decision=decision,
            )
            await self._append(asked)
            answer = await self.gate.approver.approve(self._approval(call, tool, request, decision))
            if answer is not None and answer.verdict == "allow":
                granted = PermissionGranted(
                    call_id=call.part.call_id,
                    permission=request.permission,
                    granted_by=answer.by,
                )
                await self._append(granted)
                return
            because = "nobody is here to ask"
            if answer is not None:
                because = f"{answer.by} said no" + (f": {answer.reason}" if answer.reason else "")
        refused = PermissionRefused(
            call_id=call.part.call_id,
            tool=tool.name,
            permission=request.permission,
            targets=request.targets,
            because=because,
            decision=decision,
        )
        await self._append(refused)
        raise PermissionDenied(
            permission=request.permission, target=", ".join(request.targets), because=because
        )

    def _approval(
        self, call: Call, tool: Tool, request: CallRequest, decision: Decision
    ) -> ApprovalRequest:
        return ApprovalRequest(
            call_id=call.part.call_id,
            tool=tool.name,
            permission=request.permission,
            targets=request.targets,
            arguments=call.part.input,
            agent_path="/".join(self._context.agent_path),
            decision=decision,
        )

    async def _start(
        self,
        call: Call,
        tool: Tool,
        values: dict[str, Any],
        request: CallRequest,
        decision: Decision,
    ) -> ToolPart | Parked:
        context = self._call_context(call)
        if tool.effect != "read":
            noted = await tool.prepare(values, context) if tool.prepare else {}
            started = ToolStarted(
                intent=self._intent(call, tool, context, noted),
                message_id=call.message_id,
                effect=tool.effect,
                source_hash=tool.source_hash,
                targets=request.targets,
                policy_version=decision.policy_version,
            )
            # An idempotent call has the same key after every restart; the others must be known.
            await self._append(started, is_synced=tool.effect != "idempotent")
        return await self._run(call, tool, values, context)

    async def _recover(
        self, call: Call, tool: Tool, values: dict[str, Any], record: CallRecord
    ) -> ToolPart | Parked:
        """Go on with a call that a crash or a wait left open."""
        context = self._call_context(call)
        way = await ledger.way_forward(tool, record, context)
        if isinstance(way, ledger.Again):
            if record.parked is not None:
                return Parked(reason=record.parked.reason, request=record.parked.request)
            return await self._run(call, tool, values, context)
        if isinstance(way, ledger.Known):
            return await self._finish(call, self._completed(call, tool, way.result, None))
        if record.unknown is None:
            unknown = ToolOutcomeUnknown(
                call_id=call.part.call_id, tool=tool.name, question=way.question
            )
            await self._append(unknown)
        shown: JsonObject = {
            "call_id": call.part.call_id,
            "tool": tool.name,
            "arguments": call.part.input,
            "question": way.question,
        }
        return Parked(reason="unknown_outcome", request=shown)

    async def _run(
        self, call: Call, tool: Tool, values: dict[str, Any], context: ToolContext
    ) -> ToolPart | Parked:
        begun = self._clock.now()
        limit = min(tool.timeout_s, self._limits.timeout_s or tool.timeout_s)
        try:
            async with asyncio.timeout(limit) as timer:
                outcome = await tool.call(values, context)
        except TimeoutError as error:
            context.cancellation.cancel()
            if timer.expired():
                raise ToolTimeout(tool=tool.name, limit_s=limit) from error
            raise ToolError(tool=tool.name, detail=f"it timed out: {error}") from error
        except asyncio.CancelledError:
            context.cancellation.cancel()
            await asyncio.shield(self._fail(call, "The call was cancelled.", begun=begun))
            raise
        except (TellModel, HoldfastError):
            raise
        except (Exception, SystemExit) as error:
            detail = f"{type(error).__name__}: {error}"
            raise ToolError(tool=tool.name, detail=detail) from error
        if isinstance(outcome, Parked):
            parked = ToolParked(
                call_id=call.part.call_id,
                tool=tool.name,
                reason=outcome.reason,
                request=outcome.request,
            )
            await self._append(parked)
            return outcome
        outcome = await shorten(outcome, self._limits.output_chars, context)
        done = self._completed(call, tool, outcome, begun)
        if tool.cacheable and not outcome.is_error:
            self._cache[self._cache_key(tool, call.part)] = done
        return await self._finish(call, done)

    # --- results ----------------------------------------------------------------------

    def _completed(
        self, call: Call, tool: Tool, result: ToolResult, begun: float | None
    ) -> ToolPart:
        now = self._clock.now()
        provenance = {"tool_version": tool.version, "source_hash": tool.source_hash}
        return msgspec.structs.replace(
            call.part,
            state="error" if result.is_error else "completed",
            output="" if result.is_error else result.output,
            error=result.output if result.is_error else "",
            title=result.title,
            attachments=result.attachments,
            metadata={**result.metadata, **provenance},
            time_start=begun if begun is not None else now,
            time_end=now,
        )

    async def _fail(self, call: Call, text: str, *, begun: float | None = None) -> ToolPart:
        now = self._clock.now()
        failed = msgspec.structs.replace(
            call.part,
            state="error",
            error=text,
            time_start=begun if begun is not None else now,
            time_end=now,
        )
        return await self._finish(call, failed)

    async def _finish(self, call: Call, part: ToolPart) -> ToolPart:
        await self._append(MessagePartUpdated(message_id=call.message_id, part=part))
        return part

    async def _append(self, *payloads: Payload, is_synced: bool = False) -> None:
        agent_path = "/".join(self._context.agent_path)
        await self._recorder.append(*payloads, agent_path=agent_path, is_synced=is_synced)

    def _intent(self, call: Call, tool: Tool, context: ToolContext, noted: JsonObject) -> Intent:
        return Intent(
            tool=tool.name,
            version=tool.version,
            call_id=call.part.call_id,
            idempotency_key=context.idempotency_key,
            arguments=call.part.input,
            noted=noted,
        )

    def _call_context(self, call: Call) -> ToolContext:
        """The context of one call; its key is the same after every restart."""
        return self._context.for_call(
            call.part.call_id, f"{self._context.run_id}:{call.message_id}:{call.part.call_id}"
        )

    def _cache_key(self, tool: Tool, part: ToolPart) -> str:
        return digest([tool.name, tool.source_hash, part.input])


def _with_result(part: ToolPart, known: ToolPart) -> ToolPart:
    return msgspec.structs.replace(known, id=part.id, call_id=part.call_id)
