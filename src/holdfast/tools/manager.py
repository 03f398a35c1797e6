"""The one place that executes tools.

    validate -> gate -> doom loop -> intent -> run -> result -> journal

Whatever calls a tool (a model, a batch, a workflow, a person at the command line) comes
through here. What a call did is never lost: the intent of an effect is on disk before it
happens, and the result is a fact of the conversation.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    ArgumentsWithheld,
    BudgetExceeded,
    HoldfastError,
    PermissionDenied,
    SandboxFailed,
    TellModel,
    ToolError,
    ToolInputInvalid,
)
from holdfast.journal import Event, Payload
from holdfast.messages import ToolPart
from holdfast.policy import CallRequest, Decision
from holdfast.policy.approvals import Approvals, NoApprovals, rules_for
from holdfast.policy.file_events import PolicyViolation, violation
from holdfast.redaction import withheld
from holdfast.sessions.events import MessagePartUpdated
from holdfast.tools import ledger
from holdfast.tools.consent import ConsentDesk, Granted, Refused, Waiting, sealed
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.doom_loop import DoomLoop
from holdfast.tools.effects import Intent
from holdfast.tools.events import (
    NestedCallEnded,
    PermissionRefused,
    ToolOutcomeUnknown,
    ToolParked,
    ToolStarted,
)
from holdfast.tools.gate import ApprovalRequest, Gate, default_action
from holdfast.tools.hooked import ToolHooks
from holdfast.tools.invocation import ask_aside, invoke
from holdfast.tools.ledger import NOTHING_KNOWN, CallRecord
from holdfast.tools.output import check_result, clip, shorten
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import NestedCallWaits, Parked, ToolResult

T = TypeVar("T")

_PREVIEW_CHARS = 20_000


class Recorder(Protocol):
    """Where a run's facts go; `sessions.Turn` is one."""

    async def append(
        self, *payloads: Payload, agent_path: str = "", is_synced: bool = False
    ) -> tuple[Event, ...]:
        """Append facts of the run, together or not at all."""
        ...

    def defer(self, *payloads: Payload, agent_path: str = "") -> None:
        """Append facts a moment later; a crash may lose them."""
        ...


Spend: TypeAlias = Callable[[], Awaitable[None]]


async def spend_freely() -> None:
    """Nobody counts."""


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
    is_nested: bool = False
    """Whether another call makes it; the conversation then shows only the outer one."""
    is_recorded: bool = False
    """Whether it was read from the journal, which keeps no secrets."""

    def with_input(self, arguments: JsonObject, *, edited_by: str = "a person") -> Call:
        """Return the call with other arguments; who changed them is noted in its part."""
        if arguments == self.part.input:
            return self
        noted = {"edited_by": edited_by, "asked_input": self.part.input}
        metadata = {**self.part.metadata, **noted}
        part = msgspec.structs.replace(self.part, input=arguments, raw_input="", metadata=metadata)
        return msgspec.structs.replace(self, part=part)


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A call that may go on, and the facts of who consented; kept with what happens next."""

    call: Call
    values: dict[str, Any]
    request: CallRequest
    decision: Decision
    facts: tuple[Payload, ...] = ()


class _NotRecorded(Exception):
    """The journal refused a fact: that is the run's trouble, never the tool's result."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(str(error))
        self.error = error


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
        limits: Limits | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Execute tools of this registry for the run that the recorder writes.

        `approvals` is where answers that came while the run was parked are found. `spend`
        is called before each call that begins, and may raise BudgetExceeded.
        """
        self.tool_registry = tool_registry
        self.gate = gate or Gate()
        self._recorder = recorder
        self._context = context
        self._agent_path = "/".join(context.agent_path)
        self._limits = limits or Limits()
        self._clock = clock
        self._doom = DoomLoop()
        self._cache: dict[str, ToolPart] = {}
        self._spend = spend
        self.exhausted: BudgetExceeded | None = None
        """The budget that a call did not fit into; the run should end."""
        self._desk = ConsentDesk(self.gate, approvals or NoApprovals(), self._append, clock)
        self._known: dict[str, CallRecord] = {}
        self.hooks: ToolHooks | None = None

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
            raise failed.exceptions[0] from failed
        return tuple([task.result() for task in tasks])

    @property
    def stopped_by(self) -> str:
        """Who ended the run when asked for consent; empty as long as nobody did."""
        return self._desk.stopped_by

    def remember(self, calls: Sequence[ToolPart]) -> None:
        """Count calls of the same run that were made before, so that loops are noticed."""
        for part in calls:
            self._doom.is_repeating(part.tool, part.input)

    async def execute(self, call: Call, record: CallRecord = NOTHING_KNOWN) -> ToolPart | Parked:
        """Execute one call and return its part with the result, which is then in the journal.

        A failure is a result too: it goes back to the model with a hint, recorded as an error.
        """
        try:
            try:
                return await self._attempt(call, record)
            except TellModel as told:
                return await self._fail(call, told.text)
            except HoldfastError as error:
                return await self._fail(call, _told(error))
        except NestedCallWaits as waits:
            return waits.parked
        except _NotRecorded as failed:
            raise failed.error from failed

    async def _attempt(self, call: Call, record: CallRecord) -> ToolPart | Parked:
        record = _that_began(record, call)
        if record.ended is not None:
            return record.ended
        if self.hooks is not None:
            return await self.hooks.around(call, record, self._execute, self._append)
        return await self._execute(call, record)

    async def _execute(self, call: Call, record: CallRecord) -> ToolPart | Parked:
        if record.started is not None:
            # What began is what goes on, also where a person had changed the arguments.
            call = call.with_input(record.started.intent.arguments)
        try:
            tool = self._find(call.part.tool)
            if call.is_recorded or record.started is not None:
                _refuse_withheld(tool, call.part.input)
            values = self._validate(tool, call.part)
            if self.hooks is not None:
                await self.hooks.validated(call)
            if record is not NOTHING_KNOWN:
                return await self._recover(call, tool, values, record)
            passed = await self._pass_gate(call, tool, values)
            if not isinstance(passed, Passage):
                return passed
            call = passed.call
            if self.hooks is not None and (given := self.hooks.substitute(call)) is not None:
                done = self._completed(call, tool, given, None)
                return await self._finish(call, done, *passed.facts)
            if tool.cacheable and (known := self._cache.get(self._cache_key(tool, call.part))):
                return await self._finish(call, _with_result(call.part, known), *passed.facts)
            return await self._start(tool, passed)
        except TellModel as told:
            return await self._fail(call, told.text)
        except HoldfastError as error:
            return await self._fail(call, _told(error), facts=self._violations(call, error))

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
        self, call: Call, tool: Tool, values: dict[str, Any]
    ) -> Passage | ToolPart | Parked:
        """Return the way on if the call may run; else its refusal, or that it has to wait."""
        request, decision = self._judge(tool, values)
        passage = Passage(call=call, values=values, request=request, decision=decision)
        passed = await self._consent(passage, tool)
        if isinstance(passed, Passage) and self._doom.is_repeating(tool.name, call.part.input):
            loop = CallRequest(permission="doom_loop", targets=(tool.name,), default="ask")
            asked = replace(passed, request=loop, decision=self.gate.decide(loop))
            passed = await self._consent(asked, tool)
            if isinstance(passed, Passage):
                self._doom.forgive()
                if passed.call is asked.call:
                    passed = replace(passed, request=request, decision=decision)
        return passed

    async def _consent(self, passage: Passage, tool: Tool) -> Passage | ToolPart | Parked:
        """Let an allowed call pass, refuse a denied one, and ask about any other."""
        if passage.decision.action == "allow":
            return passage
        if passage.decision.action == "deny":
            return await self._refuse(passage, tool, passage.decision.explain())
        async with self._desk.turn:
            # A rule that somebody wrote at the last prompt may have settled this one.
            decision = self.gate.decide(passage.request)
            if decision.action == "allow":
                return replace(passage, decision=decision)
            request = await self._approval(passage, tool)
            consent = await self._desk.obtain(request)
        if isinstance(consent, Waiting):
            shown: JsonObject = {"approval_id": consent.approval_id, "tool": tool.name}
            return Parked(reason="approval", request=shown)
        facts = (*passage.facts, *consent.facts)
        if isinstance(consent, Refused):
            return await self._refuse(replace(passage, facts=facts), tool, consent.because)
        if consent.arguments == passage.call.part.input:
            return replace(passage, facts=facts)
        return await self._edited(replace(passage, facts=facts), tool, consent)

    async def _edited(
        self, passage: Passage, tool: Tool, consent: Granted
    ) -> Passage | ToolPart | Parked:
        """Check arguments that a person put in, and judge them anew; no person lifts a deny."""
        call = passage.call.with_input(consent.arguments, edited_by=consent.by)
        try:
            if consent.is_recorded:
                _refuse_withheld(tool, consent.arguments)
            values = self._validate(tool, call.part)
        except (ToolInputInvalid, ArgumentsWithheld) as error:
            return await self._refuse(
                passage, tool, f"{consent.by} put in other arguments: {error}"
            )
        request, decision = self._judge(tool, values)
        passage = replace(passage, call=call, values=values, request=request, decision=decision)
        if decision.action == "deny":
            return await self._refuse(passage, tool, decision.explain())
        return passage

    async def _refuse(self, passage: Passage, tool: Tool, because: str) -> ToolPart:
        """Keep the refusal and the call's result, together with the answer that led to it."""
        request = passage.request
        refused = PermissionRefused(
            call_id=passage.call.part.call_id,
            tool=tool.name,
            permission=request.permission,
            targets=request.targets,
            because=because,
            decision=passage.decision,
        )
        error = PermissionDenied(
            permission=request.permission, target=", ".join(request.targets), because=because
        )
        facts: tuple[Payload, ...] = (*passage.facts, refused)
        against = violation(
            request,
            passage.decision,
            session_id=self._context.session_id,
            call_id=passage.call.part.call_id,
            agent=self._agent_path,
        )
        if against is not None:
            facts = (*facts, against)
        return await self._fail(passage.call, _told(error), facts=facts)

    def _violations(self, call: Call, error: HoldfastError) -> tuple[Payload, ...]:
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

    async def _approval(self, passage: Passage, tool: Tool) -> ApprovalRequest:
        call, required = passage.call, self.gate.terms.required
        preview = ""
        if tool.preview is not None:
            try:
                context = self._call_context(call)
                shown = await ask_aside(tool.name, tool.preview, passage.values, context)
                preview = shown[:_PREVIEW_CHARS]
                if len(shown) > _PREVIEW_CHARS:
                    preview += f"\n({len(shown) - _PREVIEW_CHARS} more characters)"
            except (TellModel, HoldfastError) as error:
                preview = f"It would fail: {error}"
        return sealed(
            ApprovalRequest(
                call_id=call.part.call_id,
                message_id=call.message_id,
                tool=tool.name,
                permission=passage.request.permission,
                targets=passage.request.targets,
                arguments=call.part.input,
                agent_path="/".join(self._context.agent_path),
                decision=passage.decision,
                preview=preview,
                rules=rules_for(passage.request) if required == 1 else (),
                required=required,
            )
        )

    async def _start(self, tool: Tool, passage: Passage) -> ToolPart | Parked:
        call, context = passage.call, self._call_context(passage.call)
        try:
            await self._spend()
        except BudgetExceeded as error:
            self.exhausted = error
            raise
        # A call that somebody consented to leaves its intent in the same transaction.
        if tool.effect != "read" or passage.facts:
            started = ToolStarted(
                intent=await self._intent(call, tool, passage.values, context),
                message_id=call.message_id,
                effect=tool.effect,
                source_hash=tool.source_hash,
                targets=passage.request.targets,
                policy_version=passage.decision.policy_version,
            )
            # On the disk before the effect, and with it the message that asks for the call:
            # a power cut must neither hide the effect nor change its key.
            is_synced = tool.effect != "read"
            await self._append(*passage.facts, started, is_synced=is_synced)
        return await self._run(call, tool, passage.values, context)

    async def _recover(
        self, call: Call, tool: Tool, values: dict[str, Any], record: CallRecord
    ) -> ToolPart | Parked:
        """Go on with a call that a crash or a wait left open."""
        if record.parked is not None and record.answered is None:
            return Parked(reason=record.parked.reason, request=record.parked.request)
        context = self._call_context(call)
        way = await ledger.way_forward(tool, record, context)
        if isinstance(way, ledger.Again):
            if record.started is not None and record.decided is not None:
                # A person's word is about one attempt; the next one is a new intent.
                intent = await self._intent(call, tool, values, context)
                started = msgspec.structs.replace(
                    record.started,
                    intent=intent,
                    effect=tool.effect,
                    source_hash=tool.source_hash,
                )
                await self._append(started, is_synced=True)
            return await self._run(call, tool, values, context)
        if isinstance(way, ledger.Known):
            result = check_result(way.result, tool.name)
            return await self._finish(call, self._completed(call, tool, result, None))
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
        begun = self._clock.now()
        limit = min(tool.timeout_s, self._limits.timeout_s or tool.timeout_s)
        try:
            outcome = await invoke(tool, values, context, limit_s=limit)
        except asyncio.CancelledError:
            text = "The call was cancelled."
            await asyncio.shield(self._fail(call, text, begun=begun, tool=tool))
            raise
        except TellModel as told:
            return await self._fail(call, told.text, begun=begun, tool=tool)
        except HoldfastError as error:
            facts = self._violations(call, error)
            return await self._fail(call, _told(error), begun=begun, tool=tool, facts=facts)
        if isinstance(outcome, Parked):
            parked = ToolParked(
                call_id=call.part.call_id,
                tool=tool.name,
                reason=outcome.reason,
                request=outcome.request,
            )
            await self._append(parked)
            return outcome
        outcome = check_result(outcome, tool.name)
        if len(outcome.output) > self._limits.output_chars:
            outcome = await self._recorded(shorten(outcome, self._limits.output_chars, context))
        done = self._completed(call, tool, outcome, begun)
        if tool.cacheable and not outcome.is_error:
            self._cache[self._cache_key(tool, call.part)] = done
        if tool.effect == "read" and self.hooks is None:
            # A read can be repeated after a crash, so its result may wait for company.
            self._recorder.defer(_ending(call, done), agent_path=self._agent_path)
            return done
        return await self._finish(call, done)

    # --- results ----------------------------------------------------------------------

    def _completed(
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
            metadata={**call.part.metadata, **result.metadata, **_provenance(tool)},
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
            metadata={**call.part.metadata, **(_provenance(tool) if tool is not None else {})},
            time_start=begun if begun is not None else now,
            time_end=now,
        )
        return await self._finish(call, failed, *facts)

    async def _finish(self, call: Call, part: ToolPart, *facts: Payload) -> ToolPart:
        if self.hooks is not None:
            part = await self.hooks.finished(part)
        await self._append(*facts, _ending(call, part))
        return part

    async def _append(self, *payloads: Payload, is_synced: bool = False) -> None:
        recorder, path = self._recorder, self._agent_path
        await self._recorded(recorder.append(*payloads, agent_path=path, is_synced=is_synced))

    async def _recorded(self, writing: Awaitable[T]) -> T:
        """Await something that writes to the journal, and tell its failure from a tool's."""
        try:
            return await writing
        except HoldfastError as error:
            raise _NotRecorded(error) from error

    async def _intent(
        self, call: Call, tool: Tool, values: dict[str, Any], context: ToolContext
    ) -> Intent:
        noted: JsonObject = {}
        if tool.prepare is not None:
            noted = await ask_aside(tool.name, tool.prepare, values, context)
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
        call_id = call.part.call_id
        key = f"{self._context.run_id}:{call.message_id}:{call_id}"
        return self._context.for_call(call_id, key, _NestedCalls(self, call))

    def _cache_key(self, tool: Tool, part: ToolPart) -> str:
        return digest([tool.name, tool.source_hash, part.input])


def _that_began(record: CallRecord, call: Call) -> CallRecord:
    """Return what is known of a call that passed the gate before; else nothing is known.

    Anybody may append an answer or a verdict; neither makes a call run that never began.
    """
    if record.started is not None and record.started.message_id != call.message_id:
        return NOTHING_KNOWN
    has_begun = record.started or record.parked or record.ended
    return record if has_begun else NOTHING_KNOWN


def _refuse_withheld(tool: Tool, arguments: JsonObject) -> None:
    """Raise ArgumentsWithheld if what the journal gave back is not what was asked for."""
    places = withheld(arguments)
    if places:
        raise ArgumentsWithheld(tool=tool.name, arguments=", ".join(places))


class _NestedCalls:
    """What a call uses to make calls of its own."""

    def __init__(self, manager: ToolExecutionManager, outer: Call) -> None:
        self._manager = manager
        self._outer = outer

    async def run(self, calls: Sequence[tuple[str, JsonObject]]) -> tuple[ToolPart, ...]:
        """Execute calls and return their results in order; see `execute_nested`."""
        return await self._manager.execute_nested(self._outer, calls)


def _provenance(tool: Tool) -> JsonObject:
    return {"tool_version": tool.version, "source_hash": tool.source_hash}


def _told(error: HoldfastError) -> str:
    return f"{error} {error.hint}".strip()


def _ending(call: Call, part: ToolPart) -> Payload:
    """The fact that a call has its result."""
    if call.is_nested:
        return NestedCallEnded(call_id=part.call_id, message_id=call.message_id, part=part)
    return MessagePartUpdated(message_id=call.message_id, part=part)


def _with_result(part: ToolPart, known: ToolPart) -> ToolPart:
    return msgspec.structs.replace(known, id=part.id, call_id=part.call_id)
