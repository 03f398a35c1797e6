"""The ContextBuilder: what a model sees next, and exactly that.

The beginning stays the same from turn to turn (prompt, environment, tools), so that the
caches of providers hit; what changes stands at the end.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.context.history import for_model
from holdfast.messages import Message, ToolSpec
from holdfast.sessions import Session, SessionManager
from holdfast.tools import Tool


class AgentLike(Protocol):
    """What the context needs to know about an agent."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def prompt(self) -> str:
        """The agent's own instructions."""
        ...


@dataclass(frozen=True, kw_only=True)
class AgentContext:
    """Everything that one model call is built from."""

    system_prompt: str
    tools: Mapping[str, Tool]
    messages: tuple[Message, ...]
    session: Session
    agent: AgentLike

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them, in a stable order."""
        return tuple(self.tools[name].spec for name in sorted(self.tools))


class ContextBuilder:
    """Builds the context of an agent from its session, tools and instructions."""

    def __init__(self, sessions: SessionManager) -> None:
        """Read conversations from these sessions."""
        self._sessions = sessions

    async def build_agent_context(
        self,
        session: Session,
        agent: AgentLike,
        tools: Mapping[str, Tool],
        *,
        messages: Sequence[Message] | None = None,
    ) -> AgentContext:
        """Return the complete context for the next model call.

        `messages` is the conversation if the caller has it at hand; otherwise it is read.
        """
        history = messages if messages is not None else await self._sessions.messages.all(session)
        return AgentContext(
            system_prompt=self._system_prompt(session, agent),
            tools=dict(tools),
            messages=for_model(history),
            session=session,
            agent=agent,
        )

    def _system_prompt(self, session: Session, agent: AgentLike) -> str:
        environment = (
            "<environment>\n"
            f"Working directory: {session.directory}\n"
            f"Platform: {platform.system().lower()}\n"
            "</environment>"
        )
        return "\n\n".join(part for part in (agent.prompt.strip(), environment) if part)
