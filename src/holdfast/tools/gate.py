"""The gate as the manager uses it: decide by the rules, ask whoever can answer.

Policy and rights are data; this object holds them for one run and speaks to the approver.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.canonical import JsonObject
from holdfast.policy import (
    CallRequest,
    Decision,
    PolicyBundle,
    PolicyStore,
    Rights,
    RuleSet,
    could_ever,
    decide,
)
from holdfast.policy.approvals import ApprovalTerms
from holdfast.policy.decision import NO_RULES, Action
from holdfast.sessions import PermissionRule
from holdfast.tools.definition import Tool
from holdfast.tools.registry import ToolRegistry

_MOST_JUDGED = 1_024


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked to consent to: this call, with exactly these arguments.

    `preview` shows what would change, if the tool can say; `rules` is what `always` writes;
    `required` says how many different people have to consent.
    """

    call_id: str
    tool: str
    permission: str
    targets: tuple[str, ...]
    arguments: JsonObject
    agent_path: str
    decision: Decision
    message_id: str = ""
    seal: str = ""
    preview: str = ""
    rules: tuple[PermissionRule, ...] = ()
    required: int = 1


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the person said.

    `stop` refuses the call and ends the run. `arguments` replace those of the call; they are
    checked and judged anew. `rules` are added to the session's.
    """

    verdict: Literal["allow", "deny", "stop"]
    by: str
    reason: str = ""
    arguments: JsonObject | None = None
    rules: tuple[PermissionRule, ...] = ()


class Approver(Protocol):
    """Whoever can consent to a call while the run goes on."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return the answer, or `None` when nobody is there after all."""
        ...


class NobodyApproves:
    """Nobody is there to ask."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return `None`."""
        return None


class AutoConfirm:
    """Says yes to everything that may be asked for; never lifts a deny."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Consent."""
        return ApprovalAnswer(verdict="allow", by="auto-confirm")


class Gate:
    """The rules that hold for one agent in one session, and who answers when they ask.

    Without any rules it is strict: tools that only read run, everything else asks. Where
    nobody answers, the terms say whether the call is refused or the run waits.
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
    ) -> None:
        """Hold the rules; nobody approves unless somebody is given.

        With `policies`, ceiling and version are those in force for the agent at the end of a
        path (`a/b`) when a call is judged.
        """
        self.ceiling = ceiling
        self.rights = rights or Rights()
        self.approver = approver or NobodyApproves()
        self.terms = terms or ApprovalTerms()
        self.policy_version = policy_version
        self._agent_path = agent_path
        self._policies = policies
        self._bundle: PolicyBundle | None = None
        if policies is not None:
            self._take_up(policies.bundle)
        self._judged: dict[CallRequest, Decision] = {}
        self._judged_by: tuple[RuleSet, Rights, str] | None = None

    def decide(self, request: CallRequest) -> Decision:
        """Decide by the rules alone; a command that cannot be read asks at least.

        A reload of the policies holds from the next decision on; a call that was let through
        goes on. In shadow mode a candidate looks on.
        """
        policies = self._policies
        if policies is not None and policies.bundle is not self._bundle:
            self._take_up(policies.bundle)
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
                policy_version=self.policy_version,
            )
        if policies is not None and policies.shadow is not None:
            policies.watch(request, decision, agent=self._agent_path)
        return decision

    def _take_up(self, bundle: PolicyBundle) -> None:
        self._bundle = bundle
        self.ceiling = bundle.ceiling_for(self._agent_path)
        self.policy_version = bundle.version

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
        names = _visible_names(named, gate.ceiling, gate.rights)
        return tuple([tool for tool in given if tool.name in names])


@functools.lru_cache(maxsize=256)
def _visible_names(
    named: tuple[tuple[str, str], ...], ceiling: RuleSet, rights: Rights
) -> frozenset[str]:
    return frozenset([name for name, kind in named if could_ever(name, ceiling, rights, kind)])


def default_action(tool: Tool, scope: str) -> Action:
    """What holds for a tool where no rule speaks.

    A tool that somebody handed over in code does what its author said; a built-in one runs
    if it only reads, and asks otherwise.
    """
    if scope == "built-in":
        return "allow" if tool.effect == "read" else "ask"
    return tool.permission
