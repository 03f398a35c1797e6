"""Who started a run, and what may therefore never be more than its starter's.

A run that another one starts stands in a session of its own, and its lineage is kept with
that session. Whoever resumes the run, in whichever process, finds it below its parent again:
rights, sandbox and the operator's ceiling of every agent above it still hold.
"""

from __future__ import annotations

import msgspec

from holdfast.agents.definition import Agent, Sandbox
from holdfast.errors import UsageError
from holdfast.policy import Rights, RuleSet
from holdfast.sessions import PermissionRule, Session

LINEAGE_KEY = "lineage"
"""Where a session's metadata keep it."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run, and if it was one the call, that started the runs of a session.

    `path` names the agents from the first one down to the starter; `rights` and `sandbox` are
    the starter's own, with everything above it.
    """

    session_id: str
    run_id: str = ""
    call_id: str = ""
    path: tuple[str, ...] = ()
    rights: Rights = Rights()
    sandbox: Sandbox = "workspace-write"

    @property
    def depth(self) -> int:
        """How many agents stand above."""
        return len(self.path)

    def to_metadata(self) -> dict[str, object]:
        """Return the metadata that put a new session below this run."""
        return {LINEAGE_KEY: msgspec.to_builtins(self)}


def lineage_of(session: Session) -> Lineage | None:
    """Return who started the runs of a session; `None` if a person did.

    Raises:
        UsageError: it cannot be read; nothing may run without knowing its limits.
    """
    found = session.metadata.get(LINEAGE_KEY)
    if found is None:
        return None
    try:
        return msgspec.convert(found, Lineage)
    except msgspec.ValidationError as error:
        detail = f"The lineage of session {session.id} cannot be read: {error}"
        raise UsageError(detail=detail) from error


def rights_of(agent: Agent, session: Session, tool_ids: tuple[str, ...] | None = None) -> Rights:
    """Return what an agent may do in a session, below whoever started it.

    With `tool_ids` no other tool may be called, whatever the rules say.
    """
    above = lineage_of(session)
    parent = above.rights if above is not None else None
    if tool_ids is not None:
        only = [PermissionRule(permission="*", action="deny")]
        only += [PermissionRule(permission=name, action="allow") for name in tool_ids]
        parent = Rights(agent=RuleSet(rules=tuple(only)), parent=parent)
    return Rights(
        agent=RuleSet(rules=agent.rules), session=RuleSet(rules=session.permission), parent=parent
    )


def path_of(agent: Agent, session: Session) -> tuple[str, ...]:
    """Return the names of the agents from the first one down to this one."""
    above = lineage_of(session)
    return (*above.path, agent.name) if above is not None else (agent.name,)


def sandbox_of(agent: Agent, session: Session) -> Sandbox:
    """Return the sandbox of an agent's commands: never wider than its starter's."""
    above = lineage_of(session)
    return "read-only" if above is not None and above.sandbox == "read-only" else agent.sandbox


def below(
    agent: Agent,
    session: Session,
    *,
    run_id: str = "",
    call_id: str = "",
    tool_ids: tuple[str, ...] | None = None,
) -> Lineage:
    """Return the lineage of what an agent starts from a session."""
    return Lineage(
        session_id=session.id,
        run_id=run_id,
        call_id=call_id,
        path=path_of(agent, session),
        rights=rights_of(agent, session, tool_ids),
        sandbox=sandbox_of(agent, session),
    )
