"""BaseAgent and AgentExecutor: agents as classes, executed in real sessions."""

from __future__ import annotations

from typing import Any, Generic

from holdfast.agents import Agent, AgentResult, OutputT
from holdfast.canonical import JsonObject
from holdfast.client import AsyncClient
from holdfast.errors import HoldfastError, UsageError
from holdfast.messages import Message, UserContent, keep_last_turns, make_user_content
from holdfast.sdk.sessions import MessageStorage


class AgentExecutor:
    """Executes agents by name or as objects, each in a real session."""

    def __init__(self, client: AsyncClient) -> None:
        """Execute with this client."""
        self._client = client

    async def execute_agent(
        self,
        agent: Agent[OutputT, Any] | str,
        user_message: UserContent,
        session_id: str = "",
        *,
        options: JsonObject | None = None,
        deps: object = None,
    ) -> AgentResult[OutputT]:
        """Run an agent on a message and return its result, failures included.

        Raises:
            NotFound: there is no such agent or session.
        """
        content = make_user_content(user_message)
        return await self._client.execute_agent(agent, session_id, content, options, deps=deps)


class BaseAgent(Generic[OutputT]):
    """An agent to derive from: what goes in is checked, what goes wrong is handled.

    Its conversation is that of one session, so that it is kept, and survives the process. Derive
    from it and override `validate_input` and `handle_error`.
    """

    def __init__(
        self, agent: Agent[OutputT, Any], client: AsyncClient, *, session_id: str = ""
    ) -> None:
        """Let this agent work with this client; in a new session unless one is named."""
        self.agent = agent
        self.client = client
        self.session_id = session_id

    async def execute(
        self, message: UserContent, *, run_id: str = "", deps: object = None
    ) -> AgentResult[OutputT]:
        """Check the input, run the agent, and handle what went wrong.

        Raises:
            UsageError: the input was refused.
            HoldfastError: whatever `handle_error` lets pass.
        """
        self.validate_input(message)
        content = make_user_content(message)
        try:
            await self._begin()
            result = await self.client.execute_agent(
                self.agent, self.session_id, content, run_id=run_id, deps=deps
            )
            return result.raise_if_failed()
        except HoldfastError as error:
            return await self.handle_error(error)

    def validate_input(self, message: UserContent) -> None:
        """Refuse what cannot be meant; override it, and call this one first.

        Raises:
            UsageError: there is nothing in it.
        """
        if isinstance(message, str) and not message.strip():
            raise UsageError(detail=f"The agent {self.agent.name!r} was asked nothing.")

    async def handle_error(self, error: HoldfastError) -> AgentResult[OutputT]:
        """Return a result in place of a failure, or raise; this one raises."""
        raise error

    # --- the conversation -------------------------------------------------------------

    async def add_message(self, role: str, text: str) -> Message:
        """Add a message to the conversation."""
        await self._begin()
        return await MessageStorage(self.client).add_message(self.session_id, role, text)

    async def get_conversation(self) -> tuple[Message, ...]:
        """Return the conversation, oldest first."""
        if not self.session_id:
            return ()
        return await MessageStorage(self.client).list_messages(self.session_id)

    async def clear_conversation(self) -> None:
        """Begin anew, in another session; the one before is archived."""
        if self.session_id:
            await self.client.sessions.archive(self.session_id, reason="cleared")
        self.session_id = ""

    async def trim_conversation(self, turns: int) -> int:
        """Take all but the last turns out of the conversation; returns how many messages that is.

        The journal keeps them, as it keeps everything.
        """
        messages = await self.get_conversation()
        kept = {message.id for message in keep_last_turns(messages, turns)}
        gone = [message for message in messages if message.id not in kept]
        for message in gone:
            await self.client.messages.delete(self.session_id, message.id)
        return len(gone)

    async def _begin(self) -> None:
        if not self.session_id:
            session = await self.client.sessions.create(f"A conversation with {self.agent.name}")
            self.session_id = session.id


__all__ = ["AgentExecutor", "BaseAgent"]
