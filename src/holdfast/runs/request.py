"""Starting a run: everything that may be said about it, and who carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from holdfast.agents.definition import Agent
from holdfast.agents.result import AgentResult
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound
from holdfast.policy.approvals import OnAsk
from holdfast.policy.budgets import Budget
from holdfast.policy.patterns import matcher, name_matches
from holdfast.providers.model import Model
from holdfast.runs.kept_request import Starter
from holdfast.runs.streaming import ChildPiece
from holdfast.runs.turn import Listener, hear_nothing
from holdfast.sessions import NewSession
from holdfast.sessions.events import OnBusy
from holdfast.skills import Skill
from holdfast.tools import Tool
from holdfast.tools.gate import Approver


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One run that somebody asks for.

    An empty `agent` means the session's own, an empty `session_id` a new session. The same
    `run_id` again returns the finished result, or resumes what was interrupted. `tool_ids`
    and `skill_names` leave nothing else to the run; `None` leaves everything. `starter` is
    the run that asks, and `approver` answers in its name where the agent has none of its own.
    A `new_session` begins together with the run. `hear_children` is told what the runs do that
    this one starts, directly or through others.
    """

    message: str
    agent: str | Agent = ""
    session_id: str = ""
    run_id: str = ""
    options: JsonObject = msgspec.field(default_factory=dict)
    model: str | Model = ""
    on_ask: OnAsk = "deny"
    budget: Budget | None = None
    on_busy: OnBusy | None = None
    """What it does while another turn is under way; `None` as the settings say."""
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    starter: Starter | None = None
    approver: Approver | None = None
    new_session: NewSession | None = None
    hear_children: Callable[[ChildPiece], None] | None = None

    @property
    def place(self) -> str:
        """The id of the session that it is meant for, as far as it is known."""
        return self.new_session.id if self.new_session is not None else self.session_id


class RunExecutor(Protocol):
    """Whoever carries runs out; the client is one."""

    async def launch(self, launch: Launch, listener: Listener = hear_nothing) -> AgentResult:
        """Execute a run, or resume it, and return its result, failures included.

        Raises:
            NotFound: there is no such agent or session.
        """
        ...


def check_names(launch: Launch, tools: Iterable[Tool], skills: Iterable[Skill]) -> None:
    """Return if the tools and skills that are left to a run are there.

    Raises:
        NotFound: there is no tool or skill of a name, nor one that a pattern fits.
    """
    known = [(tool.name, tool.target_kind) for tool in tools]
    for wanted in launch.tool_ids or ():
        if not any(name_matches(wanted, name, kind) for name, kind in known):
            raise NotFound(kind="tool", value=wanted)
    # What a call hands on was looked up when its own run began, and may be gone since.
    is_inherited = launch.starter is not None and bool(launch.starter.call_id)
    offered = [skill.name for skill in skills]
    for wanted in () if is_inherited else launch.skill_names or ():
        if not any(map(matcher(wanted, "text"), offered)):
            raise NotFound(kind="skill", value=wanted)
