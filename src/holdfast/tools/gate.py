"""The gate: what rules say, then people, before a call may run.

    rules -> [a person] -> egress -> [a person] -> doom loop -> [a person]

Policy and rights are data. `Gate` holds them for one run and says who can answer; `Admission`
leads calls through it. `egress` is what prompt injection needs to carry something away: a call
that sends something out is asked about once the taint of what was read says so (`labels.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.canonical import JsonObject, encode_canonical_json
from holdfast.errors import (
    ArgumentsWithheld,
    HoldfastError,
    PermissionDenied,
    TellModel,
    ToolInputInvalid,
)
from holdfast.journal import Payload
from holdfast.policy import (
    NO_RULES,
    Action,
    ApprovalTerms,
    CallRequest,
    Decision,
    Rights,
    RuleSet,
    could_ever,
    decide,
    derive_rules,
    is_script_allowed,
    make_violation,
)
from holdfast.sessions import PermissionRule
from holdfast.tools.approval_broker import (
    ApprovalAnswer,
    ApprovalBroker,
    ApprovalRequest,
    Approver,
    AutoConfirm,
    ConsentGranted,
    ConsentPending,
    ConsentRefused,
    NoApprover,
    seal_request,
)
from holdfast.tools.calls import AdmittedCall, Call, Denial, refuse_withheld, render_error_text
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.events import PermissionRefused
from holdfast.tools.invocation import ask_aside
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import Parked
from holdfast.tools.target import NO_TARGET

if TYPE_CHECKING:
    from holdfast.policy import PolicyBundle, PolicyStore

ContextOf: TypeAlias = Callable[[Call], ToolContext]

Confines: TypeAlias = Callable[[], Awaitable[bool]]
"""Says whether the sandbox that runs commands is a boundary by itself, for any script."""

_PREVIEW_CHARS = 20_000
_LOOP_THRESHOLD = 3
GIVEN = ("agent", "session")
"""The scopes of tools that were handed over in code: to this agent, or with this run."""
GIVEN_BY_HAND = (*GIVEN, "project", "workflow")
"""The same for a call that no agent makes: the application calls what it has registered, and a
workflow what it was made of."""
_KNOWN_TO_READ = frozenset({"built-in", "skills", *GIVEN_BY_HAND})
"""Where `effect="read"` is believed: never what an MCP server, a bundle or a file says."""
_MOST_JUDGED = 1_024


async def _claim_nothing() -> bool:
    return False


class Gate:
    """The rules that hold for one agent in one session, and who answers when they ask.

    Without any rules it is strict: tools that only read run, everything else asks. Where
    no approver answers, the terms say whether the call is refused or the run waits.
    """

    def __init__(
        self,
        *,
        ceiling: RuleSet = NO_RULES,
        rights: Rights | None = None,
        approver: Approver | None = None,
        terms: ApprovalTerms | None = None,
        policy_version: str = "",
        policies: PolicyStore | None = None,
        agent_path: str = "",
        given: tuple[str, ...] = GIVEN,
    ) -> None:
        """Hold the rules; no call is approved unless an approver is given.

        Tools of the scopes in `given` count as handed over in code.

        With `policies`, ceiling and version are those in force for the agent at the end of a
        path (`a/b`) when a call is judged.
        """
        self.ceiling = ceiling
        self.rights = rights or Rights()
        self.approver = approver or NoApprover()
        self.terms = terms or ApprovalTerms()
        self.policy_version = policy_version
        self.given = given
        self.confines: Confines = _claim_nothing
        self._agent_path = agent_path
        self._policies = policies
        self._bundle: PolicyBundle | None = None
        if policies is not None:
            bundle = self._bundle = policies.bundle
            self.ceiling, self.policy_version = bundle.find_ceiling(agent_path), bundle.version
        self._judged: dict[CallRequest, Decision] = {}
        self._judged_by: tuple[RuleSet, Rights, str] | None = None

    def describe(self, tool: Tool, targets: tuple[str, ...], scope: str) -> CallRequest:
        """Return what a call asks for: by a tool that stands in a scope, on these targets."""
        return CallRequest(
            permission=tool.name,
            targets=targets,
            target_kind=tool.target.kind,
            default="allow" if is_known_to_read(tool, scope) else "ask",
            own=tool.permission,
            is_given=scope in self.given,
        )

    async def find_boundary(self, request: CallRequest) -> CallRequest:
        """Return a request with what is known of the sandbox, where that can matter.

        It is marked as confined only where no rule names commands, and the sandbox bounds any
        script: what then is allowed runs as it is.
        """
        confined = replace(request, is_confined=True)
        if is_script_allowed(confined, self.present_ceiling, self.rights):
            if await self.confines():
                return confined
        return request

    def decide(self, request: CallRequest) -> Decision:
        """Decide by the rules alone; a command that cannot be read asks at least.

        A reload of the policies holds from the next decision on; a call that was let through
        goes on. In shadow mode a candidate looks on.
        """
        policies = self._policies
        if policies is not None and policies.bundle is not self._bundle:
            bundle = self._bundle = policies.bundle
            self.ceiling = bundle.find_ceiling(self._agent_path)
            self.policy_version = bundle.version
        rules = (self.ceiling, self.rights, self.policy_version)
        if rules != self._judged_by or len(self._judged) >= _MOST_JUDGED:
            self._judged, self._judged_by = {}, rules
        decision = self._judged.get(request)
        if decision is None:
            # What is asked again under the same rules has the same answer.
            decision = self._judged[request] = decide(
                request,
                self.ceiling,
                self.rights.parent,
                self.rights.agent,
                self.rights.session,
                is_handed=self.rights.is_handed,
                policy_version=self.policy_version,
            )
        if policies is not None and policies.shadow is not None:
            policies.watch(request, decision, agent=self._agent_path)
        return decision

    @property
    def present_ceiling(self) -> RuleSet:
        """The operator's rules as they are at this moment."""
        if self._policies is None:
            return self.ceiling
        return self._policies.bundle.find_ceiling(self._agent_path)

    def add_session_rules(self, rules: Sequence[PermissionRule]) -> None:
        """Let rules that a person just wrote hold from now on, at every level that asks.

        A person who was asked on behalf of a whole line of agents answers all of them; what
        one of them is denied stays denied.
        """
        self.rights = _with_rules(self.rights, tuple(rules))


def _with_rules(rights: Rights, rules: tuple[PermissionRule, ...]) -> Rights:
    return Rights(
        agent=rights.agent,
        session=RuleSet(rules=(*rights.session.rules, *rules), also=rights.session.also),
        parent=_with_rules(rights.parent, rules) if rights.parent is not None else None,
        is_handed=rights.is_handed,
    )


class ToolPermissionFilter:
    """Hides tools that could never be allowed before a model sees them."""

    def __init__(self, gate: Gate) -> None:
        """Filter by the rules of this gate."""
        self._gate = gate

    def is_visible(self, tool: Tool) -> bool:
        """Say whether any call of the tool could be allowed or asked for."""
        return could_ever(tool.name, self._gate.ceiling, self._gate.rights, tool.target_kind)

    def filter_tools(self, tools: ToolRegistry | Iterable[Tool]) -> tuple[Tool, ...]:
        """Return the tools that the model may see, in their order."""
        gate = self._gate
        # A registry that is asked for its length besides would look at its layers twice.
        given = tuple(tools.tools.values() if isinstance(tools, ToolRegistry) else tools)
        named = tuple([(tool.name, tool.target_kind) for tool in given])
        names = _list_visible_names(named, gate.ceiling, gate.rights)
        return tuple([tool for tool in given if tool.name in names])


@functools.lru_cache(maxsize=256)
def _list_visible_names(
    named: tuple[tuple[str, str], ...], ceiling: RuleSet, rights: Rights
) -> frozenset[str]:
    return frozenset([name for name, kind in named if could_ever(name, ceiling, rights, kind)])


def choose_default_action(tool: Tool, scope: str) -> Action:
    """What holds for a tool where no rule speaks: its own word, if that is ask or deny.

    Else one that was handed over in code runs, and so does one that is known to read only;
    everything else asks.
    """
    if tool.permission != "allow" or scope in GIVEN:
        return tool.permission
    return "allow" if is_known_to_read(tool, scope) else "ask"


def is_known_to_read(tool: Tool, scope: str) -> bool:
    """Say whether a tool only reads, by the word of code that this process runs."""
    return tool.effect == "read" and scope in _KNOWN_TO_READ


class DoomLoop(msgspec.Struct):
    """Notices the third equal call in a row: the same tool with the same input."""

    tool: str = ""
    arguments: JsonObject = msgspec.field(default_factory=dict)
    count: int = 0

    def count_and_check(self, tool: str, arguments: JsonObject) -> bool:
        """Count a call and say whether it is at least the third equal one in a row."""
        is_equal = (
            tool == self.tool
            # For Python, 1 is equal to true and to 1.0; for a tool it is not.
            and arguments == self.arguments
            and encode_canonical_json(arguments) == encode_canonical_json(self.arguments)
        )
        self.count = self.count + 1 if is_equal else 1
        self.tool, self.arguments = tool, arguments
        return self.count >= _LOOP_THRESHOLD

    def would_loop(self, tool: str, arguments: JsonObject) -> bool:
        """Say whether this call would be at least the third equal one; counts nothing."""
        return msgspec.structs.replace(self).count_and_check(tool, arguments)

    def forgive(self) -> None:
        """Start counting anew, after an approver consented."""
        self.count = 0


class Admission(msgspec.Struct, eq=False):
    """Lets calls of one run pass, refuses them, or has an approver asked."""

    registry: ToolRegistry
    gate: Gate
    broker: ApprovalBroker
    context: ToolContext
    agent_path: str
    doom: DoomLoop = msgspec.field(default_factory=DoomLoop)
    fixed: dict[Tool, CallRequest] = msgspec.field(default_factory=dict)
    """What tools ask for that touch nothing nameable: always the same."""

    async def admit(
        self, call: Call, tool: Tool, values: dict[str, Any], context_of: ContextOf
    ) -> AdmittedCall | Denial | Parked:
        """Return the way on of a call, its refusal, or that it waits for an answer.

        `context_of` makes the context of a preview.
        """
        request = self.fixed.get(tool) or self._request(tool, values)
        if request.target_kind == "command":
            request = await self.gate.find_boundary(request)
        decision = self.gate.decide(request)
        passed = AdmittedCall(call=call, values=values, request=request, decision=decision)
        if decision.action != "allow":
            consented = await self._make_consent(passed, tool, context_of)
            if not isinstance(consented, AdmittedCall):
                return consented
            passed = consented
        is_looping = self.doom.count_and_check(tool.name, call.part.input)
        labels = self.context.labels
        # Taint is looked at last: most calls send nothing out, as far as is known.
        sends_out = tool.egress or (labels.is_online and tool.target.kind == "command")
        if sends_out and labels.is_mixed:
            asked = await self._ask_consent_also(
                passed, tool, _make_egress_request(tool, passed), context_of
            )
            if not isinstance(asked, AdmittedCall) or asked.call is not passed.call:
                return asked
            passed = asked
        if is_looping:
            loop = CallRequest(permission="doom_loop", targets=(tool.name,), own="ask")
            asked = await self._ask_consent_also(passed, tool, loop, context_of)
            if isinstance(asked, AdmittedCall):
                self.doom.forgive()
            return asked
        return passed

    async def _ask_consent_also(
        self, passage: AdmittedCall, tool: Tool, request: CallRequest, context_of: ContextOf
    ) -> AdmittedCall | Denial | Parked:
        """Have another request about the same call judged; it goes on as it was."""
        asked = replace(passage, request=request, decision=self.gate.decide(request))
        again = await self._make_consent(asked, tool, context_of)
        if isinstance(again, AdmittedCall) and again.call is asked.call:
            return replace(again, request=passage.request, decision=passage.decision)
        return again

    def _request(self, tool: Tool, values: dict[str, Any]) -> CallRequest:
        is_fixed = tool.target is NO_TARGET
        targets = ("*",) if is_fixed else tool.targets(values, self.context.workspace)
        request = self.gate.describe(tool, targets, self.registry.find_scope(tool.name))
        if is_fixed:
            self.fixed[tool] = request
        return request

    async def _make_consent(
        self, passage: AdmittedCall, tool: Tool, context_of: ContextOf
    ) -> AdmittedCall | Denial | Parked:
        """Let an allowed call pass, refuse a denied one, and ask about any other."""
        if passage.decision.action == "allow":
            return passage
        if passage.decision.action == "deny":
            return self._refuse(passage, tool, passage.decision.explain())
        async with self.broker.turn:
            # A rule that a caller wrote at the last prompt may have settled this one.
            decision = self.gate.decide(passage.request)
            if decision.action == "allow":
                return replace(passage, decision=decision)
            request = await self._make_approval(passage, tool, context_of)
            consent = await self.broker.obtain(request)
        if isinstance(consent, ConsentPending):
            shown: JsonObject = {"approval_id": consent.approval_id, "tool": tool.name}
            return Parked(reason="approval", request=shown)
        facts = (*passage.facts, *consent.facts)
        if isinstance(consent, ConsentRefused):
            return self._refuse(replace(passage, facts=facts), tool, consent.because)
        if consent.arguments == passage.call.part.input:
            return replace(passage, facts=facts)
        return await self._edit(replace(passage, facts=facts), tool, consent)

    async def _edit(
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
        request = self.fixed.get(tool) or self._request(tool, values)
        if request.target_kind == "command":
            request = await self.gate.find_boundary(request)
        decision = self.gate.decide(request)
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
        against = make_violation(
            request,
            passage.decision,
            session_id=self.context.session_id,
            call_id=passage.call.part.call_id,
            agent=self.agent_path,
        )
        if against is not None:
            facts = (*facts, against)
        return Denial(call=passage.call, text=render_error_text(error), facts=facts)

    async def _make_approval(
        self, passage: AdmittedCall, tool: Tool, context_of: ContextOf
    ) -> ApprovalRequest:
        call, required = passage.call, self.gate.terms.required
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
        return seal_request(
            ApprovalRequest(
                call_id=call.part.call_id,
                message_id=call.message_id,
                tool=tool.name,
                permission=passage.request.permission,
                targets=passage.request.targets,
                arguments=call.part.input,
                agent_path=self.agent_path,
                decision=passage.decision,
                preview=preview,
                rules=derive_rules(passage.request) if required == 1 else (),
                required=required,
            )
        )


def _make_egress_request(tool: Tool, passage: AdmittedCall) -> CallRequest:
    """What is asked for a call that sends something out: by its hosts, or by its name."""
    if tool.target_kind == "host":
        return replace(passage.request, permission="egress", default="ask", own="ask")
    return CallRequest(permission="egress", targets=(tool.name,), own="ask")


__all__ = [
    "GIVEN",
    "GIVEN_BY_HAND",
    "Admission",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "AutoConfirm",
    "DoomLoop",
    "Gate",
    "NoApprover",
    "ToolPermissionFilter",
    "choose_default_action",
    "is_known_to_read",
]
