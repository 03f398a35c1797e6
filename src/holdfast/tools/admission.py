"""Admission: what the rules and people say before a call may run.

rules -> [a person] -> egress -> [a person] -> doom loop -> [a person]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from holdfast.canonical import JsonObject
from holdfast.errors import (
    ArgumentsWithheld,
    HoldfastError,
    PermissionDenied,
    TellModel,
    ToolInputInvalid,
)
from holdfast.journal import Payload
from holdfast.policy import CallRequest
from holdfast.policy.approvals import rules_for
from holdfast.policy.file_events import violation
from holdfast.tools.approval_broker import (
    ApprovalBroker,
    ConsentGranted,
    ConsentPending,
    ConsentRefused,
    sealed,
)
from holdfast.tools.calls import AdmittedCall, Call, Denial, error_text, refuse_withheld
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.doom_loop import DoomLoop
from holdfast.tools.events import PermissionRefused
from holdfast.tools.gate import ApprovalRequest, Gate, default_action
from holdfast.tools.invocation import ask_aside
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import Parked
from holdfast.tools.target import NO_TARGET

ContextOf: TypeAlias = Callable[[Call], ToolContext]
_PREVIEW_CHARS = 20_000


class Admission:
    """Lets calls of one run pass, refuses them, or has somebody asked."""

    def __init__(
        self,
        registry: ToolRegistry,
        gate: Gate,
        desk: ApprovalBroker,
        context: ToolContext,
    ) -> None:
        """Judge by the gate; ask at the desk."""
        self._registry = registry
        self._gate = gate
        self._desk = desk
        self._context = context
        self._agent_path = "/".join(context.agent_path)
        self.doom = DoomLoop()
        self._fixed: dict[Tool, CallRequest] = {}
        """What tools ask for that touch nothing nameable: always the same."""

    async def admit(
        self, call: Call, tool: Tool, values: dict[str, Any], context_of: ContextOf
    ) -> AdmittedCall | Denial | Parked:
        """Return the way on of a call, its refusal, or that it waits for somebody.

        `context_of` makes the context of a preview.
        """
        request = self._fixed.get(tool) or self._request(tool, values)
        decision = self._gate.decide(request)
        passed = AdmittedCall(call=call, values=values, request=request, decision=decision)
        if decision.action != "allow":
            consented = await self._consent(passed, tool, context_of)
            if not isinstance(consented, AdmittedCall):
                return consented
            passed = consented
        is_looping = self.doom.count_and_check(tool.name, call.part.input)
        if self._context.labels.is_mixed and self._sends_out(tool):
            asked = await self._consent_also(passed, tool, _egress(tool, passed), context_of)
            if not isinstance(asked, AdmittedCall) or asked.call is not passed.call:
                return asked
            passed = asked
        if is_looping:
            loop = CallRequest(permission="doom_loop", targets=(tool.name,), default="ask")
            asked = await self._consent_also(passed, tool, loop, context_of)
            if isinstance(asked, AdmittedCall):
                self.doom.forgive()
            return asked
        return passed

    async def _consent_also(
        self, passage: AdmittedCall, tool: Tool, request: CallRequest, context_of: ContextOf
    ) -> AdmittedCall | Denial | Parked:
        """Have another request about the same call judged; it goes on as it was."""
        asked = replace(passage, request=request, decision=self._gate.decide(request))
        again = await self._consent(asked, tool, context_of)
        if isinstance(again, AdmittedCall) and again.call is asked.call:
            return replace(again, request=passage.request, decision=passage.decision)
        return again

    def _sends_out(self, tool: Tool) -> bool:
        """Say whether a call takes something off this machine, as far as is known."""
        return tool.egress or (self._context.labels.is_online and tool.target_kind == "command")

    def _request(self, tool: Tool, values: dict[str, Any]) -> CallRequest:
        request = CallRequest(
            permission=tool.name,
            targets=tool.targets(values, self._context.workspace),
            target_kind=tool.target.kind,
            default=default_action(tool, self._registry.scope_of(tool.name)),
        )
        if tool.target is NO_TARGET:
            self._fixed[tool] = request
        return request

    async def _consent(
        self, passage: AdmittedCall, tool: Tool, context_of: ContextOf
    ) -> AdmittedCall | Denial | Parked:
        """Let an allowed call pass, refuse a denied one, and ask about any other."""
        if passage.decision.action == "allow":
            return passage
        if passage.decision.action == "deny":
            return self._refuse(passage, tool, passage.decision.explain())
        async with self._desk.turn:
            # A rule that somebody wrote at the last prompt may have settled this one.
            decision = self._gate.decide(passage.request)
            if decision.action == "allow":
                return replace(passage, decision=decision)
            request = await self._approval(passage, tool, context_of)
            consent = await self._desk.obtain(request)
        if isinstance(consent, ConsentPending):
            shown: JsonObject = {"approval_id": consent.approval_id, "tool": tool.name}
            return Parked(reason="approval", request=shown)
        facts = (*passage.facts, *consent.facts)
        if isinstance(consent, ConsentRefused):
            return self._refuse(replace(passage, facts=facts), tool, consent.because)
        if consent.arguments == passage.call.part.input:
            return replace(passage, facts=facts)
        return await self._edited(replace(passage, facts=facts), tool, consent)

    async def _edited(
        self, passage: AdmittedCall, tool: Tool, consent: ConsentGranted
    ) -> AdmittedCall | Denial | Parked:
        """Check arguments that a person put in, and judge them anew; no person lifts a deny."""
        call = passage.call.with_input(consent.arguments, edited_by=consent.by)
        try:
            if consent.is_recorded:
                refuse_withheld(tool, consent.arguments)
            values = tool.validate(consent.arguments)
        except (ToolInputInvalid, ArgumentsWithheld) as error:
            return self._refuse(passage, tool, f"{consent.by} put in other arguments: {error}")
        request = self._fixed.get(tool) or self._request(tool, values)
        decision = self._gate.decide(request)
        judged = AdmittedCall(
            call=call, values=values, request=request, decision=decision, facts=passage.facts
        )
        if decision.action == "deny":
            return self._refuse(judged, tool, decision.explain())
        return judged

    def _refuse(self, passage: AdmittedCall, tool: Tool, because: str) -> Denial:
        """Say that it was refused, together with the answer that led to it."""
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
        return Denial(call=passage.call, text=error_text(error), facts=facts)

    async def _approval(
        self, passage: AdmittedCall, tool: Tool, context_of: ContextOf
    ) -> ApprovalRequest:
        call, required = passage.call, self._gate.terms.required
        preview = ""
        if tool.preview is not None:
            try:
                context = context_of(call)
                shown = await ask_aside(tool, tool.preview, passage.values, context)
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
                agent_path=self._agent_path,
                decision=passage.decision,
                preview=preview,
                rules=rules_for(passage.request) if required == 1 else (),
                required=required,
            )
        )


def _egress(tool: Tool, passage: AdmittedCall) -> CallRequest:
    """What is asked for a call that sends something out: by its hosts, or by its name."""
    if tool.target_kind == "host":
        return replace(passage.request, permission="egress", default="ask")
    return CallRequest(permission="egress", targets=(tool.name,), default="ask")
