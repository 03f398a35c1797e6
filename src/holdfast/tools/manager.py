"""The one place that executes tools.

    validate -> gate -> doom loop -> intent -> run -> result -> journal

Whatever calls a tool (a model, a batch, a workflow, a person at the command line) comes
through here. What a call did is never lost: the intent of an effect is on disk before it
happens, and the result is a fact of the conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    BudgetExceeded,
    HoldfastError,
    LeaseLost,
    PermissionDenied,
    ResultNotStored,
    SandboxFailed,
    StorageError,
    TellModel,
    ToolError,
)
from holdfast.hooks import NOWHERE, Emitter, Silence
from holdfast.journal import Payload
from holdfast.messages import ToolPart
from holdfast.policy import Approvals, NoApprovals, PolicyViolation
from holdfast.sessions import MessagePartUpdated
from holdfast.tools import ledger
from holdfast.tools.approval_broker import ApprovalBroker
from holdfast.tools.artifacts import RunArtifacts
from holdfast.tools.calls import AdmittedCall, Call, Denial, refuse_unsound, render_error_text
from holdfast.tools.child_limits import give_no_limit
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.effects import Intent
from holdfast.tools.events import (
    NestedCallEnded,
    ToolOutcomeDecided,
    ToolOutcomeUnknown,
    ToolParked,
    ToolStarted,
)
from holdfast.tools.gate import Admission, Gate, ToolPermissionFilter
from holdfast.tools.hooked import ToolHooks
from holdfast.tools.invocation import (
    ask_aside,
    check_result,
    clip,
    invoke,
    keep_attachments,
    shorten,
)
from holdfast.tools.ledger import NOTHING_KNOWN, CallRecord
from holdfast.tools.recording import CallFacts, NotRecorded, Recorder, await_recorded
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import NestedCallWaits, Parked, ToolResult
from holdfast.tools.services import Cancellation, PassedBy
from holdfast.turns import is_exhaustion

Spend: TypeAlias = Callable[[], Awaitable[None]]


_GRACE_S = 1.0
"""So much longer than the run a call may work: runs that it started end by themselves."""


async def spend_freely() -> None:
    """Nothing is counted."""


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run's calls may take."""

    parallel: int = 8
    output_chars: int = 30_000
    timeout_s: float | None = None
    """An upper bound for all tools; each has its own limit too."""


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
        approvals: Approvals | None = None,
        spend: Spend = spend_freely,
        limits: CallLimits | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Execute tools of this registry for the run that the recorder writes.

        `approvals` is where answers that came while the run was parked are found. `spend`
        is called before each call that begins, and may raise BudgetExceeded.
        """
        self.tool_registry = tool_registry
        self.gate = gate or Gate()
        self._context = context
        ends_in = context.child_limits.seconds_left
        self._ends_in = ends_in if ends_in is not give_no_limit else None
        self._agent_path = "/".join(context.agent_path)
        self._recorder = recorder
        self._facts = CallFacts(recorder, self._agent_path)
        self._limits = limits or CallLimits()
        self._clock = clock
        self._cache: dict[str, ToolPart] = {}
        self._spend = spend if spend is not spend_freely else None
        self.exhausted: BudgetExceeded | None = None
        """The budget that a call did not fit into; the run should end."""
        self.stopped_by = ""
        """Who ended the run when asked for consent; empty as long as no caller did."""
        self._broker = ApprovalBroker(
            self.gate, approvals or NoApprovals(), self._facts.append, clock
        )
        self._admission = Admission(
            tool_registry, self.gate, self._broker, context, self._agent_path
        )
        self._known: dict[str, CallRecord] = {}
        self.hooks: ToolHooks | None = None
        self.bus: Emitter = Silence()
        """Told of every call whose function is about to be called."""
        self.where = NOWHERE

    async def execute_all(
        self, calls: Sequence[Call], *, records: Mapping[str, CallRecord] | None = None
    ) -> tuple[ToolPart | Parked, ...]:
        """Execute calls, several at a time, and return their results in the order of the calls.

        `records` is what the journal knows about calls that have begun before
        (`ledger.read_records`), by call id.
        """
        known = records or {}
        self._known.update(known)
        if len(calls) == 1:
            record = known.get(calls[0].part.call_id, NOTHING_KNOWN)
            return (await self.execute(calls[0], record),)
        places = asyncio.Semaphore(self._limits.parallel)

        async def one(call: Call) -> ToolPart | Parked:
            async with places:
                return await self.execute(call, known.get(call.part.call_id, NOTHING_KNOWN))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(call)) for call in calls]
        except ExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__  # its own cause tells a fault of the machine
        return tuple([task.result() for task in tasks])

    def check_doom_loop(self, tool: str, arguments: JsonObject) -> bool:
        """Say whether a call would be the third equal one in a row, about which a person is asked.

        Looks only: the gate counts the calls themselves.
        """
        return self._admission.doom.would_loop(tool, arguments)

    def remember(self, calls: Sequence[ToolPart]) -> None:
        """Count calls of the same run that were made before, so that loops are noticed."""
        for part in calls:
            self._admission.doom.count_and_check(part.tool, part.input)

    def forget_repetitions(self) -> None:
        """Count calls anew: those to come do not follow from those before."""
        self._admission.doom.forgive()

    async def execute(self, call: Call, record: CallRecord = NOTHING_KNOWN) -> ToolPart | Parked:
        """Execute one call and return its part with the result, which is then in the journal.

        A failure is a result too: it goes back to the model with a hint, recorded as an error.
        """
        try:
            try:
                if record is NOTHING_KNOWN and self.hooks is None:
                    return await self._execute(call, record)
                return await self._attempt(call, record)
            except TellModel as said:
                return await self._fail(call, said.text)
            except HoldfastError as error:
                return await self._fail(call, render_error_text(error))
        except NestedCallWaits as waits:
            return waits.parked
        except NotRecorded as failed:
            raise failed.error from failed.error.__cause__

    async def _attempt(self, call: Call, record: CallRecord) -> ToolPart | Parked:
        record = _require_begun(record, call)
        if record.ended is not None:
            return record.ended
        if self.hooks is not None:
            return await self.hooks.around(call, record, self._execute, self._facts.append)
        return await self._execute(call, record)

    async def _execute(self, call: Call, record: CallRecord) -> ToolPart | Parked:
        if record.started is not None:
            # What began is what goes on, also where a person had changed the arguments.
            call = call.with_input(record.started.intent.arguments)
        try:
            tool = self.tool_registry.find(call.part.tool)
            if tool is None:
                raise self._report_unknown(call.part.tool)
            if call.part.raw_input or call.is_recorded or record.started is not None:
                refuse_unsound(tool, call.part)
            values = tool.validate(call.part.input)
            if self.hooks is not None:
                await self.hooks.validated(call)
            if record is not NOTHING_KNOWN and (
                gone_on := await self._recover(call, tool, values, record)
            ):
                return gone_on
            passage = await self._admission.admit(call, tool, values, self._call_context)
            if not isinstance(passage, AdmittedCall):
                return await self._halt(passage)
            call = passage.call
            may_be_known = self.hooks is not None or tool.cacheable
            if may_be_known and (known := self._answer_without_running(call, tool)) is not None:
                return await self._finish(call, known, *passage.facts)
            context = self._call_context(call, passage)
            if self._spend is not None or tool.effect != "read" or passage.facts:
                await self._begin(tool, passage, context)
            try:
                return await self._run(call, tool, passage.values, context)
            except NotRecorded as failed:
                raise _make_lost(tool, failed) from failed
        except TellModel as said:
            return await self._fail(call, said.text)
        except HoldfastError as error:
            return await self._fail(
                call, render_error_text(error), facts=self._list_violations(call, error)
            )

    # --- the steps --------------------------------------------------------------------

    async def _halt(self, stopped: Denial | Parked) -> ToolPart | Parked:
        if isinstance(stopped, Denial):
            self.stopped_by = self._broker.stopped_by
            return await self._fail(stopped.call, stopped.text, facts=stopped.facts)
        return stopped

    def _report_unknown(self, name: str) -> ToolError:
        # Names that it could never call would only lead a model astray.
        usable = ToolPermissionFilter(self.gate).filter_tools(self.tool_registry)
        known = [tool.name for tool in usable if "unoffered" not in tool.tags]
        import difflib  # noqa: PLC0415 - only for those who made a mistake

        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        shown = ", ".join(near or known[:20])
        return ToolError(tool=name, detail=f"there is no such tool; there are: {shown}.")

    def _list_violations(self, call: Call, error: HoldfastError) -> tuple[Payload, ...]:
        """What a tool or the sandbox refused is kept beside the call's result."""
        if not isinstance(error, PermissionDenied | SandboxFailed):
            return ()
        said = error.context
        against = PolicyViolation(
            permission=str(said.get("permission", call.part.tool)),
            targets=(str(said.get("target", call.part.tool)),),
            because=str(error),
            source="tool" if isinstance(error, PermissionDenied) else "sandbox",
            session_id=self._context.session_id,
            call_id=call.part.call_id,
            agent=self._agent_path,
            policy_version=self.gate.policy_version,
        )
        return (against,)

    def _answer_without_running(self, call: Call, tool: Tool) -> ToolPart | None:
        """Return the result that a hook has given, or that an equal call of the run had."""
        if self.hooks is not None and (given := self.hooks.substitute(call)) is not None:
            return self._make_completed(call, tool, given, None)
        if tool.cacheable and (known := self._cache.get(self._make_cache_key(tool, call.part))):
            return msgspec.structs.replace(known, id=call.part.id, call_id=call.part.call_id)
        return None

    async def _begin(self, tool: Tool, passage: AdmittedCall, context: ToolContext) -> None:
        """Spend what a call costs, and record that it begins."""
        call = passage.call
        if self._spend is not None:
            try:
                await self._spend()
            except BudgetExceeded as error:
                self.exhausted = error
                raise
        # A call that an approver consented to leaves its intent in the same transaction.
        if tool.effect == "read" and not passage.facts:
            return
        started = ToolStarted(
            intent=await self._read_intent(call, tool, passage.values, context),
            message_id=call.message_id,
            effect=tool.effect,
            source_hash=tool.source_hash,
            targets=passage.request.targets,
            policy_version=passage.decision.policy_version,
        )
        # On the disk before the effect, and with it the message that asks for the call:
        # a power cut must neither hide the effect nor change its key.
        is_synced = tool.effect != "read"
        await self._facts.append(*passage.facts, started, is_synced=is_synced)

    async def _recover(
        self, call: Call, tool: Tool, values: dict[str, Any], record: CallRecord
    ) -> ToolPart | Parked | None:
        """Go on with a call that a crash or a wait left open; `None` if it has not begun.

        Then nothing says that the gate has let it pass.
        """
        if record.parked is not None and record.answered is None:
            return Parked(reason=record.parked.reason, request=record.parked.request)
        context = self._call_context(call)
        way = await ledger.choose_way_forward(tool, record, context)
        if isinstance(way, ledger.Again):
            if record.started is None:
                return None
            if record.decided is not None:
                # A person's word is about one attempt; the next one is a new intent.
                intent = await self._read_intent(call, tool, values, context)
                started = msgspec.structs.replace(
                    record.started,
                    intent=intent,
                    effect=tool.effect,
                    source_hash=tool.source_hash,
                )
                await self._facts.append(started, is_synced=True)
            try:
                return await self._run(call, tool, values, context)
            except NotRecorded as failed:
                raise _make_lost(tool, failed) from failed
        if isinstance(way, ledger.Known):
            result = check_result(way.result, tool.name)
            done = self._make_completed(call, tool, result, None)
            return await self._finish(call, done, *self._label(tool))
        if record.unknown is None:
            unknown = ToolOutcomeUnknown(
                call_id=call.part.call_id, tool=tool.name, question=way.question
            )
            await self._facts.append(unknown)
        shown: JsonObject = {
            "call_id": call.part.call_id,
            "tool": tool.name,
            "arguments": call.part.input,
            "question": way.question,
        }
        return Parked(reason="unknown_outcome", request=shown)

    async def execute_nested(
        self, outer: Call, calls: Sequence[tuple[str, JsonObject]]
    ) -> tuple[ToolPart, ...]:
        """Execute calls that another call makes; each passes the gate and is recorded.

        Raises:
            NestedCallWaits: one of them waits for a person, and with it the outer call. What
                has ended stays so when the outer call is taken up again.
        """
        made = [
            Call(
                message_id=outer.message_id,
                is_nested=True,
                is_recorded=outer.is_recorded,
                part=ToolPart(
                    id=f"{outer.part.id}.{number}",
                    call_id=f"{outer.part.call_id}.{number}",
                    tool=name,
                    input=arguments,
                ),
            )
            for number, (name, arguments) in enumerate(calls, 1)
        ]
        results = await self.execute_all(made, records=self._known)
        done = []
        for result in results:
            if isinstance(result, Parked):
                raise NestedCallWaits(result)
            done.append(result)
        return tuple(done)

    async def _run(
        self, call: Call, tool: Tool, values: dict[str, Any], context: ToolContext
    ) -> ToolPart | Parked:
        if self.bus.wants("tool.executing"):
            self._tell_of(call)
        begun = self._clock.now()
        limit, bound = tool.timeout_s, self._limits.timeout_s
        if bound and bound < limit:
            limit = bound
        left = self._ends_in() if self._ends_in is not None else None
        if left is not None and left + _GRACE_S < limit:
            limit = left + _GRACE_S
        try:
            outcome = await invoke(tool, values, context, limit_s=limit)
        except asyncio.CancelledError:
            text = "The call was cancelled."
            await asyncio.shield(self._fail(call, text, begun=begun, tool=tool))
            raise
        except TellModel as said:
            facts = self._label(tool)
            return await self._fail(call, said.text, begun=begun, tool=tool, facts=facts)
        except HoldfastError as error:
            self._check_lease(error)
            await self._check_machine(call, tool, error)
            # What was refused has shown nothing.
            facts = self._list_violations(call, error) or self._label(tool)
            return await self._fail(
                call, render_error_text(error), begun=begun, tool=tool, facts=facts
            )
        if isinstance(outcome, Parked):
            parked = ToolParked(
                call_id=call.part.call_id,
                tool=tool.name,
                reason=outcome.reason,
                request=outcome.request,
            )
            await self._facts.append(parked)
            return outcome
        outcome = check_result(outcome, tool.name)
        if len(outcome.output) > self._limits.output_chars:
            outcome = await await_recorded(shorten(outcome, self._limits.output_chars, context))
        if outcome.attachments:
            outcome = await await_recorded(keep_attachments(outcome, context))
        done = self._make_completed(call, tool, outcome, begun)
        facts = self._label(tool)
        if tool.cacheable and not outcome.is_error:
            self._cache[self._make_cache_key(tool, call.part)] = done
        if tool.effect == "read" and self.hooks is None:
            # A read can be repeated after a crash, so its result may wait for company.
            self._recorder.defer(*facts, _make_ending(call, done), agent_path=self._agent_path)
            return done
        return await self._finish(call, done, *facts)

    def _check_lease(self, error: HoldfastError) -> None:
        """Let a call that was stopped by the loss of the session have no result."""
        if isinstance(error, LeaseLost) and not self._context.still_mine():
            raise NotRecorded(error) from error

    async def _check_machine(self, call: Call, tool: Tool, error: HoldfastError) -> None:
        """Let a call that the process had no means to execute have no result: its run rests.

        What the sandbox could not start has not happened, and that is kept. A tool that failed
        by itself may have acted before; an unsafe one then has its failure as its result. So has
        one whose function asked for more memory than there is: it would ask for it again.
        """
        if not is_exhaustion(error):
            return
        if isinstance(error, ToolError) and isinstance(error.__cause__, MemoryError):
            return
        if isinstance(error, SandboxFailed) and tool.effect != "read":
            decided = ToolOutcomeDecided(
                call_id=call.part.call_id, verdict="not_happened", decided_by="holdfast"
            )
            await self._facts.append(decided)
        elif tool.effect == "unsafe":
            return
        raise NotRecorded(error) from error

    def _label(self, tool: Tool) -> tuple[Payload, ...]:
        """Note what the model is about to read, and return what is new about that."""
        labels = self._context.labels
        if tool.labels:
            labels.add(tool.labels)
        if labels.is_online and tool.target.kind == "command":
            labels.add(("untrusted",))
        return labels.list_unkept() if labels.new else ()

    def _tell_of(self, call: Call) -> None:
        part = call.part
        told_of = {"call_id": part.call_id, "tool": part.tool, "message_id": call.message_id}
        self.bus.emit("tool.executing", told_of, where=self.where)

    # --- results ----------------------------------------------------------------------

    def _make_completed(
        self, call: Call, tool: Tool, result: ToolResult, begun: float | None
    ) -> ToolPart:
        now = self._clock.now()
        edited_by = call.part.metadata.get("edited_by")
        if edited_by:
            note = f"({edited_by} changed the arguments of this call before it ran.)\n"
            result = msgspec.structs.replace(result, output=note + result.output)
        return msgspec.structs.replace(
            call.part,
            state="error" if result.is_error else "completed",
            output="" if result.is_error else result.output,
            error=result.output if result.is_error else "",
            title=result.title,
            attachments=result.attachments,
            metadata={**call.part.metadata, **result.metadata, **tool.provenance},
            time_start=begun if begun is not None else now,
            time_end=now,
        )

    async def _fail(
        self,
        call: Call,
        text: str,
        *,
        begun: float | None = None,
        facts: tuple[Payload, ...] = (),
        tool: Tool | None = None,
    ) -> ToolPart:
        now = self._clock.now()
        failed = msgspec.structs.replace(
            call.part,
            state="error",
            error=clip(text, self._limits.output_chars),
            metadata={**call.part.metadata, **(tool.provenance if tool is not None else {})},
            time_start=begun if begun is not None else now,
            time_end=now,
        )
        return await self._finish(call, failed, *facts)

    async def _finish(self, call: Call, part: ToolPart, *facts: Payload) -> ToolPart:
        if self.hooks is not None:
            part = await self.hooks.finished(part)
        await self._facts.append(*facts, _make_ending(call, part))
        return part

    async def _read_intent(
        self, call: Call, tool: Tool, values: dict[str, Any], context: ToolContext
    ) -> Intent:
        noted: JsonObject = {}
        if tool.prepare is not None:
            noted = await ask_aside(tool, tool.prepare, values, context)
        return Intent(
            tool=tool.name,
            version=tool.version,
            call_id=call.part.call_id,
            idempotency_key=context.idempotency_key,
            arguments=call.part.input,
            noted=noted,
        )

    def _call_context(self, call: Call, passage: AdmittedCall | None = None) -> ToolContext:
        """The context of one call; its key is the same after every restart."""
        passed_by: PassedBy = "rules"
        if passage is not None and passage.decision.action == "ask":
            passed_by = "person"
        elif passage is not None and passage.request.is_confined:
            passed_by = "sandbox"
        call_id, artifacts = call.part.call_id, self._context.artifacts
        key = f"{self._context.run_id}:{call.message_id}:{call_id}"
        if isinstance(artifacts, RunArtifacts):
            artifacts = msgspec.structs.replace(artifacts, call_id=call_id)
        return msgspec.structs.replace(
            self._context,
            call_id=call_id,
            passed_by=passed_by,
            artifacts=artifacts,
            idempotency_key=key,
            cancellation=Cancellation(),
            nested=_NestedCalls(self, call),
            # The scope `tool` is that of the tool.
            state=msgspec.structs.replace(self._context.state, tool=call.part.tool),
        )

    def _make_cache_key(self, tool: Tool, part: ToolPart) -> str:
        return digest([tool.name, tool.source_hash, part.input])


def _require_begun(record: CallRecord, call: Call) -> CallRecord:
    """Return what is known of a call that passed the gate before; else nothing is known.

    Any process may append an answer or a verdict; neither makes a call run that never began.
    """
    if record.started is not None and record.started.message_id != call.message_id:
        return NOTHING_KNOWN
    has_begun = record.started or record.parked or record.ended
    return record if has_begun else NOTHING_KNOWN


def _make_lost(tool: Tool, failed: NotRecorded) -> NotRecorded:
    """Tell that an effect has no result in the journal from any other trouble with it."""
    if tool.effect == "read" or not isinstance(failed.error, StorageError):
        return failed
    return NotRecorded(ResultNotStored(tool=tool.name, path="", detail=str(failed.error)))


class _NestedCalls(msgspec.Struct):
    """What a call uses to make calls of its own."""

    manager: ToolExecutionManager
    outer: Call

    async def run(self, calls: Sequence[tuple[str, JsonObject]]) -> tuple[ToolPart, ...]:
        """Execute calls and return their results in order; see `execute_nested`."""
        return await self.manager.execute_nested(self.outer, calls)


def _make_ending(call: Call, part: ToolPart) -> Payload:
    """The fact that a call has its result."""
    if call.is_nested:
        return NestedCallEnded(call_id=part.call_id, message_id=call.message_id, part=part)
    return MessagePartUpdated(message_id=call.message_id, part=part)


__all__ = ["Call", "CallLimits", "Recorder", "Spend", "ToolExecutionManager", "spend_freely"]
