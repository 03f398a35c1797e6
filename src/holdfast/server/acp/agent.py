"""The agent that an editor speaks to: sessions, modes, prompts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import acp
from acp import RequestError, helpers, schema
from typing_extensions import override

from holdfast._version import __version__
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.messages import TextPart
from holdfast.operations import OWNER, agents, messages, runs, sessions
from holdfast.runtime import Runtime
from holdfast.server.acp.commands import list_commands, perform_command
from holdfast.server.acp.content import read_blocks
from holdfast.server.acp.turn import PromptTurn, answer_question
from holdfast.server.acp.updates import replay_message
from holdfast.sessions import Session, SessionFilter

_PAGE: Final = 200
_LISTED: Final = 50
_TITLE: Final = 60
_NEW: Final = "Conversation in an editor"


class EditorAgent(acp.Agent):
    """Answers one editor, as the owner of the state directory."""

    def __init__(self, runtime: Runtime, default_agent: str) -> None:
        """Answer on these records; new sessions begin with this agent."""
        self._runtime = runtime
        self._default = default_agent
        self._modes: dict[str, str] = {}
        self._turns: dict[str, PromptTurn] = {}
        self._editor: acp.Client | None = None

    def on_connect(self, conn: acp.Client) -> None:
        """Take the editor's side of the connection."""
        self._editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **_: Any,  # noqa: ANN401 - further fields of the protocol
    ) -> schema.InitializeResponse:
        """Say what we can do."""
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_info=schema.Implementation(
                name="holdfast", title="Holdfast", version=__version__
            ),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(
                    image=True, audio=True, embedded_context=True
                ),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:  # noqa: ANN401 - as above
        """Let the editor in: it was started by the owner."""
        return schema.AuthenticateResponse()

    # --- sessions ---------------------------------------------------------------------

    @override
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,
    ) -> schema.NewSessionResponse:
        """Begin a session in the editor's folder.

        MCP servers of the editor are not taken over: those of `holdfast mcp` are used, which
        were looked at and pinned.
        """
        try:
            made = await sessions.create.perform(self._runtime, OWNER, _NEW, directory=cwd)
        except UsageError as error:
            raise RequestError.invalid_params({"detail": str(error)}) from error
        modes = await self._list_modes(made.id)
        await self._offer_commands(made.id)
        return schema.NewSessionResponse(session_id=made.id, modes=modes)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> schema.LoadSessionResponse:
        """Show a session again, message by message, and go on with it."""
        session = await self._find(session_id)
        cursor = ""
        while True:
            page = await messages.list_.perform(
                self._runtime, OWNER, session_id, limit=_PAGE, cursor=cursor
            )
            for message in page.items:
                for update in replay_message(message, session.directory):
                    await self._send(session_id, update)
            cursor = page.next_cursor
            if not cursor:
                break
        await self._offer_commands(session_id)
        return schema.LoadSessionResponse(modes=await self._list_modes(session_id))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> schema.ResumeSessionResponse:
        """Go on with a session that the editor still shows."""
        await self._find(session_id)
        await self._offer_commands(session_id)
        return schema.ResumeSessionResponse(modes=await self._list_modes(session_id))

    async def list_sessions(
        self,
        cwd: str | None = None,
        cursor: str | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> schema.ListSessionsResponse:
        """Return sessions, of one folder if it is named, the newest first."""
        try:
            page = await sessions.list_.perform(
                self._runtime,
                OWNER,
                SessionFilter(directory=cwd or None),
                cursor=cursor or "",
                limit=_LISTED,
            )
        except UsageError as error:
            raise RequestError.invalid_params({"detail": str(error)}) from error
        found = [
            schema.SessionInfo(
                session_id=one.id,
                cwd=one.directory,
                title=one.title,
                updated_at=datetime.fromtimestamp(one.time_updated, UTC).isoformat(),
            )
            for one in page.items
        ]
        return schema.ListSessionsResponse(sessions=found, next_cursor=page.next_cursor or None)

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:  # noqa: ANN401 - as above
        """End what a session is doing; its records stay."""
        await self.cancel(session_id)
        self._modes.pop(session_id, None)
        return schema.CloseSessionResponse()

    async def set_session_mode(
        self,
        session_id: str,
        mode_id: str,
        **_: Any,  # noqa: ANN401 - as above
    ) -> schema.SetSessionModeResponse:
        """Let another agent answer from the next prompt on."""
        await self._find(session_id)
        known = {one.id for one in (await self._list_modes(session_id)).available_modes}
        if mode_id not in known:
            raise RequestError.invalid_params({"detail": f"there is no agent {mode_id!r:.80}"})
        self._modes[session_id] = mode_id
        return schema.SetSessionModeResponse()

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,  # noqa: ANN401 - as above
    ) -> schema.ForkSessionResponse:
        """Go on with a copy of a session; the session stays as it is."""
        await self._find(session_id)
        made = await sessions.fork.perform(self._runtime, OWNER, session_id)
        self._modes[made.id] = self._find_mode(session_id)
        return schema.ForkSessionResponse(session_id=made.id, modes=await self._list_modes(made.id))

    async def set_config_option(
        self,
        config_id: str,
        session_id: str,
        value: str | bool,
        **_: Any,  # noqa: ANN401 - as above
    ) -> schema.SetSessionConfigOptionResponse:
        """Refuse: there are no options beside the mode."""
        raise RequestError.invalid_params({"detail": f"there is no option {config_id!r:.80}"})

    # --- prompts ----------------------------------------------------------------------

    @override
    async def prompt(
        self,
        session_id: str,
        prompt: list[Any],
        **_: Any,
    ) -> schema.PromptResponse:
        """Answer a prompt, or perform the command that it is."""
        session = await self._find(session_id)
        if session_id in self._turns:
            raise RequestError.invalid_request({"detail": "this session answers a prompt already"})
        content = read_blocks(prompt)
        text = content[0].text if isinstance(content[0], TextPart) else ""
        said = await perform_command(self._runtime, session_id, text.strip())
        if said is not None:
            await self._send(session_id, acp.update_agent_message_text(said))
            return schema.PromptResponse(stop_reason="end_turn")
        assert self._editor is not None
        turn = PromptTurn(
            self._runtime, self._editor, session_id, session.directory, self._find_mode(session_id)
        )
        self._turns[session_id] = turn
        try:
            if await self._answer_open_question(session_id, turn, text):
                content = []
            return await turn.run(content or "")
        except HoldfastError as error:
            text = f"{error} {error.hint}".strip()
            raise RequestError(-32603, text[:1_000], {"code": error.code}) from error
        finally:
            del self._turns[session_id]

    async def cancel(self, session_id: str, **_: Any) -> None:  # noqa: ANN401 - as above
        """End the prompt that is being answered."""
        turn = self._turns.get(session_id)
        if turn is not None:
            await turn.cancel()

    @override
    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Refuse what is no part of the protocol."""
        raise RequestError.method_not_found(method)

    @override
    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore what is no part of the protocol."""

    # --- inside -----------------------------------------------------------------------

    async def _find(self, session_id: str) -> Session:
        try:
            return await sessions.get.perform(self._runtime, OWNER, session_id)
        except (NotFound, UsageError) as error:
            raise RequestError.resource_not_found(session_id) from error

    async def _answer_open_question(self, session_id: str, turn: PromptTurn, text: str) -> bool:
        """Take a prompt as the answer to a question of the session's run, if there is one."""
        found = await runs.find.perform(
            self._runtime, OWNER, session_id=session_id, status="parked", limit=1
        )
        for run in found.items:
            for one in await runs.waiting.perform(self._runtime, OWNER, run.id):
                if one.reason == "question" and text:
                    turn.run_id = run.id
                    await answer_question(self._runtime, one, text)
                    return True
        return False

    def _find_mode(self, session_id: str) -> str:
        return self._modes.get(session_id, self._default)

    async def _list_modes(self, session_id: str) -> schema.SessionModeState:
        known = await agents.list_.perform(self._runtime, OWNER)
        modes = [
            schema.SessionMode(id=one.name, name=one.name, description=one.description or None)
            for one in known
            if one.mode != "subagent"
        ]
        current = self._find_mode(session_id)
        return schema.SessionModeState(current_mode_id=current, available_modes=modes)

    async def _offer_commands(self, session_id: str) -> None:
        await self._send(session_id, helpers.update_available_commands(list_commands()))

    async def _send(self, session_id: str, update: Any) -> None:  # noqa: ANN401 - a union of the protocol
        assert self._editor is not None
        await self._editor.session_update(session_id, update)


__all__ = ["EditorAgent"]
