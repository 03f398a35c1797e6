"""Hooks around tool calls: what the manager asks before, between and after.

Hooks stand before the gate. Whatever they say, the arguments are validated and the rules
decide afterwards, so that no hook can lift a deny, and a person consents to what will run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.errors import HookRefused
from holdfast.hooks import (
    Cancel,
    Hooks,
    Replace,
    Retry,
    ToolAfterExecution,
    ToolBeforeExecution,
    ToolFailure,
    ToolValidation,
    Where,
    read_text_of,
)
from holdfast.journal import Payload
from holdfast.messages import ToolPart
from holdfast.sessions import MessagePartUpdated
from holdfast.tools.ledger import NOTHING_KNOWN, CallRecord
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import Parked, ToolResult

if TYPE_CHECKING:
    from holdfast.tools.manager import Call

_MOST_RETRIES = 1
_HOOKED = "changed_by_hook"

Execute: TypeAlias = Callable[["Call", CallRecord], Awaitable[ToolPart | Parked]]
Append: TypeAlias = Callable[[Payload], Awaitable[None]]


class ToolHooks:
    """The hooks of one run's tool calls."""

    def __init__(self, hooks: Hooks, registry: ToolRegistry, where: Where) -> None:
        """Ask these hooks about calls of this registry's tools."""
        self._hooks = hooks
        self._registry = registry
        self._ids = {
            "session_id": where.session_id,
            "run_id": where.run_id,
            "agent": where.agent_path.rsplit("/", 1)[-1],
        }
        self._given: dict[str, ToolResult] = {}
        self._refused: dict[str, HookRefused] = {}
        self._again: set[str] = set()
        self._retries: Counter[str] = Counter()

    async def around(
        self, call: Call, record: CallRecord, execute: Execute, append: Append
    ) -> ToolPart | Parked:
        """Ask the hooks, execute the call, and once more if a hook wants that."""
        if record == NOTHING_KNOWN and not call.part.raw_input:
            call = await self._before(call, append)
        result = await execute(call, record)
        while call.part.call_id in self._again:
            self._again.discard(call.part.call_id)
            result = await execute(call, NOTHING_KNOWN)
        return result

    async def validated(self, call: Call) -> None:
        """Tell hooks that the arguments fit, and refuse if one of them says so.

        Raises:
            HookRefused: a hook cancelled the call.
        """
        if call.part.call_id in self._refused:
            raise self._refused.pop(call.part.call_id)
        if self._hooks.has(ToolValidation):
            part = call.part
            asked = ToolValidation(
                tool=self._name(part), call_id=part.call_id, arguments=part.input, **self._ids
            )
            (await self._hooks.fire(asked)).raise_if_cancelled()

    def substitute(self, call: Call) -> ToolResult | None:
        """Return the result that a hook gave in place of the call, which the gate allowed."""
        return self._given.pop(call.part.call_id, None)

    async def finished(self, part: ToolPart) -> ToolPart:
        """Show a result to the hooks before it is kept, and return it as they leave it."""
        if part.state == "completed" and self._hooks.has(ToolAfterExecution):
            done = ToolAfterExecution(
                tool=self._name(part),
                call_id=part.call_id,
                arguments=part.input,
                output=part.output,
                metadata=part.metadata,
                **self._ids,
            )
            fired = await self._hooks.fire(done)
            self._note_retry(part, fired.verdict)
            return msgspec.structs.replace(part, output=fired.payload.output)
        if part.state == "error" and self._hooks.has(ToolFailure):
            return await self._tell_failed(part)
        return part

    async def _tell_failed(self, part: ToolPart) -> ToolPart:
        failed = ToolFailure(
            tool=self._name(part),
            call_id=part.call_id,
            arguments=part.input,
            error=part.error,
            **self._ids,
        )
        fired = await self._hooks.fire(failed)
        self._note_retry(part, fired.verdict)
        if isinstance(fired.verdict, Replace):
            output = read_text_of(fired.verdict.value)
            return msgspec.structs.replace(part, state="completed", output=output, error="")
        return msgspec.structs.replace(part, error=fired.payload.error)

    async def _before(self, call: Call, append: Append) -> Call:
        """Return the call as the hooks want it; what they want instead is kept for later."""
        part = call.part
        # A call that was changed before a crash has been through the hooks already.
        if _HOOKED in part.metadata or not self._hooks.has(ToolBeforeExecution):
            return call
        asked = ToolBeforeExecution(
            tool=self._name(part), call_id=part.call_id, arguments=part.input, **self._ids
        )
        fired = await self._hooks.fire(asked)
        if isinstance(fired.verdict, Cancel):
            refused = HookRefused(hook=fired.hook, point=asked.point, reason=fired.verdict.reason)
            self._refused[part.call_id] = refused
        elif isinstance(fired.verdict, Replace):
            self._given[part.call_id] = ToolResult(read_text_of(fired.verdict.value))
        if fired.payload.arguments == part.input:
            return call
        changed = msgspec.structs.replace(
            part, input=fired.payload.arguments, metadata={**part.metadata, _HOOKED: True}
        )
        # The transcript says what really runs, also after a crash.
        await append(MessagePartUpdated(message_id=call.message_id, part=changed))
        return msgspec.structs.replace(call, part=changed)

    def _name(self, part: ToolPart) -> str:
        """The tool's own name: a hook that looks for it is not passed by as `Bash` or `bash@1`."""
        tool = self._registry.find(part.tool)
        return tool.name if tool is not None else part.tool

    def _note_retry(self, part: ToolPart, verdict: object) -> None:
        """Remember to repeat a call; only one that does no harm twice, and only once."""
        tool = self._registry.find(part.tool)
        is_harmless = tool is not None and tool.effect in ("read", "idempotent")
        if not isinstance(verdict, Retry) or not is_harmless:
            return
        self._retries[part.call_id] += 1
        if self._retries[part.call_id] <= _MOST_RETRIES:
            self._again.add(part.call_id)
