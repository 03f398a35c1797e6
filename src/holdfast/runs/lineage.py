"""Who started a run, and what may therefore never be more than its starter's.

A run that another one starts stands in a session of its own, and its lineage is kept with
that session. The caller that resumes the run, in whichever process, finds it below its parent
again: rights, sandbox, budgets and the operator's ceiling of every agent above it still hold.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec

from holdfast.agents import Agent, Sandbox, Starter
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound, UsageError
from holdfast.journal import Journal
from holdfast.policy import FORBIDS_NOTHING, NO_RULES, QUESTIONS, Rights, RuleSet, Share
from holdfast.sessions import PermissionRule, Session, SessionManager, SessionRulesAdded
from holdfast.tools import ApprovalAnswer, ApprovalRequest, Approver, Label, ToolContext

LINEAGE_KEY = "lineage"
"""Where a session's metadata keep it."""

_NARROW_FIRST: tuple[Sandbox, ...] = get_args(Sandbox)


class Lineage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The run, and if it was one the call, that started the runs of a session.

    `path` names the agents from the first one down to the starter; `rights` and `sandbox` are
    the starter's own, with everything above it. `line` names the session of each level of
    `rights`, from the starter's upwards, empty where a level belongs to none. `shares` are the
    budgets that are spent from together; `root` is the run at the top of the tree. `labels`
    are those of what the starter had read. `is_handed` says that the agent below was handed to
    the starter in code, and its tools with it.
    """

    session_id: str
    run_id: str = ""
    call_id: str = ""
    path: tuple[str, ...] = ()
    rights: Rights = Rights()
    sandbox: Sandbox = "workspace-write"
    line: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    root: str = ""
    labels: tuple[Label, ...] = ()
    is_handed: bool = False

    @property
    def depth(self) -> int:
        """How many agents stand above."""
        return len(self.path)

    @functools.cached_property
    def starter(self) -> Starter:
        """Who started the run, for the run itself to keep."""
        return Starter(
            session_id=self.session_id,
            run_id=self.run_id,
            call_id=self.call_id,
            root=self.root or self.run_id,
            path=self.path,
        )

    def to_metadata(self) -> dict[str, object]:
        """Return the metadata that put a new session below this run."""
        return {LINEAGE_KEY: msgspec.to_builtins(self)}


def read_lineage(session: Session) -> Lineage | None:
    """Return who started the runs of a session; `None` if a person did.

    Raises:
        UsageError: it cannot be read; nothing may run without knowing its limits.
    """
    if session.metadata.get(LINEAGE_KEY) is None:
        return None
    # A run asks for it many times.
    return session.derived(LINEAGE_KEY, _read_lineage)


def _read_lineage(session: Session) -> Lineage:
    try:
        return msgspec.convert(session.metadata[LINEAGE_KEY], Lineage)
    except msgspec.ValidationError as error:
        detail = f"The lineage of session {session.id} cannot be read: {error}"
        raise UsageError(detail=detail) from error


def make_starter_options(session: Session) -> JsonObject:
    """Return what a queued run of a session keeps of its starter; nothing if a person started it.

    By this the starter finds the run again: to count what it spent, to cancel it.
    """
    above = read_lineage(session)
    return {} if above is None else {"starter": msgspec.to_builtins(above.starter)}


class RunPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands: who started it, as whom it acts, and what it may therefore do.

    `path` names the agents from the first one down to this one. `sandbox` is never wider than
    the starter's, and `rights` are never more than the starter has.
    """

    above: Lineage | None
    path: tuple[str, ...]
    agent_path: str
    """The path as it is written down, `lead/helper`."""
    rights: Rights
    sandbox: Sandbox
    shares: tuple[Share, ...] = ()
    """The budgets of the caller that started the run, which it spends from too."""


def locate_run(
    agent: Agent | None,
    session: Session,
    tool_ids: tuple[str, ...] | None = None,
    skill_names: tuple[str, ...] | None = None,
) -> RunPosition:
    """Return where an agent, or without one a person, stands in a session.

    With `tool_ids` no other tool may be called, with `skill_names` no other skill loaded,
    whatever the rules say.
    """
    above = read_lineage(session) if LINEAGE_KEY in session.metadata else None
    # A person who starts agents is held back by the session's rules alone.
    rules = agent.rule_set if agent is not None else FORBIDS_NOTHING
    sandbox = agent.sandbox if agent is not None else "workspace-write"
    path = (agent.name,) if agent is not None else ()
    if above is not None:
        path = (*above.path, *path)
        narrow = min(sandbox, above.sandbox, key=_NARROW_FIRST.index)
        # A person's sandbox is none, unless they speak in the session of a caller's child.
        sandbox = narrow if agent is not None else above.sandbox
    spoken = RuleSet(rules=session.permission) if session.permission else NO_RULES
    parent = above.rights if above is not None else None
    if tool_ids is not None or skill_names is not None:
        parent = _narrow(parent, tool_ids, skill_names)
    return RunPosition(
        above=above,
        path=path,
        agent_path="/".join(path),
        rights=Rights(
            agent=rules,
            session=spoken,
            parent=parent,
            is_handed=above is not None and above.is_handed,
        ),
        sandbox=sandbox,
        shares=above.shares if above is not None else (),
    )


def list_below(
    agent: Agent | None,
    session: Session,
    *,
    run_id: str = "",
    call_id: str = "",
    tool_ids: tuple[str, ...] | None = None,
    skill_names: tuple[str, ...] | None = None,
    shares: tuple[Share, ...] | None = None,
    labels: Iterable[Label] = (),
) -> Lineage:
    """Return the lineage of what an agent, or without one a person, starts from a session.

    `shares` are the starter's budgets with those above it; without them, those of the caller that
    started the session hold. `labels` are the taint labels of what the starter has read.
    """
    at = locate_run(agent, session, tool_ids, skill_names)
    above = at.above
    return Lineage(
        session_id=session.id,
        run_id=run_id,
        call_id=call_id,
        path=at.path,
        rights=at.rights,
        sandbox=at.sandbox,
        line=_format_line(at.rights, session, above),
        shares=at.shares if shares is None else shares,
        root=(above.root if above is not None else "") or run_id,
        labels=tuple(sorted({*labels, *(above.labels if above is not None else ())})),
    )


def derive_call_lineage(
    context: ToolContext, session: Session, *, is_handed: bool = False
) -> Lineage:
    """Return the lineage of what a tool call starts: no more than the caller's run has.

    `is_handed` says that the agent was handed to the caller in code.
    """
    above = read_lineage(session)
    return Lineage(
        session_id=session.id,
        run_id=context.run_id,
        call_id=context.call_id,
        path=context.agent_path,
        rights=context.rights,
        sandbox=_find_sandbox_of_call(context),
        line=_format_line(context.rights, session, above),
        shares=context.child_limits.shares,
        root=(above.root if above is not None else "") or context.run_id,
        labels=tuple(sorted(context.labels.seen)),
        is_handed=is_handed,
    )


def _find_sandbox_of_call(context: ToolContext) -> Sandbox:
    if context.is_read_only:
        return "read-only"
    if context.has_network:
        return "network"
    # Online without the machine's network: through the proxy.
    return "filtered" if context.labels.is_online else "workspace-write"


async def refresh_ancestor_rules(sessions: SessionManager, session: Session) -> Session:
    """Return a session whose lineage holds what people say now in the sessions above it.

    Agents' rules stay as they were when the session was started. What a person adds to a
    session above, an allow that answers an ask or a deny, holds below it too.
    """
    above = read_lineage(session)
    if above is None or not any(above.line):
        return session
    rights = await _find_living_rights(sessions, above.rights, above.line)
    if rights == above.rights:
        return session
    lineage = msgspec.structs.replace(above, rights=rights)
    return msgspec.structs.replace(session, metadata={**session.metadata, **lineage.to_metadata()})


async def _find_living_rights(
    sessions: SessionManager, rights: Rights, line: tuple[str, ...]
) -> Rights:
    own = rights.session
    if line and line[0]:
        try:
            own = RuleSet(rules=(await sessions.get_session(line[0])).permission)
        except NotFound:
            own = rights.session  # the session is gone; what held then holds
    parent = rights.parent
    if parent is not None and len(line) > 1:
        parent = await _find_living_rights(sessions, parent, line[1:])
    return msgspec.structs.replace(rights, session=own, parent=parent)


def _narrow(
    parent: Rights | None,
    tool_ids: tuple[str, ...] | None,
    skill_names: tuple[str, ...] | None,
) -> Rights | None:
    """Put above a run that nothing but these tools and skills is left to it."""
    if tool_ids is not None:
        only = [PermissionRule(permission="*", action="deny")]
        only += [
            PermissionRule(permission=name, action="allow") for name in (*QUESTIONS, *tool_ids)
        ]
        parent = _filter_rights(parent, only)
    if skill_names is not None:
        only = [PermissionRule(permission="skill", action="deny")]
        only += [
            PermissionRule(permission="skill", pattern=name, action="allow") for name in skill_names
        ]
        parent = _filter_rights(parent, only)
    return parent


def _filter_rights(parent: Rights | None, only: Sequence[PermissionRule]) -> Rights:
    """Put a list in between that takes away only; what was handed over in code stays so."""
    return Rights(agent=RuleSet(rules=tuple(only), is_filter=True), parent=parent, is_handed=True)


def _format_line(rights: Rights, session: Session, above: Lineage | None) -> tuple[str, ...]:
    """Name the session of each level: the first is this one's, the last are those above."""
    levels, level = 0, rights.parent
    while level is not None:
        levels, level = levels + 1, level.parent
    known = above.line if above is not None else ()
    return (session.id, *("",) * max(0, levels - len(known)), *known)


async def add_rules_above(
    journal: Journal, lineage: Lineage, rules: Sequence[PermissionRule], by: str
) -> None:
    """Add rules to the sessions above; one that is gone is left out."""
    for session_id in dict.fromkeys(lineage.line):
        if session_id and await journal.head(session_id) is not None:
            await journal.append(session_id, [SessionRulesAdded(rules=tuple(rules), by=by)])


class PropagatingApprover:
    """An approver whose rules hold for the agents above, too."""

    def __init__(self, inner: Approver, journal: Journal, lineage: Lineage) -> None:
        """Ask this approver on behalf of a child."""
        self.inner = inner
        self._journal = journal
        self._lineage = lineage

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Return the answer; its rules are by then in the sessions above."""
        answer = await self.inner.approve(request)
        if answer is not None and answer.rules and answer.verdict == "allow":
            if request.required == 1:
                await add_rules_above(self._journal, self._lineage, answer.rules, answer.by)
        return answer
